"""`laneway chat`: a conversation at a terminal, or with prompts from a pipe, one a line.

The event loop runs only while a turn does. Between turns the main thread is in `input()`, which has line editing and
takes Ctrl-C by itself; during a turn asyncio's runner makes the first Ctrl-C a cancellation, which becomes the turn's,
and the second one an interruption.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Coroutine
from contextlib import AsyncExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from laneway.cli.apps import AppTarget, load_app
from laneway.cli.output import console
from laneway.cli.places import locate, open_client
from laneway.cli.previews import Line, preview
from laneway.cli.rendering import JsonLines, LiveScreen, Pipe, TurnDisplay
from laneway.errors import LanewayError, ServiceUnavailable

if TYPE_CHECKING:
    from laneway.app import Laneway
    from laneway.client import LanewayClient
    from laneway.turns import Turn

__all__ = ["run_chat"]


def run_chat(target: str, agent: str, *, conversation: str | None, history: int, data_dir: Path, as_json: bool) -> int:
    """Talk until the input ends or Ctrl-C is pressed at the prompt.

    Returns:
        1 where a prompt from a pipe did not lead to a committed turn, else 0.
    """
    from laneway.activities.agents import Agents
    from laneway.history.lanes import check_name

    if conversation is not None:
        check_name(conversation, what="the conversation id")
    app = load_app(AppTarget.parse(target))
    Agents(app.agents)[agent]  # an unknown agent is told before anything is connected
    new = conversation is None
    name = conversation or f"chat-{uuid4().hex[:12]}"
    with asyncio.Runner() as runner:
        session = _Session(app, agent, name, display=_display(as_json=as_json))
        try:
            runner.run(session.open(data_dir))
            session.welcome(new=new)
            if not new:
                runner.run(session.resume(history))
            return _talk(runner, session, as_json=as_json)
        finally:
            runner.run(session.close())


def _display(*, as_json: bool) -> TurnDisplay:
    if as_json:
        return JsonLines()
    return LiveScreen() if sys.stdout.isatty() and not console().is_dumb_terminal else Pipe()


def _talk(runner: asyncio.Runner, session: _Session, *, as_json: bool) -> int:
    interactive = sys.stdin.isatty()
    prompting = interactive and sys.stdout.isatty() and not as_json
    if prompting:
        import readline  # noqa: F401  # pyright: ignore[reportUnusedImport] - gives input() line editing
    failed = False
    while True:
        try:
            text = input("> ") if prompting else _read_line()
        except EOFError:
            break
        if text.strip():
            failed |= not runner.run(session.ask(text))
    if prompting:
        sys.stdout.write("\n")
    return 1 if failed and not interactive else 0


def _read_line() -> str:
    line = sys.stdin.readline()
    if not line:
        raise EOFError
    return line.removesuffix("\n")


class _Session:
    """One conversation with one agent."""

    def __init__(self, app: Laneway, agent: str, conversation: str, *, display: TurnDisplay) -> None:
        self._app = app
        self._agent = agent
        self._name = conversation
        self._display = display
        self._stack = AsyncExitStack()
        self._opened: LanewayClient | None = None

    @property
    def _client(self) -> LanewayClient:
        assert self._opened is not None
        return self._opened

    async def open(self, data_dir: Path) -> None:
        from laneway.activities.agents import Agents

        place = await locate(data_dir)
        if place.overruled:
            self._display.say(f"talking to the `laneway dev` of {data_dir}; not used: {', '.join(place.overruled)}")
        self._opened = await self._stack.enter_async_context(open_client(Agents(self._app.agents), place))

    async def close(self) -> None:
        await self._stack.aclose()

    def welcome(self, *, new: bool) -> None:
        where = f"conversation {self._name}"
        again = " (resume it with --conversation)" if new else ""
        self._display.say(f"{where}{again}; Ctrl-C stops a turn, Ctrl-D leaves")

    async def resume(self, limit: int) -> None:
        """Show what was said, and see the turns to their end that still run or wait."""
        client, lane = self._client, self._client.conversation(self._name).lane(self._agent)
        if lane not in await client.lanes(self._name):
            return
        head = await client.store.head(lane)
        entries = await client.store.history(lane, head.checkpoint)
        first = max(len(entries) - limit, 0)
        lines: list[tuple[int, Line]] = []
        for index, entry in enumerate(entries[first:], first):
            lines += [(index, line) for line in preview(json.loads(entry.payload))]
        self._display.history(lines, left_out=first)
        try:
            status = await client.status(lane)
        except ServiceUnavailable:
            return  # no worker: then nothing runs, and the next prompt says so
        for turn_id in (*([status.turn] if status.turn else []), *status.queue):
            self._display.say(f"turn {turn_id} was left running")
            await self._show(_ready(client.turn(lane, turn_id)))

    async def ask(self, prompt: str) -> bool:
        """Take a turn. Returns whether it was committed."""
        conversation = self._client.conversation(self._name)
        return await self._show(conversation.submit(self._agent, prompt))

    async def _show(self, submit: Coroutine[Any, Any, Turn]) -> bool:
        accepted = asyncio.ensure_future(submit)
        self._display.begin()
        try:
            try:
                turn = await asyncio.shield(accepted)
                async for event in turn.events():
                    self._display.take(event)
            except asyncio.CancelledError:
                _stay()
                self._display.say("stopping the turn; Ctrl-C again leaves at once")
                # It may be accepted at this very moment, and must not run on unseen.
                turn = await accepted
                await turn.cancel()
            self._display.committed(await turn.result())
        except LanewayError as error:
            self._display.failed(error)
            return False
        finally:
            self._display.end()
        return True


async def _ready(turn: Turn) -> Turn:
    return turn


def _stay() -> None:
    """Take back the cancellation that Ctrl-C was made into: it was meant for the turn."""
    task = asyncio.current_task()
    assert task is not None
    task.uncancel()
