"""Every argument of what a caller makes is refused where it is given, never in a turn."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain_core.tools import tool
from pydantic_ai import Agent
from pydantic_ai.models.test import TestModel

import laneway
from laneway import (
    AgentProfile,
    Answer,
    ClearToolResultsProcessor,
    Delegation,
    Deny,
    HistoryArchiveSettings,
    HistoryProcessingSettings,
    Hooks,
    Laneway,
    LangChainAdapter,
    LimitWarnerProcessor,
    LocalStack,
    PydanticAdapter,
    RequestBudget,
    RetryPolicy,
    Settings,
    SlidingWindowProcessor,
    SummarizationProcessor,
    Telemetry,
    TextWindow,
    create_sliding_window_processor,
    create_summarization_processor,
    deny,
    failed,
)
from laneway.activities.retries import RetryStep, TransientFailure, decide
from laneway.errors import ConfigurationError, InvalidArgument, InvalidInput, LanewayError
from laneway.history.processors import ProcessorChain
from laneway.history.scopes import CompactionSettings
from laneway.langgraph import RedisSaver

from tests.langchain.graphs import ScriptedModel, said
from tests.support.bench import Bench


def model() -> ScriptedModel:
    return ScriptedModel(answer=lambda messages: said("fine"))


@tool
def look() -> str:
    """Look."""
    return "seen"


GRAPH: Any = create_agent(model(), [look])
AGENT = Agent("test", name="agent")
THING = object()

SIZE = (42, "100", ("messages", -1), ("messages", True), ("turns", 5), ("fraction", 0), ("tokens", float("nan")), THING)
TOKENS = (0, -1, 1.5, "9", True, THING)
COUNTER = (42, "count", int)
# The last of these is a model with its tools bound, which answers with calls.
MODEL = (42, True, "", " ", b"gpt", ["openai:gpt-5"], TestModel, AGENT, THING, print, model().bind_tools([look]))
FLAG = (1, "yes", None, THING)
OPEN_FLAG = (1, "yes", THING)
DELAY = (1, 1.5, "1s", timedelta(seconds=-1), None, THING)
FUNCTION = (42, "name", THING, str)
LIMIT = (-1, 1.5, "10", True, THING)
TEXT = ("", "  ", 42, b"x", None, THING)
# What may be a registered name too.
HOOK = (42, "", None, [None], [""], THING, SlidingWindowProcessor)
PROCESSOR = (42, [], [42], THING, SlidingWindowProcessor)

WINDOW: Mapping[str, Sequence[object]] = {
    "trigger": (*SIZE, [], [("messages", 5), 7]),
    "keep": SIZE,
    "keep_head": (-1, "2", 1.5, True, THING),
    "max_input_tokens": TOKENS,
    "token_counter": COUNTER,
    "model": MODEL,
}
SUMMARY: Mapping[str, Sequence[object]] = {
    **WINDOW,
    "summarizer": FUNCTION,
    "summary_prompt": (42, "", b"{messages}", "Sum it up.", THING),
    "trim_tokens_to_summarize": TOKENS,
    "on_failure": ("ignore", None, [], True),
    "focus": ("", 42, THING),
}
ADAPTER: Mapping[str, Sequence[object]] = {
    "history": (6, "6", THING),
    "history_archive": ({"threshold_tokens": 9}, True, THING),
    "max_tool_result_bytes": LIMIT,
    "budget": (1000, {}, THING),
    "retry_policy": (3, THING),
    "stream": OPEN_FLAG,
    "hooks": ([], print, THING),
    "history_processor": ("trim", *PROCESSOR),
    "history_processor_condition": (True, "big", THING),
    "delegates": (["reader"], {"reader": "reader"}, {"no good": Delegation("reader", "reads")}, THING),
}


@dataclass(frozen=True)
class Made:
    """Something that a caller makes.

    Attributes:
        make: makes it.
        base: what it is given in any case.
        wrong: what cannot work, by argument.
        instead: what is left out of `base` where an argument is given, since only one of the two may be.
        free: arguments of which anything will do.
    """

    make: Callable[..., Any]
    base: Mapping[str, Any]
    wrong: Mapping[str, Sequence[object]]
    instead: Mapping[str, str] = field(default_factory=dict)
    free: frozenset[str] = frozenset()


MADE: Mapping[str, Made] = {
    "SlidingWindowProcessor": Made(SlidingWindowProcessor, {}, WINDOW),
    "create_sliding_window_processor": Made(
        create_sliding_window_processor, {}, {**WINDOW, "trigger": SIZE, "keep": SIZE}
    ),
    "SummarizationProcessor": Made(SummarizationProcessor, {"model": "test"}, SUMMARY, {"summarizer": "model"}),
    "create_summarization_processor": Made(
        create_summarization_processor,
        {"model": "test"},
        {
            **{name: values for name, values in SUMMARY.items() if name != "focus"},
            "on_failure": ("ignore", None, [], True),
        },
        {"summarizer": "model"},
    ),
    "LimitWarnerProcessor": Made(
        LimitWarnerProcessor,
        {"max_requests": 5, "max_context_tokens": 9},
        {
            "max_requests": TOKENS,
            "max_context_tokens": TOKENS,
            "warning_threshold": (0, 1.2, "0.7", True, float("nan"), None, THING),
            "critical_remaining_requests": (-1, 1.5, "3", True, None, THING),
            "token_counter": COUNTER,
        },
    ),
    "ClearToolResultsProcessor": Made(
        ClearToolResultsProcessor,
        {},
        {
            **{name: WINDOW[name] for name in ("trigger", "max_input_tokens", "token_counter", "model")},
            "keep": (-1, 1.5, "3", True, None, ("messages", 3), THING),
            "exclude_tools": ("look", 42, None, [42], {"look": 1}, THING),
        },
    ),
    "ProcessorChain": Made(ProcessorChain, {}, {"processors": ([], ["trim"], [42], 42, None, THING)}),
    "HistoryArchiveSettings": Made(
        HistoryArchiveSettings,
        {},
        dict.fromkeys(("threshold_tokens", "preserve_recent_tokens", "minimum_reduction_tokens"), (*LIMIT, None)),
    ),
    "TextWindow": Made(TextWindow, {}, {"messages": (True, "6", 1.5, None, THING)}),
    "RequestBudget": Made(
        RequestBudget,
        {},
        dict.fromkeys(("max_request_tokens", "max_total_input_tokens", "request_limit", "tool_call_limit"), LIMIT),
    ),
    "RetryPolicy": Made(
        RetryPolicy,
        {},
        {
            "max_attempts": (0, -1, 1.5, "5", True, None, THING),
            "first_delay": DELAY,
            "backoff": (0, -2, "2", True, float("nan"), float("inf"), None, THING),
            "max_delay": DELAY,
        },
    ),
    "Hooks": Made(
        Hooks,
        {},
        {
            **dict.fromkeys(
                (
                    *("user_prompt_submit", "before_model_request", "after_model_request", "before_tool"),
                    *("after_tool", "turn_committed", "turn_failed", "turn_cancelled"),
                ),
                HOOK,
            ),
            "timeout": (0, 10, "10", None, timedelta(0), timedelta(seconds=-1), THING),
        },
    ),
    "Deny": Made(Deny, {}, {"reason": TEXT}),
    "AgentProfile": Made(
        AgentProfile,
        {},
        {
            "model": (42, True, "", b"gpt", ["openai:gpt-5"], {}, TestModel),
            "model_settings": (42, "temperature", ["temperature"], {"stop": THING}, {"temperature": {1, 2}}),
            "instructions": (42, b"Be kind.", ["Be kind."], THING),
            "tools": (42, "look", {"look"}, look, THING),
            "mcp": (42, "files", {"files"}, THING),
            "history_processing": (SlidingWindowProcessor(), "trim", 42, THING),
            "budget": (42, {}, THING),
            "hooks": ([], print, THING),
        },
    ),
    "HistoryProcessingSettings": Made(
        HistoryProcessingSettings, {}, {"processor": ("", *PROCESSOR), "condition": ("", True, THING)}
    ),
    "CompactionSettings": Made(
        CompactionSettings, {}, {"mode": ("remote", "", True, [], THING), "threshold": (0, -1, 1.5, "9", True, THING)}
    ),
    "Delegation": Made(
        Delegation,
        {"agent": "reader", "description": "reads"},
        {
            "agent": ("", " x", 42, None, THING),
            "description": TEXT,
            "timeout": (0, -1, "60", True, None, float("nan"), float("inf"), timedelta(0), timedelta.max, THING),
            "max_depth": (0, 101, 1.5, "5", True, None, THING),
            "max_concurrency": (0, 33, 1.5, "4", True, None, THING),
            "budget": (42, {}, THING),
            "keep": FLAG,
            "on_failure": ("ignore", None, [], THING),
            "max_turns": (0, 1001, 1.5, "8", True, None, THING),
            "tool_name": ("", "a b", "x" * 65, 42, THING),
            "parameters": ("object", 42, [], {"type": "array"}, {"type": "object", "x": THING}),
        },
    ),
    "Telemetry": Made(
        Telemetry,
        {},
        {"tracer_provider": (42, "global", THING), "meter_provider": (42, "global", THING), "include_content": FLAG},
    ),
    "Answer": Made(
        Answer,
        {"kind": "denied"},
        {"kind": ("maybe", None, [], THING), "arguments": (42, "x", ["x"], THING), "reason": (42, b"no", THING)},
        free=frozenset({"value"}),
    ),
    "deny": Made(deny, {}, {"reason": (42, b"no", THING)}),
    "failed": Made(failed, {}, {"reason": (42, b"no", THING)}),
    "Laneway": Made(
        Laneway,
        {"agents": {"agent": PydanticAdapter(AGENT)}},
        {
            "agents": ({}, [], 42, {"agent": AGENT}, {"": PydanticAdapter(AGENT)}, {7: PydanticAdapter(AGENT)}, THING),
            "hooks": ([], print, Hooks(before_tool="registered nowhere"), THING),
            "telemetry": (True, "on", THING),
        },
    ),
    "LocalStack": Made(
        LocalStack,
        {},
        {
            "data_dir": (42, b"data", THING),
            "settings": (42, "x", ["x"], {"nothing": 1}, {"queue_limit": 0}, {"redis_url": "redis://x"}, THING),
        },
    ),
    "PydanticAdapter": Made(
        PydanticAdapter,
        {"agent": AGENT},
        {
            **ADAPTER,
            "agent": (42, "openai:gpt-5", Agent(), TestModel(), GRAPH, THING),
            "deps_factory": FUNCTION,
            "usage_limits": (42, {}, RequestBudget(), THING),
        },
        free=frozenset({"deps"}),
    ),
    "LangChainAdapter": Made(
        LangChainAdapter,
        {"graph": GRAPH},
        {
            **ADAPTER,
            "graph": (42, "graph", model(), AGENT, THING),
            "messages_key": ("", "nothing", 42, None, [], THING),
            "model_nodes": ("nothing", ["nothing"], 42, [42], {"model": 1}, THING),
            "config": (42, "x", ["x"], THING),
            "context_factory": FUNCTION,
            "output_key": ("", "nothing", 42, [], THING),
            "allowed_types": (42, "Decimal", ["Decimal"], [("decimal", 42)], None, THING),
            "contract": (42, "x", ["x"], {"x": THING}, THING),
            "binds_reasoning": OPEN_FLAG,
        },
        free=frozenset({"context"}),
    ),
    "RedisSaver": Made(
        RedisSaver,
        {"url": "redis://localhost:1"},
        {
            "client": (42, "redis://localhost", THING),
            "async_client": (42, "redis://localhost", THING),
            "url": (42, "", "localhost:6379", b"redis://localhost", THING),
            "prefix": ("", "a{b", 42, None, b"x", THING),
            "ttl": (42, "1h", timedelta(0), timedelta(seconds=-1), THING),
            "refresh_on_read": FLAG,
            "allowed_types": (42, "Decimal", ["Decimal"], [("decimal", 42)], None, THING),
            "serde": (42, "json", THING),
            "digest_key": (42, "secret", b"x" * 65, None, THING),
        },
    ),
}

NOT_MADE = {
    # What is told, and is only read.
    *("AfterModelRequest", "AfterTool", "BeforeModelRequest", "BeforeTool", "TurnEnd", "UserPromptSubmit"),
    *("CheckpointRef", "CompactionReport", "EventKind", "Headroom", "LaneEvent", "LaneStatus", "TurnRecord"),
    *("HistoryGroup", "HistoryOrigin", "HistoryProcessorContext", "HistoryProcessorState", "TurnResult", "TurnUsage"),
    *("GraphProfile", "Pending", "PendingRequest"),
    # Made by a client: what it is given is below.
    *("Conversation", "LanewayClient", "Turn"),
    # Of which anything will do: what a framework takes, or what it takes of it; and settings, which are below.
    *("Edit", "approve", "Settings"),
    # Shapes of callables, and errors.
    *("HistoryProcessor", "HistoryProcessorCondition"),
    *("BudgetExceeded", "HistoryProcessingError", "HistoryProcessingValidationError", "LanewayError"),
    *("RequestTooLarge", "ToolOutputTooLarge", "TurnDenied"),
}

CASES = [
    pytest.param(made, argument, value, id=f"{name}-{argument}-{number}")
    for name, made in MADE.items()
    for argument, values in made.wrong.items()
    for number, value in enumerate(values)
]


@pytest.mark.parametrize(("made", "argument", "value"), CASES)
def test_what_cannot_work_is_refused_where_it_is_given(made: Made, argument: str, value: object) -> None:
    """By an error of Laneway's own that is more than its type, and is not of the interpreter's making."""
    base = {name: one for name, one in made.base.items() if name != made.instead.get(argument)}
    with pytest.raises((ConfigurationError, InvalidInput)) as refused:
        made.make(**base | {argument: value})
    assert len(str(refused.value)) > 30


@pytest.mark.parametrize("name", MADE)
def test_no_argument_is_left_out(name: str) -> None:
    """An argument that is added has to say what it does not take, here."""
    made = MADE[name]
    parameters = set(inspect.signature(made.make).parameters)
    assert parameters == set(made.wrong) | made.free


def test_what_callers_make_is_all_here() -> None:
    """A name that is exported says here whether callers make it."""
    here = set(MADE)
    assert set(laneway.__all__) - here == NOT_MADE
    assert here & NOT_MADE == set()


@pytest.mark.parametrize("name", MADE)
def test_what_is_right_is_taken(name: str) -> None:
    """So that the table refuses for the argument that it is about."""
    if name not in ("Deny", "ProcessorChain", "failed"):
        MADE[name].make(**MADE[name].base)


def test_the_error_is_of_both_kinds_that_callers_look_for() -> None:
    """A `ValueError` for who thinks of Python's, a `LanewayError` for who catches what Laneway raises."""
    with pytest.raises(InvalidArgument, match=r"model is 42 \(int\): give a model's name") as refused:
        SummarizationProcessor(42)
    assert isinstance(refused.value, ValueError)
    assert isinstance(refused.value, LanewayError)


