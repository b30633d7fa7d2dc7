"""Hooks around turns, on real servers."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from pydantic_ai.messages import ToolReturnPart
from redis.asyncio import Redis

from laneway import (
    AfterModelRequest,
    AfterTool,
    BeforeTool,
    Deny,
    Edit,
    Hooks,
    Laneway,
    LanewayClient,
    TurnDenied,
    UserPromptSubmit,
)
from laneway.activities.hooks import HOOK_NAMES
from laneway.errors import ConfigurationError, TurnCancelled, TurnFailed, UnsupportedCapability

from examples.plain_adapter import Message, PlainAdapter
from tests.editing.agents import Recorder, texts_of
from tests.hooks import told
from tests.support.bench import Bench
from tests.support.contents import everything_in, temporal_history


@pytest.fixture(autouse=True)
def asked() -> list[tuple[str, Any]]:
    told.ASKED.clear()
    return told.ASKED


def names(asked: list[tuple[str, Any]]) -> list[str]:
    return [name for name, _ in asked]


async def until_told(asked: list[tuple[str, Any]], count: int) -> None:
    """The caller may hear of a turn's end before its hooks do."""
    async with asyncio.timeout(30):
        while len(asked) < count:
            await asyncio.sleep(0.01)


def remembering(name: str, answer: Callable[[Any], Any] = lambda event: None) -> Callable[[Any], Any]:
    def hook(event: Any) -> Any:
        told.remember(name, event)
        return answer(event)

    hook.__qualname__ = name
    return hook


async def test_hooks_run_in_order_and_each_sees_what_the_one_before_it_made(
    bench: Bench, redis: Redis, conversation_id: str, asked: list[tuple[str, Any]]
):
    """Adapter, application, scopes from the outside in; the edited prompt is everywhere, the other one nowhere."""
    agent = Recorder()
    add = lambda letter: remembering(letter, lambda event: Edit(f"{event.prompt} {letter}"))  # noqa: E731
    app = Laneway(
        agents={"agent": agent.adapter(hooks=Hooks(user_prompt_submit=add("adapter")))},
        hooks=Hooks(user_prompt_submit=[add("app"), add("app2")]),
    )
    outer, inner = app.register("outer", add("outer")), app.register("inner", add("inner"))
    async with app.worker(bench.settings), app.client(bench.settings) as client:
        async with client.history(conversation_id, hooks=Hooks(user_prompt_submit=outer)) as conversation:
            async with client.scope(hooks=Hooks(user_prompt_submit=[inner])):
                result = await client.ask("agent", "xyzzy")
                assert names(asked) == ["adapter", "app", "app2", "outer", "inner"]
            await client.ask("agent", "second")
        assert names(asked)[5:] == ["adapter", "app", "app2", "outer"]
        event = asked[0][1]
        assert isinstance(event, UserPromptSubmit)
        assert (event.conversation, event.agent, event.turn_id) == (conversation_id, "agent", result.turn_id)
        assert agent.sent[0] == ["xyzzy adapter app app2 outer inner"]
        assert texts_of(await conversation.messages("agent"))[0] == "xyzzy adapter app app2 outer inner"
    assert b"xyzzy adapter app" in await everything_in(redis, bench.settings)


async def test_the_original_of_an_edited_prompt_is_nowhere(bench: Bench, redis: Redis, conversation_id: str):
    """While the turn runs, and afterwards: not in the history, the turn, its record or its events."""
    agent = Recorder()
    looked, goes_on = asyncio.Event(), asyncio.Event()

    async def wait(event: Any) -> None:
        looked.set()
        await goes_on.wait()

    hooks = Hooks(user_prompt_submit=lambda event: Edit("redacted"), before_model_request=wait)
    client = await bench.serve({"agent": agent.adapter(hooks=hooks)})
    turn = await client.conversation(conversation_id).submit("agent", "plugh look")
    await looked.wait()
    assert b"plugh" not in await everything_in(redis, bench.settings)
    goes_on.set()
    assert (await turn.result()).output == "re: redacted"
    assert b"plugh" not in await everything_in(redis, bench.settings)
    assert b"plugh" not in await temporal_history(client, client.workflow_id(turn.lane))


