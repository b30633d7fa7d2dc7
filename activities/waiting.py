"""Waiting: how a step ends with requests that are to be answered, and how the next one gets their answers."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from laneway.activities.adapter import StepResult
from laneway.activities.attempt import Attempt
from laneway.activities.delegating import Delegating
from laneway.activities.turn_fields import latest_staged, staged_value
from laneway.activities.wire import Awaited, StepInput, StepOutcome
from laneway.errors import CheckpointLost, InvalidInput, StaleTurn
from laneway.history.records import LaneEvent
from laneway.history.requests import Answer, StoredRequest, requests_of
from laneway.history.store import HistoryStore

__all__ = ["Waiting"]


class Waiting:
    """The requests of steps. Made by the steps.

    Args:
        store: where they are kept.
        delegating: hands out those that children answer.
    """

    def __init__(self, store: HistoryStore, delegating: Delegating) -> None:
        self._store = store
        self._delegating = delegating

    async def begin(
        self, request: StepInput, attempt: Attempt, result: StepResult[Any], events: Sequence[LaneEvent]
    ) -> StepOutcome:
        """Stage a result with its requests, and say what the workflow is to wait for."""
        after, entries = attempt.tail(result)
        now = time.time()
        requests = [StoredRequest(one, request.n, now) for one in result.requests]
        if len({one.request.id for one in requests}) < len(requests):
            raise InvalidInput("two requests of a step have the same id: give each `ref` its own")
        planned = self._delegating.plan(attempt.fence, requests, options=attempt.options, kept=attempt.kept)
        for stored, refused in planned:
            if refused is not None:
                self._delegating.judge(stored, refused)
        tally = attempt.tally_with(result)
        held, _ = await self._store.turns.stage(
            attempt.fence,
            f"s{request.n}",
            staged_value(tally, result.state),
            entries=entries,
            after=after,
            requests=[stored for stored, _ in planned],
            answers={stored.request.id: refused for stored, refused in planned if refused is not None},
            events=events,
        )
        if held is not None:
            raise StaleTurn(f"step {request.n} of turn {request.t!r} was staged by another attempt")
        attempt.tally = tally
        return await self._outcome(attempt, [stored for stored, refused in planned if refused is None])

    async def again(self, request: StepInput, attempt: Attempt) -> StepOutcome:
        """What a step came to that an attempt before this one has staged."""
        fields = attempt.turn.fields
        attempt.tally, _ = latest_staged(fields, request.n + 1)
        if f"w{request.n}" not in fields:
            return StepOutcome("next", attempt.turn.head.version, u=attempt.tally.taken)
        found = requests_of(fields)
        return await self._outcome(
            attempt, [stored for stored, answer in found if stored.step == request.n and answer is None]
        )

    async def gather_answers(self, request: StepInput, attempt: Attempt) -> None:
        """Have an answer to all that the step before waited for: of children what they came to, else by default."""
        fields = dict(attempt.turn.fields)
        for stored, given in requests_of(fields):
            if stored.step != request.n - 1:
                continue
            answer = given or await self._late_answer(request, attempt, stored)
            fields[f"r:{stored.request.id}"] = answer.to_json()
            self._delegating.judge(stored, answer)
        attempt.turn = replace(attempt.turn, fields=fields)

    async def _late_answer(self, request: StepInput, attempt: Attempt, stored: StoredRequest) -> Answer:
        asked = stored.request
        answer = asked.default if stored.child is None else await self._delegating.outcome(stored)
        if answer is None:
            raise CheckpointLost(f"the answer to request {asked.id} of turn {request.t!r} is missing from Redis")
        return await self._store.waits.answer(attempt.fence.lane, request.t, asked.id, answer) or answer

    async def _outcome(self, attempt: Attempt, requests: Sequence[StoredRequest]) -> StepOutcome:
        # All after it is staged: no child is without its parent, and readers take lanes that do not wait out of the
        # index.
        awaited: list[Awaited] = []
        account = attempt.account(self._store.accounts, attempt.fence.step)
        for one in requests:
            if one.child is None:
                awaited.append(Awaited(one.request.id, one.deadline))
            else:
                awaited.append(
                    await self._delegating.prepare(
                        attempt.fence, one, options=attempt.options, account=account, kept=attempt.kept
                    )
                )
        if awaited:
            await self._store.waits.enter(attempt.fence.lane, now=time.time())
        return StepOutcome("waiting" if awaited else "next", attempt.turn.head.version, awaited, u=attempt.tally.taken)
