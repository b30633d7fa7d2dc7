"""`laneway chat`: a conversation at a terminal, or with prompts from a pipe, one a line.

The event loop runs only while a turn does. Between turns the main thread is in `input()`, which has line editing and
takes Ctrl-C by itself; during a turn asyncio's runner makes the first Ctrl-C a cancellation, which becomes the turn's,
and the second one an interruption. Where a turn waits for an answer, the loop stands still too, and `input()` asks.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Coroutine, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal
from uuid import uuid4

from laneway.cli.apps import AppTarget, load_app
from laneway.cli.output import console
from laneway.cli.places import locate, open_client
from laneway.cli.previews import Line, preview
from laneway.cli.questions import answer_typed, prompt_for, question_line
from laneway.cli.rendering import JsonLines, LiveScreen, Pipe, TurnDisplay
from laneway.errors import LanewayError, ServiceUnavailable

if TYPE_CHECKING:
    from laneway.answers import Pending
    from laneway.app import Laneway
    from laneway.client import LanewayClient
    from laneway.history.requests import Answer
    from laneway.turns import Turn

__all__ = ["run_chat"]

Seen = Literal["committed", "ended", "asks"]
"""How far a turn was seen: to its commit, to another end, or to where it waits for an answer of the person here."""


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
    interactive = sys.stdin.isatty()
    prompting = interactive and sys.stdout.isatty() and not as_json
    with asyncio.Runner() as runner:
        session = _Session(app, agent, name, display=_display(as_json=as_json, asks=prompting), answers=prompting)
        talk = _Talk(runner, session, prompting=prompting)
        try:
            runner.run(session.open(data_dir))
            session.welcome(new=new)
            committed = talk.resume(history) if not new else True
            committed &= talk.until_the_end()
        except EOFError:
            session.left_waiting()
            return 0
        finally:
            runner.run(session.close())
    return 0 if committed or interactive else 1


def _display(*, as_json: bool, asks: bool) -> TurnDisplay:
    if as_json:
        return JsonLines()
    return LiveScreen(asks=asks) if sys.stdout.isatty() and not console().is_dumb_terminal else Pipe()


class _Talk:
    """What is read from the person, and what is run for it."""

    def __init__(self, runner: asyncio.Runner, session: _Session, *, prompting: bool) -> None:
        self._runner = runner
        self._session = session
        self._prompting = prompting
        if prompting:
            import readline  # noqa: F401  # pyright: ignore[reportUnusedImport] - gives input() line editing

    def until_the_end(self) -> bool:
        """Take prompts until there are no more. Returns whether all their turns were committed."""
        committed = True
        while True:
            try:
                text = input("> ") if self._prompting else _read_line()
            except EOFError:
                break
            if text.strip():
                committed &= self._see(self._session.ask(text))
        if self._prompting:
            sys.stdout.write("\n")
        return committed

    def resume(self, history: int) -> bool:
        """Show what was said, and see the turns to their end that still run or wait."""
        for turn in self._runner.run(self._session.resume(history)):
            self._see(self._session.follow(turn))
        return True

    def _see(self, turn: Coroutine[Any, Any, Seen]) -> bool:
        """See a turn to its end, asking for the answers that it waits for.

        Raises:
            EOFError: Ctrl-D in place of an answer.
        """
        seen = self._runner.run(turn)
        while seen == "asks":
            try:
                answers = [(one, _answer(one)) for one in self._session.asked]
            except KeyboardInterrupt:
                seen = self._runner.run(self._session.stop())
            else:
                seen = self._runner.run(self._session.go_on(answers))
        return seen == "committed"


def _answer(pending: Pending) -> Answer:
    while (answer := answer_typed(pending.request, input(prompt_for(pending.request)))) is None:
        pass
    return answer


def _read_line() -> str:
    line = sys.stdin.readline()
    if not line:
        raise EOFError
    return line.removesuffix("\n")


class _Session:
    """One conversation with one agent."""

    def __init__(self, app: Laneway, agent: str, conversation: str, *, display: TurnDisplay, answers: bool) -> None:
        self._app = app
        self._agent = agent
        self._name = conversation
        self._display = display
        self._answers = answers
        self._stack = AsyncExitStack()
        self._opened: LanewayClient | None = None
        self._turn: Turn | None = None
        self._seen: str | None = None
        self.asked: list[Pending] = []

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

    def left_waiting(self) -> None:
        self._display.say(f"the turn waits on; `--conversation {self._name}` and `laneway pending` find it again")

    async def resume(self, limit: int) -> list[Turn]:
        """Show what was said. Returns the turns that still run or wait."""
        client, lane = self._client, self._client.conversation(self._name).lane(self._agent)
        if lane not in await client.lanes(self._name):
            return []
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
            return []  # no worker: then nothing runs, and the next prompt says so
        return [client.turn(lane, one) for one in (*([status.turn] if status.turn else []), *status.queue)]

    async def follow(self, turn: Turn) -> Seen:
        """See a turn that was left running."""
        self._display.say(f"turn {turn.turn_id} was left running")
        # What it asked may no longer be among its events.
        return "asks" if await self._asks(turn) else await self._show(_ready(turn))

    async def ask(self, prompt: str) -> Seen:
        """Take a turn."""
        conversation = self._client.conversation(self._name)
        return await self._show(conversation.submit(self._agent, prompt))

    async def go_on(self, answers: Sequence[tuple[Pending, Answer]]) -> Seen:
        """Give answers to what was asked, and see the turn on."""
        turn = self._asking
        for pending, answer in answers:
            try:
                await turn.answer(pending.request.id, answer)
            except LanewayError as error:
                # Others may have answered, or the turn may have ended, while the person was asked.
                self._display.failed(error)
        return "asks" if await self._asks(turn) else await self._show(_ready(turn))

    async def stop(self) -> Seen:
        """Cancel the turn that asked."""
        await self._asking.cancel()
        return await self._show(_ready(self._asking))

    @property
    def _asking(self) -> Turn:
        assert self._turn is not None
        return self._turn

    async def _asks(self, turn: Turn) -> bool:
        """Whether the turn waits for what the person here can answer."""
        if not self._answers:
            return False
        self._turn, self.asked = turn, [one for one in await turn.pending() if one.request.kind != "delegation"]
        return bool(self.asked)

    async def _show(self, submit: Coroutine[Any, Any, Turn]) -> Seen:
        accepted = asyncio.ensure_future(submit)
        self._display.begin()
        try:
            try:
                turn = await asyncio.shield(accepted)
                async for event in turn.events(after=self._seen):
                    self._seen = event.event_id
                    self._display.take(event)
                    if question_line(event) is not None and await self._asks(turn):
                        return "asks"
            except asyncio.CancelledError:
                _stay()
                self._display.say("stopping the turn; Ctrl-C again leaves at once")
                # It may be accepted at this very moment, and must not run on unseen.
                turn = await accepted
                await turn.cancel()
            self._display.committed(await turn.result())
        except LanewayError as error:
            self._display.failed(error)
            return "ended"
        finally:
            self._display.end()
        return "committed"


async def _ready(turn: Turn) -> Turn:
    return turn


def _stay() -> None:
    """Take back the cancellation that Ctrl-C was made into: it was meant for the turn."""
    task = asyncio.current_task()
    assert task is not None
    task.uncancel()
