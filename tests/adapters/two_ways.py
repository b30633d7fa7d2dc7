"""The two ways of running a plan: plainly, and through Laneway's steps with nothing kept between them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any
from uuid import uuid4

from pydantic_ai import Agent
from pydantic_ai.messages import ModelMessage
from pydantic_core import to_json
from redis.asyncio import Redis
from temporalio.testing import ActivityEnvironment

from laneway import Laneway, PydanticAdapter, Settings
from laneway.activities.adapter import read_output
from laneway.activities.agents import Agents
from laneway.activities.steps import Steps
from laneway.activities.wire import StepInput
from laneway.errors import TurnFailed
from laneway.history.cache import HistoryCache
from laneway.history.lanes import LaneKey
from laneway.history.records import TurnRecord
from laneway.history.store import HistoryStore

from tests.adapters.scripted import Log, Plan, build, log_of, prompt_of


@dataclass
class Ended:
    """How a turn ended.

    Attributes:
        error: type and message of what it failed with; None where it did not.
        output: the output as JSON.
        kind: the output's type.
        usage: what it used; of a failed turn nothing.
        messages: the conversation's messages after it.
        log: what the agent's code and model were given.
    """

    error: tuple[str, str] | None = None
    output: str | None = None
    kind: str | None = None
    usage: dict[str, int] = field(default_factory=dict)
    messages: list[ModelMessage] = field(default_factory=list)
    log: Log = field(default_factory=list)


_USAGE = ("requests", "tool_calls", "input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens")


async def run_plainly(plan: Plan) -> list[Ended]:
    """Run a plan's turns with `agent.run`, each on the messages of those that succeeded before."""
    agent = build(plan)
    ended: list[Ended] = []
    history: list[ModelMessage] = []
    for turn in range(len(plan.turns)):
        here = Ended()
        ended.append(here)
        token = log_of.set(here.log)
        try:
            result = await agent.run(
                prompt_of(turn),
                message_history=list(history),
                usage_limits=plan.usage_limits,
                conversation_id="c",
                event_stream_handler=_drain if plan.stream else None,
            )
        except Exception as error:
            here.error = (type(error).__name__, str(error) or repr(error))
        else:
            history = result.all_messages()
            here.output, here.kind = to_json(result.output).decode(), type(result.output).__name__
            here.usage = {name: getattr(result.usage, name) for name in _USAGE}
        finally:
            log_of.reset(token)
        here.messages = list(history)
    return ended


async def _drain(ctx: Any, events: Any) -> None:
    async for _ in events:
        pass


class Died(BaseException):
    """The worker was killed."""


class DyingStore(HistoryStore):
    """Dies once, before or after the n-th of its writes.

    Attributes:
        left: how many writes are done before; None for no end.
        after: whether the last one is done.
    """

    def __init__(self, redis: Redis, *, prefix: str, left: int | None, after: bool) -> None:
        super().__init__(redis, prefix=prefix)
        self.left = left
        self.after = after
        self.died = False

    async def _write(self, write: Callable[[], Any]) -> Any:
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

    async def stage(self, *args: Any, **kwargs: Any) -> Any:
        return await self._write(lambda: HistoryStore.stage(self, *args, **kwargs))

    async def note(self, fence: Any, *, fields: Any = (), events: Any = ()) -> Any:
        def write() -> Any:
            return HistoryStore.note(self, fence, fields=fields, events=events)

        return await (self._write(write) if fields else write())

    async def commit(self, *args: Any, **kwargs: Any) -> Any:
        return await self._write(lambda: HistoryStore.commit(self, *args, **kwargs))


