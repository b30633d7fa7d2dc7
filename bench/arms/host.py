"""The process of one arm: reads a call a line, answers a line. `python -m bench.arms.host NAME PLACE`.

The answer is JSON: `{"value": …}`, or `{"failure": …}` where the arm could not do it.
"""

from __future__ import annotations

import asyncio
import inspect
import json
import os
import sys
import time
import traceback
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from laneway import Settings

from bench.arms.base import Arm, Place, load
from bench.arms.sampling import sampling

__all__: list[str] = []

_TURN_TIMEOUT_SECONDS = 20.0


class Host:
    """What every arm can do besides what it does itself."""

    def __init__(self, arm: Arm) -> None:
        self._arm = arm

    async def call(self, what: str, arguments: dict[str, Any]) -> object:
        own: Any = getattr(self, what, None) or getattr(self._arm, what)
        answer = own(**arguments)
        return await answer if inspect.isawaitable(answer) else answer

    async def offers(self, what: str) -> bool:
        """Whether the arm can be asked for that."""
        return hasattr(self._arm, what)

    async def turns(self, lane: str, count: int, kind: str = "turn", limit_seconds: float = 3600) -> dict[str, Any]:
        """Turns one after the other: how long each took, and why they ended early where they did.

        Args:
            lane: of which conversation.
            count: how many.
            kind: `turn`, `tool_turn` or `short_turn`.
            limit_seconds: begin none after so long.
        """
        turn: Callable[[str], Awaitable[None]] = getattr(self._arm, kind)
        taken: list[float] = []
        ends_at = time.perf_counter() + limit_seconds
        while len(taken) < count and time.perf_counter() < ends_at:
            begun = time.perf_counter()
            try:
                async with asyncio.timeout(_TURN_TIMEOUT_SECONDS):
                    await turn(lane)
            except Exception as error:
                return {"seconds": taken, "failure": _said(error)}
            taken.append(time.perf_counter() - begun)
        return {"seconds": taken, "failure": None}

    async def costs(self, lane: str, count: int, kind: str = "turn") -> dict[str, Any]:
        """Turns one after the other: the processor time that each took here, and of it each library's share."""
        await self.turns(lane, 2, kind)
        with sampling() as found:
            played = await self.turns(lane, count, kind)
        return {"failure": played["failure"], **vars(found)}

    async def together(self, lanes: list[str], count: int) -> float:
        """`count` turns on each of many lanes at once: how long all took."""

        async def play(lane: str) -> None:
            for _ in range(count):
                await self._arm.turn(lane)

        begun = time.perf_counter()
        async with asyncio.TaskGroup() as group:  # where one fails, none goes on behind the next measure's back
            for lane in lanes:
                group.create_task(play(lane))
        return time.perf_counter() - begun


def _said(error: Exception) -> str:
    if isinstance(error, ExceptionGroup):
        return f"{len(error.exceptions)} of them: {_said(error.exceptions[0])}"
    if isinstance(error, TimeoutError):
        return f"a turn was not answered within {_TURN_TIMEOUT_SECONDS:g} s"
    cause = error.__cause__
    return f"{type(error).__name__}: {error}" + ("" if cause is None else f": {type(cause).__name__}: {cause}")


async def main() -> None:
    # What libraries print must not be taken for an answer.
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w", buffering=1)
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    calls = asyncio.StreamReader(limit=2**24)
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(calls), sys.stdin)

    def say(answer: dict[str, object]) -> None:
        answers.write(json.dumps(answer) + "\n")

    name, place = sys.argv[1], json.loads(sys.argv[2])
    try:
        make = load(name)
        settings = Settings.model_validate(place["settings"])
        async with make(Place(settings, Path(place["folder"]))) as arm:
            say({"value": "ready"})
            host = Host(arm)
            async for line in calls:
                call = json.loads(line)
                try:
                    say({"value": await host.call(call["what"], call["with"])})
                except Exception as error:
                    traceback.print_exc()
                    say({"failure": _said(error)})
    except Exception as error:
        traceback.print_exc()
        say({"failure": _said(error)})


if __name__ == "__main__":
    asyncio.run(main())
