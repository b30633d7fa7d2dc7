"""The two ways of running a plan: plainly, and through Laneway's steps with nothing kept between them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from pydantic_ai import Agent
from pydantic_ai.messages import ModelMessage
from pydantic_core import to_json

from laneway import Laneway, PydanticAdapter, Settings
from laneway.activities.adapter import read_output
from laneway.errors import TurnFailed

from tests.adapters.scripted import Log, Plan, build, log_of, prompt_of
from tests.support.stepped_lane import SteppedLane


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


@dataclass
class Lane(SteppedLane):
    """A lane of a plan's agent."""

    plan: Plan
    make: Callable[[Plan], Agent[None, Any]] = build

    @cached_property
    def agent(self) -> Agent[None, Any]:
        """The agent, which is the same for all workers: it keeps nothing, as its plan does not change."""
        return self.make(self.plan)

    def adapter(self) -> PydanticAdapter[None, Any]:
        return PydanticAdapter(self.agent, usage_limits=self.plan.usage_limits, stream=self.plan.stream)

    async def run(self) -> list[Ended]:
        """Run all turns: of one each step by a worker of its own, of the next all that leads to a model request."""
        return [await self.turn(turn) for turn in range(len(self.plan.turns))]

    async def turn(self, turn: int) -> Ended:
        here = Ended()
        self.legs = turn % 2 == 1
        token = log_of.set(here.log)
        try:
            record = await self.ask(f"t{turn}", prompt_of(turn))
        finally:
            log_of.reset(token)
        adapter = self.adapter()
        if record.outcome == "failed":
            here.error = (record.error_type or "", record.error_message or "")
        else:
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
