"""A store that writes down what its worker loads, stages, commits and aborts, and what it is refused.

It changes nothing of what the product's store does. `begun` is taken before a load is sent, everything else after the
server's answer: so an attempt whose load began after a line `staged` was sure to be shown what is staged.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from itertools import count
from typing import Any, ClassVar, Protocol, TypeVar

from redis.asyncio import Redis

from laneway.errors import StaleTurn
from laneway.history.endings import Endings
from laneway.history.heads import Fence, LoadedTurn
from laneway.history.open_turns import OpenTurns
from laneway.history.store import HistoryStore

from tests.chaos.ledger import Ledger

__all__ = ["Attempt", "WatchedStore", "attempt_fields", "current_attempt"]

T = TypeVar("T")

_loads = count(1)


@dataclass(frozen=True)
class Attempt:
    """An attempt at a step, and the load that it began with."""

    load: int
    turn: str
    step: int
    attempt: int


_current: ContextVar[Attempt | None] = ContextVar("chaos_attempt", default=None)


def current_attempt() -> Attempt | None:
    """The attempt that the running code belongs to."""
    return _current.get()


def attempt_fields() -> dict[str, object]:
    """The same, as fields of a ledger's line."""
    attempt = _current.get()
    return {} if attempt is None else vars(attempt).copy()


class _Gate(Protocol):
    def here(self, where: str, ledger: Ledger) -> bool: ...


class WatchedStore(HistoryStore):
    """Takes the place of the worker's store. `ledger` and `hold` are the process's."""

    ledger: ClassVar[Ledger]
    hold: ClassVar[_Gate | None] = None

    def __init__(self, redis: Redis, **options: Any) -> None:
        super().__init__(redis, **options)
        self.turns, self.endings = _WatchedTurns(self), _WatchedEndings(self)

    async def noted(
        self,
        kind: str,
        fence: Fence,
        call: Callable[[], Awaitable[T]],
        lines: Callable[[T], Sequence[dict[str, object]]],
        **known: object,
    ) -> T:
        """Write down what comes of a call."""
        if kind in ("staged", "committed") and self.hold is not None:
            self.hold.here("stage", self.ledger)
        who = {"turn": fence.turn_id, "step": fence.step, "attempt": fence.attempt} | attempt_fields()
        try:
            result = await call()
        except StaleTurn as error:
            self.ledger.write("refused", what=kind, error=type(error).__name__, **known, **who)
            raise
        for line in lines(result):
            self.ledger.write(kind, **line, **who)
        return result


class _WatchedTurns(OpenTurns):
    def __init__(self, store: WatchedStore) -> None:
        super().__init__(store.link)
        self._noted, self._ledger = store.noted, store.ledger

    async def load(self, fence: Fence, **arguments: Any) -> LoadedTurn:
        begun = time.monotonic_ns()
        loaded = await super().load(fence, **arguments)
        _current.set(Attempt(next(_loads), fence.turn_id, fence.step, fence.attempt))
        self._ledger.write("load", begun=begun, **attempt_fields())
        return loaded

    async def stage(self, fence: Fence, name: str, value: bytes, **arguments: Any) -> Any:
        def staged(result: Any) -> list[dict[str, object]]:
            return [{"name": name, "first": result[0] is None}]

        call = super().stage
        return await self._noted("staged", fence, lambda: call(fence, name, value, **arguments), staged, name=name)

    async def note(self, fence: Fence, *, fields: Any = (), events: Any = ()) -> Any:
        names = [name for name, _ in fields]

        def written(held: Any) -> list[dict[str, object]]:
            return [{"name": name, "first": before is None} for name, before in zip(names, held, strict=True)]

        call = super().note
        known = {"name": names[0]} if names else {}
        kind = "staged" if names else "published"
        return await self._noted(kind, fence, lambda: call(fence, fields=fields, events=events), written, **known)


class _WatchedEndings(Endings):
    def __init__(self, store: WatchedStore) -> None:
        super().__init__(store.link)
        self._noted = store.noted

    async def commit(self, fence: Fence, **arguments: Any) -> Any:
        call = super().commit
        return await self._noted("committed", fence, lambda: call(fence, **arguments), lambda r: [{"number": r.number}])

    async def abort(self, fence: Fence, *arguments: Any, **options: Any) -> Any:
        call = super().abort
        return await self._noted(
            "aborted", fence, lambda: call(fence, *arguments, **options), lambda r: [{"outcome": r.outcome}]
        )
