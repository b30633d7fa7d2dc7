"""What a provider is sent of a thread, for every way in which the turns before can have ended."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain_core.messages import AIMessage
from pydantic_ai.messages import BinaryContent
from redis.asyncio import Redis

from laneway import LangChainAdapter, LimitWarnerProcessor, PydanticAdapter, RetryPolicy, Settings, TextWindow
from laneway.errors import InvalidInput, TurnFailed
from laneway.history.options import TurnOptions

from tests.adapters.scripted import Plan
from tests.editing.agents import LangChainRecorder, Recorder
from tests.editing.test_crashes import EditedLane
from tests.support.bench import Bench
from tests.support.provider import ProviderRequest, answer, call, cut, reply, stall, status
from tests.wire.providers import APIS, Api, Wire, add, wire

QUICK = RetryPolicy(first_delay=timedelta(milliseconds=10), max_attempts=2)


def script(request: ProviderRequest) -> Any:
    """Answers the last line; a prompt that says `add` calls a tool first, one that says `long` is cut short."""
    last = request.prompt.splitlines()[-1].removeprefix("user: ")
    if "add" in last and request.step == 0:
        return answer(call("add", {"a": 1, "b": 2}))
    return answer("to be continu", finish="length") if "long" in last else reply(f"re {last}")


def adapter(running: Wire, api: Api, window: int, framework: str = "pydantic_ai") -> Any:
    if framework == "langchain":
        graph: Any = create_agent(running.langchain_model(api), [add], system_prompt="You can count.")
        return LangChainAdapter(graph, history=TextWindow(window), stream=False, retry_policy=QUICK)
    return PydanticAdapter(running.agent(api), history=TextWindow(window), stream=False, retry_policy=QUICK)


def said(body: Any, api: Api) -> list[str]:
    """What of a request is not the system's, message by message."""
    found = []
    for message in body["input" if api == "responses" else "messages"]:
        if message.get("role") == "system":
            continue
        content = message.get("content")
        if isinstance(content, list):
            content = "".join(part.get("text", f"<{part['type']}>") for part in content)
        found.append(content or ("<calls>" if message.get("role") == "assistant" else str(message["type"])))
    return found


FRAMEWORKS = pytest.mark.parametrize("framework", ["pydantic_ai", "langchain"])


@FRAMEWORKS
@pytest.mark.parametrize("api", APIS)
async def test_a_window_shows_the_last_messages_after_every_outcome(
    bench: Bench, conversation_id: str, api: Api, framework: str
):
    """Committed, with tools, truncated, failed, cut, stopped: the request each time, an answer where there is one."""
    async with wire(script) as running:
        client = await bench.serve({"agent": adapter(running, api, 6, framework)})
        conversation = client.conversation(conversation_id)
        server = running.server

        async def sent(prompt: str, *, fails: bool = False) -> list[str]:
            first = len(server.requests)
            if fails:
                with pytest.raises(TurnFailed):
                    await conversation.ask("agent", prompt)
            else:
                await conversation.ask("agent", prompt)
            return said(server.requests[first].body, api)

        assert await sent("one") == ["user: one"]
        assert await sent("add two") == ["user: one\nassistant: re one\nuser: add two"]
        assert len(said(server.requests[-1].body, api)) > 1, "the turn's own tool loop is native"
        assert await sent("long three") == [
            "user: one\nassistant: re one\nuser: add two\nassistant: re add two\nuser: long three"
        ]
        server.fail(status(400), times=1)
        assert await sent("four", fails=True) == [
            "user: one\nassistant: re one\nuser: add two\nassistant: re add two\nuser: long three\nuser: four"
        ]
        server.fail(cut(), times=2)
        assert await sent("five", fails=True) == [
            "assistant: re one\nuser: add two\nassistant: re add two\nuser: long three\nuser: four\nuser: five"
        ]
        server.fail(stall(), times=1)
        first = len(server.requests)
        turn = await conversation.submit("agent", "six")
        await server.wait_for_request(first + 1)
        assert await turn.cancel() == "cancelled"
        assert await sent("seven") == [
            "assistant: re add two\nuser: long three\nuser: four\nuser: five\nuser: six\nuser: seven"
        ]
        messages = await conversation.messages("agent")
        assert len(messages) == 2 + 4 + 2 + 2, "what was committed is kept as it was sent and answered"


@pytest.mark.parametrize("window", [0, -3, 1, 2])
async def test_small_windows(bench: Bench, conversation_id: str, window: int):
    async with wire(script) as running:
        client = await bench.serve({"agent": adapter(running, "chat", window)})
        conversation = client.conversation(conversation_id)
        await conversation.ask("agent", "one")
        await conversation.ask("agent", "two")
        shown = {1: "user: two", 2: "assistant: re one\nuser: two"}.get(window, "two")
        assert said(running.server.requests[-1].body, "chat") == [shown]