@pytest.mark.parametrize("name", [name for name in Settings.model_fields if name != "redis_url"])
@pytest.mark.parametrize("value", [THING, [], float("nan")], ids=["thing", "list", "nan"])
def test_every_setting_refuses_what_is_none(name: str, value: Any) -> None:
    with pytest.raises(ConfigurationError, match=f"LANEWAY_{name.upper()}"):
        Settings(**{name: value})


async def test_what_goes_with_a_call_is_refused_before_anything_is_sent(bench: Bench) -> None:
    client: Any = await bench.client({"agent": PydanticAdapter(AGENT)})
    wrong: list[Callable[[], Any]] = [
        lambda: client.conversation("c", budget=42),
        lambda: client.history(enabled="yes"),
        lambda: client.history(profile=42),
        lambda: client.history(hooks=[print]),
        lambda: client.history(processor=42),
        lambda: client.history(processor_condition=True),
        lambda: client.history(compaction_mode="remote"),
        lambda: client.history(compaction_threshold=0),
        lambda: client.scope(profile=42),
        lambda: client.scope(hooks=[print]),
    ]
    for make in wrong:
        with pytest.raises((ConfigurationError, InvalidInput)):
            make()
    conversation = client.conversation("c")
    for options in ({"budget": 42}, {"profile": 42}, {"cancel_waiting": "yes"}):
        with pytest.raises(InvalidInput, match=next(iter(options))):
            await conversation.submit("agent", "hello", **options)
    app: Any = Laneway(agents={"agent": PydanticAdapter(AGENT)})
    for open_it in (app.worker, app.client):
        with pytest.raises(ConfigurationError, match="settings is 42"):
            async with open_it(42):
                pass


def test_a_policy_with_many_attempts_waits_its_longest_delay() -> None:
    """However often: a delay that would be longer than any duration is the longest one that the policy has."""
    policy = RetryPolicy(max_attempts=5_000)
    failure = TransientFailure(ValueError("busy"))
    attempts: Any = [None] * 4_000
    assert decide(failure, policy=policy, failed=attempts) == RetryStep(policy.max_delay, counts=True)
    assert [policy.delay_after(n).total_seconds() for n in (1, 2, 3, 7)] == [1, 2, 4, 60]
