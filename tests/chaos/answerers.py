"""A client task that answers what turns wait for: at random, several at once, twice and otherwise, and wrongly too."""

from __future__ import annotations

import asyncio
import random
from typing import Any

from laneway import Answer, LanewayClient, LanewayError, Pending, approve, deny, failed
from laneway.errors import AlreadyAnswered, InvalidInput, ServiceUnavailable, UnknownRequest
from laneway.history.requests import result

from tests.chaos.callers import Board
from tests.chaos.ledger import Ledger

__all__ = ["Answerer"]

_PAUSE_S = 0.3


class Answerer:
    """One client task.

    Args:
        client, second: two connections: where two answers are given to one request, each by its own.
        ledger: where it writes each answer before it is given, with what the tool call comes to by it, and what was
            said of it.
        board: see `Board`.
        chance: its own source of randomness.
    """

    def __init__(
        self, client: LanewayClient, second: LanewayClient, ledger: Ledger, board: Board, chance: random.Random
    ) -> None:
        self._clients = (client, second)
        self._ledger = ledger
        self._board = board
        self._chance = chance
        self._known: set[str] = set()

    async def run(self) -> None:
        """Answer what comes to be asked, until this is cancelled."""
        async with asyncio.TaskGroup() as group:
            while True:
                try:
                    pending = await self._clients[0].pending()
                except ServiceUnavailable:
                    pending = []
                except LanewayError as error:
                    self._ledger.write("surprise", error=f"{type(error).__name__}: {error}")
                    pending = []
                for one in pending:
                    if one.request.id not in self._known and one.request.kind != "delegation":
                        self._known.add(one.request.id)
                        group.create_task(self._attend(one))
                await asyncio.sleep(self._chance.uniform(0.05, 0.5))

    async def _attend(self, one: Pending) -> None:
        await asyncio.sleep(self._chance.uniform(0.0, 1.0) ** 3 * 4)
        answers = [self._give(0, one, *self._draw(one))]
        if self._chance.random() < 0.3:
            answers.append(self._give(1, one, *self._draw(one)))
        if self._chance.random() < 0.2:
            answers.insert(0, self._give(1, one, *self._draw(one), wrong="id"))
        if self._chance.random() < 0.2:
            answers.insert(0, self._give(1, one, result({"of": "another kind"}), [], wrong="kind"))
        if self._chance.random() < 0.5:
            await asyncio.gather(*answers)
        else:
            for answer in answers:
                await answer

    def _draw(self, one: Pending) -> tuple[Answer, list[str]]:
        """An answer, and the outcome and content that the tool call has by it."""
        tool, call = _asked(one)
        word = f"{self._chance.randrange(10**6)}"
        is_graph = one.request.kind == "question"
        if tool == "measure":
            if not is_graph and self._chance.random() < 0.3:
                return failed(word), ["failed", word]
            return result(word), ["success", word]
        if self._chance.random() < 0.7:
            return approve(), ["success", f"sign {call}"]
        return deny(word), ["success", f"refused {call}"] if is_graph else ["denied", word]

    async def _give(self, client: int, one: Pending, answer: Answer, comes_to: list[str], wrong: str = "") -> None:
        """Give an answer until it is known what became of it."""
        request = f"no-{one.request.id}" if wrong == "id" else one.request.id
        if wrong == "kind":
            # What it does not take, whatever it is.
            answer = result(1) if one.request.kind == "approval" else result([1])
            if one.request.kind == "question":
                answer = failed("cannot")
        turn = self._clients[client].turn(one.lane, one.turn_id)
        call: dict[str, Any] = {
            "give": next(self._board.calls),
            "turn": one.turn_id,
            "request": one.request.id,
            "call": _asked(one)[1],
            "comes_to": comes_to,
            "wrong": wrong,
        }
        while True:
            self._ledger.write("give", **call)
            said = "ok"
            try:
                await turn.answer(request, answer)
            except ServiceUnavailable:
                said = "unavailable"
            except AlreadyAnswered:
                said = "already"
            except UnknownRequest:
                said = "unknown"
            except InvalidInput:
                said = "invalid"
            except Exception as error:
                said = f"{type(error).__name__}: {error}"
            self._ledger.write("given", said=said, **call)
            self._board.tally(f"answers {said.partition(':')[0]}")
            if said != "unavailable":
                return
            await asyncio.sleep(_PAUSE_S)


def _asked(one: Pending) -> tuple[str, str]:
    """The tool that waits, and its call."""
    payload = one.request.payload
    return payload.get("ask", one.request.name), payload["call"]
