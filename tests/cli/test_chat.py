"""`laneway chat`: at a terminal and in a pipe."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path

from laneway import LanewayClient

from tests.cli.processes import CommandLine, Terminal, terminal


async def at_terminal(line: CommandLine, act: Callable[[Terminal], None], *arguments: str) -> Terminal:
    """Chat at a terminal in a thread, beside the worker in this loop."""

    def chat() -> Terminal:
        with terminal(line, "chat", "shop.py", "talker", *arguments) as screen:
            act(screen)
            return screen

    return await asyncio.to_thread(chat)


async def test_prompts_from_a_pipe_are_answered_in_order(laneway: CommandLine, worker: None):
    """Answers go to standard output and nothing else does."""
    done = await laneway("chat", "shop.py", "talker", stdin="one\n\ntwo\n")
    assert (done.code, done.out) == (0, "you said one\nyou said two\n")
    assert "conversation chat-" in done.err


async def test_a_failed_turn_in_a_pipe_is_told_and_the_next_prompt_is_taken(laneway: CommandLine, worker: None):
    """The exit code says that not all was well."""
    done = await laneway("chat", "shop.py", "talker", stdin="fail\ntwo\n")
    assert (done.code, done.out) == (1, "you said two\n")
    assert "failed: ValueError: the shop is closed" in done.err
    assert "Traceback" not in done.err


async def test_tool_calls_are_shown_as_they_run(laneway: CommandLine, worker: None):
    """Each with its arguments, and how it finished."""
    done = await laneway("chat", "shop.py", "talker", stdin="time\n")
    assert done.out == "let me look\nthe clock says noon\n"
    assert done.err.splitlines()[1:] == ["tool clock {}", "tool clock: returned"]


async def test_what_a_retried_step_had_said_is_dropped(laneway: CommandLine, worker: None, conversation_id: str):
    """A reader of the output never sees it; a reader of the events is told."""
    done = await laneway("chat", "shop.py", "talker", stdin=f"stumble {conversation_id}\n")
    assert done.out == "the right answer\n"
    assert "step 0 is tried again, attempt 2" in done.err


async def test_events_are_lines_of_json(laneway: CommandLine, worker: None, conversation_id: str):
    """In order, with a result after the last event of a turn."""
    done = await laneway("chat", "shop.py", "talker", "--json", "-c", conversation_id, stdin="time\nfail\n")
    lines = done.lines()
    kinds = [line.get("event") for line in lines]
    assert [kind for kind in kinds if kind != "text.delta"] == [
        "turn.started",
        "tool.called",
        "tool.finished",
        "turn.committed",
        "result",
        "turn.started",
        "turn.failed",
        None,
    ]
    result = lines[kinds.index("result")]
    assert (result["output"], result["outcome"], result["steps"]) == ("the clock says noon", "committed", 3)
    assert lines[-1]["error"] == "TurnFailed"
    assert lines[-1]["error_type"] == "ValueError"
    assert set(lines[0]) == {"event", "turn_id", "step", "attempt", "data", "event_id"}
    assert done.code == 1


async def test_a_structured_output_is_shown_as_json(laneway: CommandLine, worker: None):
    """It is no text that was streamed, and must not be missed."""
    done = await laneway("chat", "shop.py", "pricer", stdin="tea\n")
    assert json.loads(done.out) == {"product": "tea", "cents": 1250}


async def test_a_conversation_is_resumed_with_its_history_shown(
    laneway: CommandLine, worker: None, conversation_id: str
):
    """Up to as many messages as were asked for."""
    await laneway("chat", "shop.py", "talker", "-c", conversation_id, stdin="one\ntwo\n")
    done = await laneway("chat", "shop.py", "talker", "-c", conversation_id, "--history", "2", stdin="three\n")
    assert done.out == "you said three\n"
    assert done.err.splitlines()[1:] == ["(2 earlier messages)", "user: two", "assistant: you said two"]


async def test_ctrl_c_cancels_the_turn_and_keeps_the_chat(
    laneway: CommandLine, client: LanewayClient, conversation_id: str
):
    """The cancelled turn leaves nothing behind; at the prompt Ctrl-C leaves."""

    def act(screen: Terminal) -> None:
        screen.expect("> ")
        screen.type("hang\n")
        screen.expect("let me think")
        screen.press_ctrl_c()
        screen.expect("was cancelled")
        screen.expect("> ")
        screen.type("one\n")
        screen.expect("you said one")
        screen.expect("> ")
        assert screen.leave_by_ctrl_c() == 130

    screen = await at_terminal(laneway, act, "-c", conversation_id)
    assert "Traceback" not in screen.shown
    lane = client.conversation(conversation_id).lane("talker")
    assert [turn.outcome for turn in await client.turns(lane)] == ["cancelled", "committed"]


async def test_a_turn_that_was_left_running_is_seen_to_its_end_on_resuming(
    laneway: CommandLine, client: LanewayClient, conversation_id: str
):
    """And Ctrl-C cancels it as if it had just been asked; Ctrl-D leaves with success."""
    left = await client.conversation(conversation_id).submit("talker", "hang")
    async for event in left.events():
        if event.kind == "text.delta":
            break

    def act(screen: Terminal) -> None:
        screen.expect("was left running")
        screen.expect("let me think")
        screen.press_ctrl_c()
        screen.expect("was cancelled")
        screen.expect("> ")
        screen.press_ctrl_d()
        assert screen.wait() == 0

    await at_terminal(laneway, act, "-c", conversation_id)
    assert (await left.record()).outcome == "cancelled"


async def test_a_terminal_drops_what_a_retried_step_had_shown(laneway: CommandLine, worker: None, conversation_id: str):
    """What is left on the screen is the answer alone."""

    def act(screen: Terminal) -> None:
        screen.expect("> ")
        screen.type(f"stumble {conversation_id}\n")
        screen.expect("a wrong beginning")
        screen.expect("the right answer")
        screen.expect("> ")
        screen.press_ctrl_d()
        assert screen.wait() == 0

    await at_terminal(laneway, act)


async def test_an_unknown_agent_is_told_before_anything_is_connected(nowhere: CommandLine):
    """With the names that there are."""
    done = await nowhere("chat", "shop.py", "nobody")
    assert done.code == 2
    assert done.err == "laneway: no agent 'nobody' is registered here; registered: 'pricer', 'talker'\n"


async def test_a_bad_conversation_id_is_refused(nowhere: CommandLine, folder: Path):
    """Before anything is connected."""
    done = await nowhere("chat", "shop.py", "talker", "-c", " x", "--json")
    assert (done.code, done.json()["error"]) == (2, "InvalidInput")
