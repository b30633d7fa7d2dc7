"""A lane whose steps are taken one by one, by workers that know nothing of each other and die where a test says so."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any
from uuid import uuid4

from redis.asyncio import Redis
from temporalio.testing import ActivityEnvironment

from laneway.activities.agents import Agents
from laneway.activities.steps import Steps
from laneway.activities.wire import StepInput, StepOutcome
from laneway.history.cache import HistoryCache
from laneway.history.endings import Endings
from laneway.history.lanes import LaneKey
from laneway.history.open_turns import OpenTurns
from laneway.history.records import TurnRecord
from laneway.history.store import HistoryStore

__all__ = ["Died", "DyingStore", "SteppedLane"]


class Died(BaseException):
    """The worker was killed."""


class DyingStore(HistoryStore):
    """Dies once, before or after the n-th of its writes.

    Attributes:
        left: how many writes are done before; None for no end.
        after: whether the last one is done.
        writes: how many it was asked for.
    """

    def __init__(self, redis: Redis, *, prefix: str, left: int | None, after: bool) -> None:
        super().__init__(redis, prefix=prefix)
        self.left = left
        self.after = after
        self.died = False
        self.writes = 0
        self.turns, self.endings = _DyingTurns(self), _DyingEndings(self)

    async def write(self, write: Callable[[], Any]) -> Any:
        self.writes += 1
        if self.left is None:
            return await write()
        if self.died:
            raise Died
        self.left -= 1
        if self.left >= 0:
            return await write()
        self.died = True
        if self.after:
            await write()
        raise Died


class _DyingTurns(OpenTurns):
    def __init__(self, store: DyingStore) -> None:
        super().__init__(store.link)
        self._write = store.write

    async def stage(self, *args: Any, **kwargs: Any) -> Any:
        return await self._write(lambda: OpenTurns.stage(self, *args, **kwargs))

    async def note(self, fence: Any, *, fields: Any = (), events: Any = ()) -> Any:
        def write() -> Any:
            return OpenTurns.note(self, fence, fields=fields, events=events)

        return await (self._write(write) if fields else write())

    async def keep(self, *args: Any, **kwargs: Any) -> Any:
        return await self._write(lambda: OpenTurns.keep(self, *args, **kwargs))


class _DyingEndings(Endings):
    def __init__(self, store: DyingStore) -> None:
        super().__init__(store.link)
        self._write = store.write

    async def commit(self, *args: Any, **kwargs: Any) -> Any:
        return await self._write(lambda: Endings.commit(self, *args, **kwargs))


@dataclass
class SteppedLane:
    """A lane of an agent, whose adapter is made anew for each step.

    Attributes:
        plan: what the agent is made from.
        deaths: for each attempt at a step, before or after which of its writes it dies; None where it does not.
        version: how many turns have been committed.
        writes: how many writes each attempt was asked for, whether it came to an end or not.
        survivors: how many attempts that were to die came to an end before that.
        legs: whether a worker takes all steps up to the next model request. Else each stops after a step.
        activities: how many activities it took, whatever the number of attempts.
    """

    redis: Redis
    prefix: str
    plan: Any
    conversation: str = field(default_factory=lambda: uuid4().hex)
    deaths: list[tuple[int, bool] | None] = field(default_factory=list)
    version: int = 0
    writes: list[int] = field(default_factory=list)
    survivors: int = 0
    legs: bool = False
    activities: int = 0

    def adapter(self) -> Any:
        """The agent's adapter, new."""
        raise NotImplementedError

    @cached_property
    def key(self) -> LaneKey:
        return Agents({"agent": self.adapter()}).lane(self.conversation, "agent")

    @property
    def store(self) -> HistoryStore:
        return HistoryStore(self.redis, prefix=self.prefix)

    async def messages(self) -> list[Any]:
        """The lane's native messages."""
        head = await self.store.head(self.key)
        adapter = self.adapter()
        return [adapter.decode(entry.payload) for entry in await self.store.history(self.key, head.checkpoint)]

    async def ask(self, turn_id: str, prompt: Any) -> TurnRecord:
        """Take a turn, each of its activities by a worker of its own."""
        return await self.take(turn_id, self.adapter().encode_prompt(prompt))

    async def take(self, turn_id: str, prompt: bytes) -> TurnRecord:
        """The same, for a prompt as it is stored."""
        key = self.key
        await self.store.inputs.put(key, turn_id, digest="d", prompt=prompt)
        request = StepInput(key.conversation, key.agent, key.contract, turn_id, "d", 0, self.version)
        attempt = 1
        while True:
            outcome = await self._attempt(request, attempt)
            if outcome is None:
                attempt += 1
                continue
            self.activities += 1
            if outcome.s != "next":
                break
            request, attempt = replace(request, n=(outcome.n or request.n) + 1, f=outcome.f), 1
        record = await self.store.record(key, turn_id)
        assert record is not None
        self.version += record.outcome == "committed"
        return record

    async def _attempt(self, request: StepInput, attempt: int) -> StepOutcome | None:
        left, after = (self.deaths.pop(0) if self.deaths else None) or (None, False)
        store = DyingStore(self.redis, prefix=self.prefix, left=left, after=after)
        agents = Agents({"agent": self.adapter()})
        environment = ActivityEnvironment()
        info = ActivityEnvironment.default_info()
        fields = {name: getattr(info, name) for name in info.__dataclass_fields__}
        environment.info = info.__class__(**{**fields, "attempt": attempt})
        steps = Steps(store, agents, cache=HistoryCache(10_000_000))
        if not self.legs:
            environment.worker_shutdown()
        try:
            outcome = await environment.run(steps.step, request)
        except Died:
            return None
        finally:
            self.writes.append(store.writes)
            await agents.close()
        self.survivors += left is not None
        return outcome