@dataclass
class Lane:
    """A lane of a plan's agent, whose steps are taken one by one by workers that know nothing of each other.

    Attributes:
        deaths: for each attempt at a step, before or after which of its writes it dies; None where it does not.
    """

    redis: Redis
    prefix: str
    plan: Plan
    make: Callable[[Plan], Agent[None, Any]] = build
    conversation: str = field(default_factory=lambda: uuid4().hex)
    deaths: list[tuple[int, bool] | None] = field(default_factory=list)
    version: int = 0

    @cached_property
    def agent(self) -> Agent[None, Any]:
        """The agent, which is the same for all workers: it keeps nothing, as its plan does not change."""
        return self.make(self.plan)

    def adapter(self) -> PydanticAdapter[None, Any]:
        return PydanticAdapter(self.agent, usage_limits=self.plan.usage_limits, stream=self.plan.stream)

    @cached_property
    def key(self) -> LaneKey:
        return Agents({"agent": self.adapter()}).lane(self.conversation, "agent")

    @property
    def store(self) -> HistoryStore:
        return HistoryStore(self.redis, prefix=self.prefix)

    async def run(self) -> list[Ended]:
        """Run all turns, each step by a worker of its own."""
        return [await self.turn(turn) for turn in range(len(self.plan.turns))]

    async def turn(self, turn: int) -> Ended:
        here = Ended()
        token = log_of.set(here.log)
        try:
            record = await self._take(f"t{turn}", self.adapter().encode_prompt(prompt_of(turn)))
        finally:
            log_of.reset(token)
        adapter = self.adapter()
        if record.outcome == "failed":
            here.error = (record.error_type or "", record.error_message or "")
        else:
            self.version += 1
            output: Any
            if record.output_in_history:
                assert record.checkpoint is not None
                entry = await self.store.entry(self.key, record.checkpoint)
                output = adapter.output_of(adapter.decode(entry.payload))
            else:
                output = read_output(adapter, record.output, record.output_type)
            here.output, here.kind = to_json(output).decode(), type(output).__name__
            here.usage = {name: getattr(record.usage, name) for name in _USAGE}
        here.messages = await self.messages()
        return here

    async def messages(self) -> list[ModelMessage]:
        head = await self.store.head(self.key)
        adapter = self.adapter()
        return [adapter.decode(entry.payload) for entry in await self.store.history(self.key, head.checkpoint)]

    async def _take(self, turn_id: str, prompt: bytes) -> TurnRecord:
        key = self.key
        await self.store.put_input(key, turn_id, digest="d", prompt=prompt)
        step, attempt = 0, 1
        while True:
            request = StepInput(key.conversation, key.agent, key.contract, turn_id, "d", step, self.version)
            outcome = await self._attempt(request, attempt)
            if outcome is None:
                attempt += 1
                continue
            if outcome != "next":
                break
            step, attempt = step + 1, 1
        record = await self.store.record(key, turn_id)
        assert record is not None
        return record

    async def _attempt(self, request: StepInput, attempt: int) -> str | None:
        left, after = (self.deaths.pop(0) if self.deaths else None) or (None, False)
        store = DyingStore(self.redis, prefix=self.prefix, left=left, after=after)
        agents = Agents({"agent": self.adapter()})
        environment = ActivityEnvironment()
        info = ActivityEnvironment.default_info()
        environment.info = info.__class__(**{**_fields(info), "attempt": attempt})
        steps = Steps(store, agents, cache=HistoryCache(10_000_000))
        try:
            return (await environment.run(steps.step, request)).s
        except Died:
            return None
        finally:
            await agents.close()


def _fields(info: Any) -> dict[str, Any]:
    return {name: getattr(info, name) for name in info.__dataclass_fields__}


async def run_through_temporal(plan: Plan, settings: Settings, conversation_id: str) -> list[Ended]:
    """Run a plan's turns on a lane, with a worker that keeps no history between two steps."""
    log: Log = []
    token = log_of.set(log)
    app = Laneway(
        agents={"agent": PydanticAdapter(build(plan), usage_limits=plan.usage_limits, stream=plan.stream)},
    )
    ended: list[Ended] = []
    settings = settings.model_copy(update={"history_cache_bytes": 0})
    try:
        async with app.worker(settings), app.client(settings) as client:
            conversation = client.conversation(conversation_id)
            for turn in range(len(plan.turns)):
                here = Ended()
                ended.append(here)
                before = len(log)
                try:
                    result = await conversation.ask("agent", prompt_of(turn))
                except TurnFailed as error:
                    here.error = (error.error_type, error.error_message)
                else:
                    here.output, here.kind = to_json(result.output).decode(), type(result.output).__name__
                    here.usage = {name: getattr(result.usage, name) for name in _USAGE}
                here.messages = await conversation.messages("agent")
                here.log = log[before:]
    finally:
        log_of.reset(token)
    return ended