async def test_a_denied_turn_leaves_no_trace_in_history(
    bench: Bench, redis: Redis, conversation_id: str, asked: list[tuple[str, Any]]
):
    agent = Recorder()
    client = await bench.serve({"agent": agent.adapter()})
    async with client.history(conversation_id, hooks=Hooks(user_prompt_submit=[told.no_secrets, told.upper])):
        await client.ask("agent", "hello")
        with pytest.raises(TurnDenied, match="was denied: it has a secret") as denied:
            await client.ask("agent", "the secret is plugh")
        await client.ask("agent", "bye")
    assert denied.value.reason == "it has a secret"
    assert isinstance(denied.value, TurnFailed)
    assert names(asked) == ["no_secrets", "upper", "no_secrets", "no_secrets", "upper"]
    assert agent.sent == [["HELLO"], ["HELLO", "re: HELLO", "BYE"]]
    assert b"plugh" not in await everything_in(redis, bench.settings)


@pytest.mark.parametrize(
    ("hook", "error", "says"),
    [
        ("raises", "HookError", "raised ValueError: no"),
        ("slow", "HookTimedOut", "did not answer within 0.05 s"),
        ("slow sync", "HookTimedOut", "did not answer within 0.05 s"),
        ("answers", "HookError", "returned 'yes': it may return Edit"),
        ("empties", "HookError", "made a prompt that is none"),
        ("cancels", "HookError", "raised CancelledError"),
    ],
)
async def test_a_hook_that_fails_fails_the_turn_and_nothing_is_sent(
    bench: Bench, conversation_id: str, hook: str, error: str, says: str
):
    async def raises(event: Any) -> None:
        raise ValueError("no")

    async def cancels(event: Any) -> None:
        raise asyncio.CancelledError

    hooks: dict[str, Any] = {
        "raises": raises,
        "slow": told.slow,
        "slow sync": lambda event: time.sleep(0.3),
        "answers": lambda event: "yes",
        "empties": lambda event: Edit(" "),
        "cancels": cancels,
    }
    agent = Recorder()
    adapter = agent.adapter(hooks=Hooks(user_prompt_submit=hooks[hook], timeout=timedelta(seconds=0.05)))
    client = await bench.serve({"agent": adapter})
    with pytest.raises(TurnFailed, match=says) as failed:
        await client.conversation(conversation_id).ask("agent", "hello")
    assert failed.value.error_type == error
    assert agent.sent == []
    assert await client.conversation(conversation_id).messages("agent") == []


async def test_hooks_around_models_and_tools(bench: Bench, conversation_id: str, asked: list[tuple[str, Any]]):
    """Before a request, after an answer that is safe, before a tool and after it: in that order, once each."""
    agent = Recorder()
    every: dict[str, Any] = dict.fromkeys(HOOK_NAMES, told.note)
    client = await bench.serve({"agent": agent.adapter(hooks=Hooks(**every))})
    await client.conversation(conversation_id).ask("agent", "look")
    await until_told(asked, 8)
    assert names(asked) == [
        "UserPromptSubmit", "BeforeModelRequest", "AfterModelRequest", "BeforeTool", "AfterTool",
        "BeforeModelRequest", "AfterModelRequest", "TurnEnd",
    ]  # fmt: skip
    events = [event for _, event in asked]
    assert [event.request_index for event in events if isinstance(event, AfterModelRequest)] == [1, 2]
    assert [(e.text, e.tools) for e in events if isinstance(e, AfterModelRequest)] == [
        ("", ("look",)),
        ("re: look", ()),
    ]
    assert [(e.tool, e.arguments, e.outcome) for e in events if isinstance(e, AfterTool)] == [("look", {}, "returned")]
    assert events[-1].usage.requests == 2
    assert len(agent.sent) == 2


async def test_a_tool_that_is_denied_is_not_run_and_the_model_is_told(bench: Bench, conversation_id: str):
    agent = Recorder()
    ran: list[int] = []

    def deny(event: BeforeTool) -> Deny:
        return Deny(f"no {event.tool} today")

    adapter = agent.adapter(hooks=Hooks(before_tool=deny))
    adapter.agent.tool_plain(name="other")(lambda: ran.append(1))  # type: ignore[attr-defined]
    client = await bench.serve({"agent": adapter})
    conversation = client.conversation(conversation_id)
    assert (await conversation.ask("agent", "look")).output == "re: look"
    results = [p for m in await conversation.messages("agent") for p in m.parts if isinstance(p, ToolReturnPart)]
    assert [result.content for result in results] == ["no look today"]
    assert ran == []