@FRAMEWORKS
async def test_briefs_and_delegated_turns_write_nothing(bench: Bench, conversation_id: str, framework: str):
    async with wire(script) as running:
        own = adapter(running, "chat", 6, framework)
        client = await bench.serve({"agent": own})
        conversation = client.conversation(conversation_id)
        lane = conversation.lane("agent")
        await conversation.ask("agent", "one")
        for options in (TurnOptions(is_brief=True), TurnOptions(depth=1)):
            turn = await client.submit(lane, own.encode_prompt("Look it up."), options=replace(options))
            await turn.result()
            assert said(running.server.requests[-1].body, "chat") == [
                "user: one\nassistant: re one\n\nLook it up.",
            ]
        assert [str(one) for one in await client.store.list_messages(lane, 9)] == ["user: one", "assistant: re one"]


async def test_files_of_a_prompt_are_sent_and_only_described_later(bench: Bench, conversation_id: str):
    async with wire(script) as running:
        client = await bench.serve({"agent": adapter(running, "chat", 6)})
        conversation = client.conversation(conversation_id)
        picture = BinaryContent(b"\x89PNG" + b"\0" * 20, media_type="image/png")
        await conversation.ask("agent", ["what is this?", picture])
        first, second = running.server.requests[-1].body["messages"][-1]["content"]
        assert first == {"type": "text", "text": "user: what is this?"}
        assert second["type"] == "image_url"
        await conversation.ask("agent", "and now?")
        assert said(running.server.requests[-1].body, "chat")[0].startswith(
            "user: what is this?\n[image/png, 24 bytes]\nassistant: re "
        )


async def test_files_of_a_graphs_prompt_are_sent_and_only_described_later(bench: Bench, conversation_id: str):
    """And a prompt in which nobody says anything is refused: there is nothing to open the turn with."""
    async with wire(script) as running:
        client = await bench.serve({"agent": adapter(running, "chat", 6, "langchain")})
        conversation = client.conversation(conversation_id)
        picture = {"type": "image", "base64": "iVBORw0KGgo=", "mime_type": "image/png"}
        await conversation.ask("agent", [{"type": "text", "text": "what is this?"}, picture])
        first, second = running.server.requests[-1].body["messages"][-1]["content"]
        assert first == {"type": "text", "text": "user: what is this?"}
        assert second["type"] == "image_url"
        await conversation.ask("agent", [picture, {"type": "text", "text": "and now?"}])
        content = running.server.requests[-1].body["messages"][-1]["content"]
        assert [part["type"] for part in content] == ["text", "image_url", "text"]
        assert content[0]["text"].startswith("user: what is this?\n[")
        assert content[0]["text"].endswith("user: ")
        with pytest.raises(InvalidInput, match="HumanMessage"):
            await conversation.ask("agent", [AIMessage("hello")])
        assert "text window" in ((await conversation.compact("agent")).reason or "")


class WindowedLane(EditedLane):
    def adapter(self) -> PydanticAdapter[None, Any]:
        recorder: Any = self.recorder
        return recorder.adapter(history=TextWindow(4))  # type: ignore[no-any-return]


RECORDERS: Any = pytest.mark.parametrize("kind", [Recorder, LangChainRecorder], ids=["pydantic", "langchain"])


@RECORDERS
@pytest.mark.parametrize("death", [(0, False), (0, True), (1, True)], ids=str)
async def test_a_turn_whose_workers_die_is_in_the_thread_once(redis: Redis, settings: Settings, death: Any, kind: Any):
    """Its tool loop goes on where it was: the model is asked for what was not staged alone."""
    lane = WindowedLane(redis, settings.redis_prefix, Plan("text", ()), recorder=kind())
    await lane.ask("t0", "q0")
    lane.deaths = [death, None, death]
    record = await lane.ask("t1", "look")
    assert record.outcome == "committed"
    shown = [str(one) for one in await lane.store.list_messages(lane.key, 10)]
    assert (shown[0], shown[2]) == ("user: q0", "user: look")
    assert [one.partition(":")[0] for one in shown] == ["user", "assistant", "user", "assistant"]
    assert lane.recorder.sent[-1] == [f"{shown[0]}\n{shown[1]}\n{shown[2]}", "look()", "seen"]


@RECORDERS
async def test_an_edit_within_a_turn_leaves_what_other_turns_committed(bench: Bench, conversation_id: str, kind: Any):
    """The turn is edited as any other; the lane's history before it is in the new epoch too."""
    agent = kind()
    warner = LimitWarnerProcessor(3)
    client = await bench.serve({"agent": agent.adapter(warner, history=TextWindow(2))})
    conversation = client.conversation(conversation_id)
    await conversation.ask("agent", "q0")
    await conversation.ask("agent", "look")
    texts = kind.texts_of(await conversation.messages("agent"))
    assert [text for text in texts if "Critical" not in text] == [
        *("user: q0", "re: user: q0"),
        *("assistant: re: user: q0\nuser: look", "look()", "seen", "re: assistant: re: user: q0\nuser: look"),
    ]
    assert sum("Critical" in text for text in texts) == 2
    assert sum("Critical" in text for text in agent.sent[-1]) == 1
    assert (await conversation.status("agent")).epoch == 2
