"""Client tasks: they submit random turns, repeat, contradict and cancel them, and write down all that they are told.

An outage is survived in the documented way: what failed with `ServiceUnavailable` is submitted again, under the same
turn id. What else a caller meets that is not a documented answer is written down as `surprise`, and is a violation.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from itertools import count

from laneway import LanewayClient, LanewayError, RequestBudget
from laneway.errors import LaneBusy, ServiceUnavailable, TurnCancelled, TurnConflict, TurnFailed
from laneway.turns import Turn

from tests.chaos.agents import AGENTS
from tests.chaos.ledger import Ledger
from tests.chaos.script import Plan
from tests.chaos.turns import Wish, draw

__all__ = ["Board", "Caller"]

_PAUSE_S = 0.3


@dataclass
class Board:
    """What all callers of a run share.

    Attributes:
        stop: no new turn is begun once it is set.
        calls: numbers the calls of all callers in the order in which they are made.
        tallies: how often each thing has happened, for the progress that is printed.
    """

    stop: asyncio.Event = field(default_factory=asyncio.Event)
    calls: count[int] = field(default_factory=lambda: count(1))
    tallies: dict[str, int] = field(default_factory=dict[str, int])

    def tally(self, what: str) -> None:
        self.tallies[what] = self.tallies.get(what, 0) + 1


class Caller:
    """One client task.

    Args:
        name: begins the ids of its turns.
        client: its own connection.
        second: another connection, for calls that repeat or contradict its turns.
        ledger: where it writes what it does and sees.
        board: see `Board`.
        chance: its own source of randomness.
        conversations: where it talks.
        busy: it submits one turn after another, in bursts too; else it waits for each, and long enough for lanes to
            complete between two.
    """

    def __init__(
        self,
        name: str,
        client: LanewayClient,
        second: LanewayClient,
        ledger: Ledger,
        board: Board,
        chance: random.Random,
        *,
        conversations: Sequence[str],
        busy: bool,
    ) -> None:
        self.name = name
        self._clients = {"first": client, "second": second}
        self._ledger = ledger
        self._board = board
        self._chance = chance
        self._conversations = conversations
        self._busy = busy
        self._numbers = count(1)
        self._open = asyncio.Semaphore(10)

    async def run(self) -> None:
        """Submit turns until the board says stop, then wait for the answers to all of them."""
        async with asyncio.TaskGroup() as group:
            while not self._board.stop.is_set():
                conversation = self._chance.choice(self._conversations)
                agent = self._chance.choice(AGENTS)
                burst = self._chance.randint(2, 6) if self._busy and self._chance.random() < 0.2 else 1
                turns: list[asyncio.Task[None]] = []
                for _ in range(burst):
                    wish = draw(self._chance, f"{self.name}-{next(self._numbers)}", agent)
                    await self._open.acquire()
                    turn = group.create_task(self._turn(conversation, agent, wish))
                    turn.add_done_callback(lambda _: self._open.release())
                    turns.append(turn)
                if self._busy:
                    await asyncio.sleep(self._chance.uniform(0.0, 0.6))
                else:
                    await asyncio.wait(turns)
                    await asyncio.sleep(self._chance.uniform(0.7, 2.6))

    # One turn ---------------------------------------------------------------------------------------------------------

    async def _turn(self, conversation: str, agent: str, wish: Wish) -> None:
        accepted = asyncio.Event()

        def call(which: str, plan: Plan) -> Callable[[], Awaitable[None]]:
            return lambda: self._call(which, conversation, agent, wish, plan, accepted)

        calls = [_after(0.0, call("first", wish.plan))]
        if wish.again is not None:
            calls.append(_after(wish.again, call("second", wish.plan)))
        if wish.contradict is not None:
            other = Plan(wish.plan.id, other=True)
            calls.append(_after(wish.contradict, call("second", other), accepted))
        calls.extend(
            self._cancel(after, conversation, agent, wish, accepted, index) for index, after in enumerate(wish.cancel)
        )
        tasks = [asyncio.create_task(call) for call in calls]
        try:
            await tasks[0]
            # Calls that wait for the turn's acceptance wait in vain where it was refused.
            accepted.set()
            await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()

    async def _call(
        self, which: str, conversation: str, agent: str, wish: Wish, plan: Plan, accepted: asyncio.Event
    ) -> None:
        """Submit until it is decided, then wait for the answer; both across outages."""
        again = which == "second" and plan == wish.plan
        while True:
            number = next(self._board.calls)
            call: dict[str, object] = {"call": number, "turn": plan.id}
            self._ledger.write(
                "submit",
                caller=self.name,
                which=which,
                conversation=conversation,
                agent=agent,
                prompt=plan.to_prompt(),
                timeout=wish.timeout,
                budget=wish.budget,
                busy="enqueue" if again else wish.when_busy,
                waiting=wish.cancel_waiting and not again,
                **call,
            )

            async def submit() -> Turn:
                return (
                    await self._clients[which]
                    .conversation(conversation)
                    .submit(
                        agent,
                        plan.to_prompt(),
                        turn_id=plan.id,
                        timeout=wish.timeout,
                        budget=None if wish.budget is None else RequestBudget(request_limit=wish.budget),
                        when_busy="enqueue" if again else wish.when_busy,
                        cancel_waiting=wish.cancel_waiting and not again,
                    )
                )

            turn = await self._told(submit, **call)
            if turn is None:
                return
            if turn is _UNAVAILABLE:
                await asyncio.sleep(_PAUSE_S)
                continue
            assert isinstance(turn, Turn)
            self._ledger.write("accepted", **call)
            self._board.tally("accepted" if which == "first" else "repeated")
            accepted.set()
            if await self._answer(turn, call):
                return

    async def _answer(self, turn: Turn, call: dict[str, object]) -> bool:
        """Write down how the turn ended. False where the turn is to be submitted again."""

        async def result() -> dict[str, object]:
            try:
                found = await turn.result()
            except TurnCancelled:
                return {"outcome": "cancelled"}
            except TurnFailed as failed:
                return {"outcome": "failed", "error": failed.error_type}
            return {"outcome": "committed", "output": found.output, "steps": found.steps}

        seen = await self._told(result, **call)
        if seen is _UNAVAILABLE:
            await asyncio.sleep(_PAUSE_S)
            return False
        if isinstance(seen, dict):
            self._ledger.write("answer", **seen, **call)
            self._board.tally(f"{seen['outcome']}")
        return True

    async def _cancel(
        self, after: float, conversation: str, agent: str, wish: Wish, accepted: asyncio.Event, index: int
    ) -> None:
        await accepted.wait()
        await asyncio.sleep(after)
        turn = self._clients["first" if index == 0 else "second"].conversation(conversation).turn(agent, wish.plan.id)
        while True:
            call = {"call": next(self._board.calls), "turn": wish.plan.id}
            self._ledger.write("cancel", **call)
            answer = await self._told(turn.cancel, **call)
            if answer is _UNAVAILABLE:
                await asyncio.sleep(_PAUSE_S)
                continue
            if isinstance(answer, str):
                self._ledger.write("cancel_answer", answer=answer, **call)
            return

    async def _told(self, what: Callable[[], Awaitable[object]], **call: object) -> object:
        """The answer to a call; None where it was refused for good, `_UNAVAILABLE` where it is to be made again."""
        try:
            return await what()
        except ServiceUnavailable as error:
            self._ledger.write("unavailable", error=str(error), **call)
            return _UNAVAILABLE
        except LaneBusy:
            self._ledger.write("busy", **call)
            self._board.tally("busy")
        except TurnConflict:
            self._ledger.write("conflict", **call)
            self._board.tally("conflicts")
        except LanewayError as error:
            self._ledger.write("surprise", error=f"{type(error).__name__}: {error}", **call)
        except Exception as error:
            # Of no documented kind: it would have reached the application.
            self._ledger.write("surprise", error=f"{type(error).__name__}: {error}", **call)
        return None


async def _after(seconds: float, what: Callable[[], Awaitable[None]], event: asyncio.Event | None = None) -> None:
    if event is not None:
        await event.wait()
    if seconds:
        await asyncio.sleep(seconds)
    await what()


_UNAVAILABLE = object()
