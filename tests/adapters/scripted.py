"""Scripted agents: what hypothesis draws, and the agent that is built from it.

A plan is data. The agent built from it has no state of its own, so that it can be built again for every step; its model
finds in the messages which answer is next. What tools, validators, instructions and the model are given is written down
in a log, which is how two ways of running the same plan are compared.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field, fields
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any, Literal

from hypothesis import strategies as st
from pydantic import BaseModel
from pydantic_ai import Agent, BinaryContent, FunctionToolset, ModelRetry, RunContext, ToolReturn
from pydantic_ai.exceptions import ToolFailed
from pydantic_ai.messages import (
    ImageUrl,
    ModelMessage,
    ModelMessagesTypeAdapter,
    ModelResponse,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    UserPromptPart,
)
from pydantic_ai.models.function import AgentInfo, DeltaToolCall, FunctionModel
from pydantic_ai.output import NativeOutput, PromptedOutput, TextOutput, ToolOutput
from pydantic_ai.tools import ToolDefinition
from pydantic_ai.usage import RunUsage, UsageLimits

Output = Literal["text", "tool", "native", "prompted", "function", "text_function", "union", "either"]
Log = list[tuple[Any, ...]]

log_of: ContextVar[Log] = ContextVar("log")
"""Where the run at hand writes down what it sees."""


@dataclass(frozen=True)
class Call:
    """A tool call that the model makes."""

    tool: str
    args: Mapping[str, Any] | str = field(default_factory=dict)
    id: str = "c0"


@dataclass(frozen=True)
class Reply:
    """One answer of the model."""

    calls: tuple[Call, ...] = ()
    text: str | None = None
    thinking: str | None = None


@dataclass(frozen=True)
class Plan:
    """An agent and what is asked of it."""

    output: Output
    turns: tuple[tuple[Reply, ...], ...]
    retries: int = 1
    output_retries: int = 1
    rejections: int = 0
    validator: bool = False
    instructions: Literal["none", "static", "dynamic"] = "none"
    system_prompt: Literal["none", "static", "dynamic"] = "none"
    end_strategy: Literal["early", "graceful", "exhaustive"] = "graceful"
    limits: tuple[tuple[str, int], ...] = ()
    stream: bool = False

    @property
    def usage_limits(self) -> UsageLimits | None:
        return UsageLimits(**dict(self.limits)) if self.limits else None  # type: ignore[arg-type]


class Answer(BaseModel):
    """A structured output."""

    city: str
    degrees: int


class Weather(BaseModel):
    city: str
    at: datetime
    degrees: Decimal
    tags: frozenset[str]


@dataclass
class Place:
    name: str
    position: tuple[float, float]


PIXEL = b"\x89PNG\r\n\x1a\n\xff\x00"

# What is seen -----------------------------------------------------------------------------------------------------

_UNSTABLE = frozenset({"timestamp", "run_id", "conversation_id"})


def plain_form(messages: Sequence[ModelMessage]) -> Any:
    """Messages as JSON, without ids of runs and conversations, and without times."""
    return _stripped(ModelMessagesTypeAdapter.dump_python(list(messages), mode="json"))


def _stripped(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _stripped(inner) for key, inner in value.items() if key not in _UNSTABLE}
    if isinstance(value, list):
        return [_stripped(inner) for inner in value]
    return value


def _seen(ctx: RunContext[Any]) -> tuple[Any, ...]:
    usage = _numbers(ctx.usage)
    if ctx.tool_call_id is not None:
        # How many of the calls beside it are over already is a matter of luck.
        del usage["tool_calls"]
    return (
        ctx.retry,
        ctx.max_retries,
        ctx.run_step,
        ctx.prompt,
        usage,
        sorted(ctx.retries.items()),
        ctx.tool_name,
        ctx.tool_call_id,
        ctx.partial_output,
    )


def _numbers(usage: RunUsage) -> dict[str, Any]:
    return {field.name: getattr(usage, field.name) or 0 for field in fields(usage)}


def note(kind: str, ctx: RunContext[Any], *more: Any, messages: bool = True) -> None:
    log_of.get().append((kind, _seen(ctx), more, plain_form(ctx.messages) if messages else None))


# The model --------------------------------------------------------------------------------------------------------


def _turn_and_step(messages: Sequence[ModelMessage]) -> tuple[int, int]:
    turn = step = 0
    for message in messages:
        if isinstance(message, ModelResponse):
            step += 1
        else:
            for part in message.parts:
                if isinstance(part, UserPromptPart) and str(part.content).startswith("turn "):
                    turn, step = int(str(part.content).split()[1]), 0
    return turn, step


def _reply(plan: Plan, messages: Sequence[ModelMessage], info: AgentInfo) -> Reply:
    log_of.get().append(
        (
            "model",
            plain_form(messages),
            sorted(tool.name for tool in info.function_tools),
            sorted(tool.name for tool in info.output_tools),
            info.allow_text_output,
            info.instructions,
        )
    )
    turn, step = _turn_and_step(messages)
    replies = plan.turns[turn]
    return replies[min(step, len(replies) - 1)]


def _model(plan: Plan) -> FunctionModel:
    def whole(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        reply = _reply(plan, messages, info)
        parts: list[Any] = []
        if reply.thinking is not None:
            parts.append(ThinkingPart(reply.thinking))
        if reply.text is not None:
            parts.append(TextPart(reply.text))
        parts.extend(ToolCallPart(call.tool, _arguments(call), call.id) for call in reply.calls)
        return ModelResponse(parts)

    async def pieces(messages: list[ModelMessage], info: AgentInfo):
        reply = _reply(plan, messages, info)
        if reply.text is not None:
            for start in range(0, len(reply.text), 5):
                yield reply.text[start : start + 5]
        for index, call in enumerate(reply.calls):
            arguments = _arguments(call)
            text = arguments if isinstance(arguments, str) else _json(arguments)
            yield {index: DeltaToolCall(name=call.tool, tool_call_id=call.id)}
            yield {index: DeltaToolCall(json_args=text)}
        if reply.text is None and not reply.calls:
            yield ""

    return FunctionModel(whole, stream_function=pieces if plan.stream else None, model_name="scripted")


def _arguments(call: Call) -> Any:
    return call.args if isinstance(call.args, str) else dict(call.args)


def _json(value: Any) -> str:
    import json

    return json.dumps(value)


# The agent --------------------------------------------------------------------------------------------------------


def _shout(text: str) -> str:
    return text.upper()


async def forecast(ctx: RunContext[Any], city: str, degrees: int) -> dict[str, Any]:
    """An output function."""
    note("output function", ctx, city, degrees)
    if degrees < ctx.retry:
        raise ModelRetry(f"too cold: {degrees}")
    return {"city": city, "degrees": degrees, "try": ctx.retry}


def _output_type(output: Output) -> Any:
    match output:
        case "text":
            return str
        case "tool":
            return ToolOutput(Answer, name="final_result")
        case "native":
            return NativeOutput(Answer)
        case "prompted":
            return PromptedOutput(Answer)
        case "function":
            return ToolOutput(forecast, name="final_result")
        case "text_function":
            return TextOutput(_shout)
        case "union":
            return [ToolOutput(Answer, name="final_result"), ToolOutput(int, name="final_number")]
        case "either":
            return [ToolOutput(Answer, name="final_result"), str]


def build(plan: Plan) -> Agent[None, Any]:
    """The agent of a plan, new."""
    agent: Agent[None, Any] = Agent(
        _model(plan),
        output_type=_output_type(plan.output),
        retries={"tools": plan.retries, "output": plan.output_retries},
        end_strategy=plan.end_strategy,
        instructions="Be exact." if plan.instructions == "static" else None,
        system_prompt="You are scripted." if plan.system_prompt == "static" else (),
    )
    if plan.instructions == "dynamic":

        @agent.instructions
        def say(ctx: RunContext[None]) -> str:
            note("instructions", ctx)
            return f"This is step {ctx.run_step}, try {ctx.retry}, after {ctx.usage.requests} requests."

    if plan.system_prompt == "dynamic":

        @agent.system_prompt(dynamic=True)
        def system(ctx: RunContext[None]) -> str:
            note("system prompt", ctx)
            return f"You were asked {str(ctx.prompt)[:6]}."

    if plan.validator:

        @agent.output_validator
        async def check(ctx: RunContext[None], output: Any) -> Any:
            note("validator", ctx, repr(output))
            if ctx.retry < plan.rejections:
                raise ModelRetry(f"not {output!r}, after {ctx.retry}")
            return output

    _add_tools(agent)
    return agent


def _add_tools(agent: Agent[None, Any]) -> None:
    @agent.tool
    async def add(ctx: RunContext[None], a: int, b: int) -> int:
        note("add", ctx, a, b)
        return a + b

    @agent.tool
    def thread(ctx: RunContext[None], text: str = "x") -> str:
        note("thread", ctx, text)
        return text * 2

    @agent.tool
    async def flaky(ctx: RunContext[None], times: int) -> dict[str, Any]:
        note("flaky", ctx, times)
        await asyncio.sleep(0)
        if ctx.retry < times:
            raise ModelRetry(f"again, {ctx.retry} of {times}")
        return {"tries": ctx.retry, "last": ctx.last_attempt}

    @agent.tool(retries=3)
    async def patient(ctx: RunContext[None], times: int) -> int:
        note("patient", ctx, times)
        if ctx.retry < times:
            raise ModelRetry(f"wait, {ctx.retry}")
        return ctx.max_retries

    @agent.tool
    async def failing(ctx: RunContext[None]) -> str:
        note("failing", ctx)
        raise ToolFailed("the thing is broken")

    @agent.tool
    async def boom(ctx: RunContext[None]) -> str:
        note("boom", ctx)
        raise ValueError(f"boom in {ctx.run_step}")

    @agent.tool
    async def weather(ctx: RunContext[None]) -> Weather:
        note("weather", ctx)
        return Weather(
            city="Oslo", at=datetime(2026, 1, 2, 3, tzinfo=UTC), degrees=Decimal("-3.50"), tags=frozenset({"cold"})
        )

    @agent.tool
    async def places(ctx: RunContext[None]) -> list[Place]:
        note("places", ctx)
        return [Place("here", (1.0, 2.5)), Place("there", (0.0, -1.0))]

    @agent.tool
    async def rich(ctx: RunContext[None]) -> ToolReturn:
        note("rich", ctx)
        return ToolReturn(
            return_value={"a": [1, Place("deep", (0.0, 0.5))]},
            content=["look", BinaryContent(PIXEL, media_type="image/png")],
            metadata={"secret": 7, "when": datetime(2026, 1, 2, tzinfo=UTC)},
        )

    @agent.tool
    async def rich_picture(ctx: RunContext[None]) -> ToolReturn:
        note("rich_picture", ctx)
        return ToolReturn(return_value=["one", BinaryContent(PIXEL, media_type="image/png")], content="see above")

    @agent.tool
    async def picture(ctx: RunContext[None]) -> BinaryContent:
        note("picture", ctx)
        return BinaryContent(PIXEL, media_type="image/png", identifier="pixel")

    @agent.tool
    async def album(ctx: RunContext[None]) -> list[Any]:
        note("album", ctx)
        return ["before", ImageUrl("https://example.org/a.png"), {"n": None, "deep": [True, 1.5]}, ("tuple", 2)]

    @agent.tool
    async def raw(ctx: RunContext[None]) -> bytes:
        note("raw", ctx)
        return b"\xff\x00raw"

    @agent.tool
    async def nothing(ctx: RunContext[None]) -> None:
        note("nothing", ctx)

    @agent.tool
    async def queue(ctx: RunContext[None], text: str, idle: bool = False) -> str:
        note("queue", ctx, text, idle)
        ctx.enqueue(text, priority="when_idle" if idle else "asap")
        return "queued"

    @agent.tool(sequential=True)
    async def alone(ctx: RunContext[None], n: int = 1) -> int:
        note("alone", ctx, n)
        return n

    async def sometimes_there(ctx: RunContext[None], tool_def: ToolDefinition) -> ToolDefinition | None:
        note("prepare", ctx, messages=False)
        return tool_def if ctx.run_step != 2 else None

    @agent.tool(prepare=sometimes_there)
    async def sometimes(ctx: RunContext[None]) -> int:
        note("sometimes", ctx)
        return ctx.run_step

    @agent.toolset
    def odd_or_even(ctx: RunContext[None]) -> FunctionToolset[None]:
        async def dynamic(ctx: RunContext[None]) -> str:
            note("dynamic", ctx)
            return f"made for {step}"

        step = ctx.run_step
        return FunctionToolset([dynamic] if step % 2 else [], id="odd")


# Plans ------------------------------------------------------------------------------------------------------------

_IDS = st.sampled_from(["c0", "c1", "c2", "c3", "c4", "c5"])


def _call(tool: str, args: st.SearchStrategy[Any] | None = None) -> st.SearchStrategy[Call]:
    return st.builds(Call, st.just(tool), args if args is not None else st.just({}), _IDS)


_small = st.integers(0, 2)
_CALLS = st.one_of(
    _call("add", st.fixed_dictionaries({"a": _small, "b": _small})),
    _call("add", st.sampled_from(['{"a": 1', '{"a": 1, "b": "x"}', {"a": "one", "b": 2}, {}])),
    _call("thread", st.sampled_from([{}, {"text": "yes"}])),
    _call("flaky", st.fixed_dictionaries({"times": _small})),
    _call("patient", st.fixed_dictionaries({"times": st.integers(0, 3)})),
    _call("failing"),
    st.sampled_from(["weather", "places", "rich", "rich_picture", "picture", "album", "raw", "nothing"]).flatmap(_call),
    _call("queue", st.fixed_dictionaries({"text": st.sampled_from(["psst", "later"]), "idle": st.booleans()})),
    _call("alone", st.fixed_dictionaries({"n": _small})),
    st.sampled_from(["sometimes", "dynamic", "no_such_tool"]).flatmap(_call),
)
_BOOM = _call("boom")


def _answer(output: Output) -> st.SearchStrategy[Reply]:
    """An answer that ends the run, or would if it were right."""
    good = {"city": "Oslo", "degrees": 3}
    bad = st.sampled_from([{"city": "Oslo"}, {"city": "Oslo", "degrees": "warm"}])
    args = st.one_of(st.just(good), st.just(good), bad)
    match output:
        case "text" | "text_function":
            return st.builds(Reply, text=st.sampled_from(["done", "It is done."]))
        case "native" | "prompted":
            return st.builds(Reply, text=args.map(_json))
        case "tool" | "function":
            return st.builds(lambda a, i: Reply((Call("final_result", a, i),)), args, _IDS)
        case "union":
            number = st.builds(lambda i: Reply((Call("final_number", {"response": 7}, i),)), _IDS)
            return st.one_of(st.builds(lambda a, i: Reply((Call("final_result", a, i),)), args, _IDS), number)
        case "either":
            text = st.just(Reply(text="just text"))
            return st.one_of(st.builds(lambda a, i: Reply((Call("final_result", a, i),)), args, _IDS), text)


@st.composite
def _turn(draw: Callable[..., Any], output: Output) -> tuple[Reply, ...]:
    replies: list[Reply] = []
    for _ in range(draw(st.integers(0, 5))):
        kind = draw(st.sampled_from(["calls"] * 8 + ["answer", "mixed", "mixed", "empty", "thought", "boom"]))
        calls = tuple(draw(st.lists(_CALLS, min_size=1, max_size=3)))
        match kind:
            case "calls":
                replies.append(Reply(calls, text=draw(st.sampled_from([None, None, "Let me see."]))))
            case "answer":
                replies.append(draw(_answer(output)))
            case "mixed":
                last = draw(_answer(output))
                both = [*calls, *last.calls]
                replies.append(Reply(tuple(draw(st.permutations(both))), text=last.text))
            case "empty":
                replies.append(Reply())
            case "thought":
                replies.append(Reply(thinking="hm"))
            case _:
                replies.append(Reply((draw(_BOOM), *calls)))
    return (*replies, draw(_answer(output)))


_LIMITS = st.one_of(
    *[st.just(())] * 6,
    st.integers(1, 5).map(lambda n: (("request_limit", n),)),
    st.integers(2, 9).map(lambda n: (("tool_calls_limit", n),)),
    st.integers(100, 600).map(lambda n: (("total_tokens_limit", n),)),
)


@st.composite
def plans(draw: Callable[..., Any], *, stream: bool | None = None, max_turns: int = 3) -> Plan:
    """Agents with what is asked of them."""
    output: Output = draw(
        st.sampled_from(["text", "tool", "native", "prompted", "function", "text_function", "union", "either"])
    )
    turns = tuple(draw(_turn(output)) for _ in range(draw(st.integers(1, max_turns))))
    streamed = draw(st.booleans()) if stream is None else stream
    if streamed:
        # The scripted stream has no thinking.
        turns = tuple(tuple(Reply(r.calls, r.text) for r in turn) for turn in turns)
    return Plan(
        output=output,
        turns=turns,
        retries=draw(st.sampled_from([0, 2, 3, 3])),
        output_retries=draw(st.sampled_from([0, 2, 3, 3])),
        rejections=draw(st.integers(0, 2)),
        validator=draw(st.booleans()),
        instructions=draw(st.sampled_from(["none", "static", "dynamic"])),
        system_prompt=draw(st.sampled_from(["none", "static", "dynamic"])),
        end_strategy=draw(st.sampled_from(["early", "graceful", "exhaustive"])),
        limits=draw(_LIMITS),
        stream=streamed,
    )


def prompt_of(turn: int) -> Any:
    """The prompt of a turn of a plan; one of them has a picture."""
    return f"turn {turn} please" if turn != 1 else f"turn {turn} now"


__all__ = ["Answer", "Call", "Log", "Plan", "Reply", "build", "log_of", "plain_form", "plans", "prompt_of"]
