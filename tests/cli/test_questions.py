"""Turns that wait for a person are told from the command line, and answered in a chat at a terminal."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from laneway import LanewayClient, Settings

from tests.cli.processes import CommandLine, Terminal, terminal

DESK = Path(__file__).with_name("desk.py")


@pytest.fixture
async def client(folder: Path, settings: Settings) -> AsyncIterator[LanewayClient]:
    """A client, beside a worker with the agents."""
    from tests.cli.desk import app

    shutil.copy(DESK, folder)
    async with app.worker(settings), app.client(settings) as connected:
        yield connected


async def _talk(line: CommandLine, act: Callable[[Terminal], int], agent: str, conversation: str) -> str:
    """Chat at a terminal in a thread, beside the worker in this loop."""

    def chat() -> str:
        with terminal(line, "chat", "desk.py", agent, "-c", conversation) as screen:
            code = act(screen)
            assert screen.wait() == code
            assert "Traceback" not in screen.shown
            return screen.shown

    return await asyncio.to_thread(chat)


async def test_a_chat_asks_for_leave_to_run_tools_and_goes_on_with_it(
    laneway: CommandLine, client: LanewayClient, conversation_id: str
):
    """Each call by itself; a reason in place of y or n refuses it and is what the model is told."""

    def act(screen: Terminal) -> int:
        screen.expect("> ")
        screen.type("go\n")
        screen.expect("let me send it")
        screen.expect('waits for leave to run send {"to": "ada"}')
        screen.expect('send {"to": "ada"}: y to allow it, n or a reason to refuse> ')
        screen.type("y\n")
        screen.expect("refuse> ")
        screen.type("\n")
        screen.expect("refuse> ")
        screen.type("not bob\n")
        screen.expect("it was sent to ada and not bob")
        screen.expect("> ")
        screen.press_ctrl_d()
        return 0

    await _talk(laneway, act, "clerk", conversation_id)


@pytest.mark.parametrize(
    ("agent", "prompt", "talk"),
    [
        (
            "host",
            'greet "What is your name\\?": your answer, text or JSON> ',
            {"Ada": "hello 'Ada'", '{"first": "Ada"}': "hello {'first': 'Ada'}"},
        ),
        (
            "poster",
            "y to allow it, n or a reason to refuse> ",
            {"yes": "it was posted to ada", "too late": "it was .*too late"},
        ),
    ],
    ids=["interrupt", "LangChain's approvals"],
)
async def test_a_chat_asks_what_a_graph_asks(
    laneway: CommandLine, client: LanewayClient, conversation_id: str, agent: str, prompt: str, talk: dict[str, str]
):
    """The answer to an `interrupt()` is text, or JSON where it can be read as such."""

    def act(screen: Terminal) -> int:
        for typed, said in talk.items():
            screen.expect("> ")
            screen.type("go\n")
            screen.expect("waits for an answer to")
            screen.expect(prompt)
            screen.type(f"{typed}\n")
            screen.expect(said)
        screen.expect("> ")
        screen.press_ctrl_d()
        return 0

    await _talk(laneway, act, agent, conversation_id)


async def test_ctrl_c_in_place_of_an_answer_stops_the_turn_and_keeps_the_chat(
    laneway: CommandLine, client: LanewayClient, conversation_id: str
):
    def act(screen: Terminal) -> int:
        screen.expect("> ")
        screen.type("go\n")
        screen.expect("text or JSON> ")
        screen.interrupt_prompt("was cancelled")
        screen.expect("> ")
        screen.press_ctrl_d()
        return 0

    await _talk(laneway, act, "host", conversation_id)
    lane = client.conversation(conversation_id).lane("host")
    assert [turn.outcome for turn in await client.turns(lane)] == ["cancelled"]


async def test_a_chat_that_is_left_in_place_of_an_answer_is_gone_on_with(
    laneway: CommandLine, client: LanewayClient, conversation_id: str
):
    """Ctrl-D leaves the turn waiting; whoever resumes the conversation is asked again."""

    def leave(screen: Terminal) -> int:
        screen.expect("> ")
        screen.type("go\n")
        screen.expect("text or JSON> ")
        screen.press_ctrl_d()
        screen.expect("the turn waits on")
        return 0

    def resume(screen: Terminal) -> int:
        screen.expect("was left running")
        screen.expect("What is your name")
        screen.expect("text or JSON> ")
        screen.type("Ada\n")
        screen.expect("hello 'Ada'")
        screen.expect("> ")
        screen.press_ctrl_d()
        return 0

    await _talk(laneway, leave, "host", conversation_id)
    assert len(await client.conversation(conversation_id).pending()) == 1
    await _talk(laneway, resume, "host", conversation_id)


async def test_an_answer_from_elsewhere_counts_while_a_chat_asks(
    laneway: CommandLine, client: LanewayClient, conversation_id: str
):
    """What is typed after it is told to be too late, and the turn is seen to its end."""
    loop = asyncio.get_running_loop()

    async def answer() -> None:
        (one,) = await client.conversation(conversation_id).pending()
        await client.turn(one.lane, one.turn_id).answer(one.request.id, result="Bob")

    def act(screen: Terminal) -> int:
        screen.expect("> ")
        screen.type("go\n")
        screen.expect("text or JSON> ")
        asyncio.run_coroutine_threadsafe(answer(), loop).result(60)
        screen.type("Ada\n")
        screen.expect("hello 'Bob'")
        screen.expect("> ")
        screen.press_ctrl_d()
        return 0

    shown = " ".join((await _talk(laneway, act, "host", conversation_id)).split())  # as lines wrap
    assert "was answered before" in shown or "it has ended" in shown


@pytest.mark.parametrize("command", ["send", "chat"])
async def test_a_wait_is_told_with_the_commands_that_answer_it(
    laneway: CommandLine, client: LanewayClient, conversation_id: str, command: str
):
    """Where nobody can be asked: on standard error, and the answer alone on standard output."""
    if command == "send":
        running = asyncio.create_task(laneway("send", "desk.py", conversation_id, "clerk", "go"))
    else:
        running = asyncio.create_task(laneway("chat", "desk.py", "clerk", "-c", conversation_id, stdin="go\n"))
    conversation = client.conversation(conversation_id)
    while len(pending := await conversation.pending()) < 2:
        assert not running.done()
        await asyncio.sleep(0.05)
    for one in pending:
        assert (await laneway("approve", one.request.id)).code == 0
    done = await running
    assert done.code == 0
    assert done.out.endswith("it was sent to ada and sent to bob\n")
    for one in pending:
        where = f"`laneway approve {one.request.id}` or `laneway deny {one.request.id}`"
        assert f'waits for leave to run send {{"to": "{one.request.payload["to"]}"}}: {where}' in done.err