async def test_a_model_request_can_be_denied(bench: Bench, conversation_id: str):
    agent = Recorder()
    deny = Hooks(before_model_request=lambda event: Deny("over") if event.request_index == 2 else None)
    client = await bench.serve({"agent": agent.adapter(hooks=deny)})
    with pytest.raises(TurnDenied, match="over"):
        await client.conversation(conversation_id).ask("agent", "look")
    assert len(agent.sent) == 1


async def test_the_end_of_a_turn_is_told_however_it_ends(
    bench: Bench, conversation_id: str, asked: list[tuple[str, Any]]
):
    """What such a hook does wrong changes nothing any more."""

    def fails(event: Any) -> None:
        told.note(event)
        raise ValueError("too late")

    agent = Recorder(fails={"bad"})
    reached = asyncio.Event()

    async def hang(event: Any) -> None:
        if event.request_index == 1 and len(agent.sent) == 2:
            reached.set()
            await asyncio.Event().wait()

    ends: dict[str, Any] = {"turn_committed": fails, "turn_failed": fails, "turn_cancelled": fails}
    adapter = agent.adapter(hooks=Hooks(before_model_request=hang, timeout=timedelta(seconds=60), **ends))
    client = await bench.serve({"agent": adapter})
    conversation = client.conversation(conversation_id)
    async with client.scope(hooks=Hooks(turn_committed=told.note, turn_failed=told.note, turn_cancelled=told.note)):
        await conversation.ask("agent", "good")
        with pytest.raises(TurnFailed):
            await conversation.ask("agent", "bad")
        turn = await conversation.submit("agent", "hang")
        await reached.wait()
        assert await turn.cancel() == "cancelled"
        with pytest.raises(TurnCancelled):
            await turn.result()
    await until_told(asked, 6)
    assert names(asked) == ["TurnEnd"] * 6
    assert [event.error_type for _, event in asked[::2]] == [None, "ValueError", None]


async def test_hooks_do_not_run_inside_hooks(bench: Bench, conversation_id: str, asked: list[tuple[str, Any]]):
    """A hook may ask an agent; that turn has no hooks, neither the application's nor those of scopes around."""
    agent = Recorder()
    place: dict[str, LanewayClient] = {}

    async def classify(event: UserPromptSubmit) -> Edit:
        told.note(event)
        async with place["client"].history(hooks=Hooks(user_prompt_submit=told.upper)):
            verdict = await place["client"].ask("agent", f"classify {event.prompt}")
        return Edit(f"{event.prompt} ({verdict.output})")

    app = Laneway(agents={"agent": agent.adapter()}, hooks=Hooks(user_prompt_submit=classify))
    async with app.worker(bench.settings), app.client(bench.settings) as client:
        place["client"] = client
        await client.conversation(conversation_id).ask("agent", "hello")
    assert names(asked) == ["UserPromptSubmit"]
    assert agent.sent == [["classify hello"], ["hello (re: classify hello)"]]


async def test_hooks_that_an_adapter_never_calls_are_refused(bench: Bench):
    """Those of a turn as a whole work with every adapter."""

    async def answer(messages: Any) -> Message:
        return {"role": "assistant", "text": messages[-1]["text"]}

    plain = PlainAdapter(answer, name="echo")
    with pytest.raises(UnsupportedCapability, match="the hook before_tool needs the capability 'tool_hooks'"):
        Laneway(agents={"plain": plain}, hooks=Hooks(before_tool=told.note))
    with pytest.raises(ConfigurationError, match="cannot be called"):
        Laneway(agents={"plain": plain}, hooks=Hooks(turn_failed="nobody"))
    with pytest.raises(ConfigurationError, match="timeout"):
        Hooks(timeout=timedelta(0))
    client = await bench.serve({"plain": plain})
    async with client.history(hooks=Hooks(user_prompt_submit=told.upper, turn_committed=told.note)):
        assert (await client.ask("plain", "hello")).output == "HELLO"
        await until_told(told.ASKED, 2)
        with pytest.raises(UnsupportedCapability):
            async with client.scope(hooks=Hooks(after_model_request=told.note)):
                await client.ask("plain", "hello")
        with pytest.raises(ConfigurationError, match="the hook .* is a lambda"):
            async with client.scope(hooks=Hooks(turn_committed=lambda event: None)):
                await client.ask("plain", "hello")
    assert names(told.ASKED) == ["upper", "TurnEnd"]
