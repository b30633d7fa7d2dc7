"""`laneway send`: one turn, for scripts."""

from __future__ import annotations

import asyncio
import sys
from dataclasses import asdict
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from laneway.activities.wire import WhenBusy
from laneway.cli.apps import AppTarget, load_app
from laneway.cli.edits import edit_line
from laneway.cli.output import note, write, write_json
from laneway.cli.places import locate, open_client
from laneway.cli.questions import question_line, where_to_answer
from laneway.cli.rendering import output_text, result_json
from laneway.errors import InvalidInput

if TYPE_CHECKING:
    from laneway.turns import Turn

__all__ = ["send_prompt"]


async def send_prompt(
    target: str,
    conversation: str,
    agent: str,
    prompt: str,
    *,
    turn_id: str | None,
    timeout: float | None,
    when_busy: WhenBusy,
    wait: bool,
    data_dir: Path,
    as_json: bool,
) -> None:
    """Submit a turn, and write its output once it is committed; without `wait`, its id once it is accepted."""
    from laneway.activities.agents import Agents
    from laneway.history.lanes import check_name

    # All that can be refused is refused before anything is connected.
    check_name(conversation, what="the conversation id")
    if turn_id is not None:
        check_name(turn_id, what="the turn id")
    agents = Agents(load_app(AppTarget.parse(target)).agents)
    adapter = agents[agent]
    text = _read_stdin() if prompt == "-" else prompt
    adapter.encode_prompt(text)
    async with open_client(agents, await locate(data_dir)) as client:
        turn = await client.conversation(conversation).submit(
            agent,
            text,
            turn_id=turn_id,
            timeout=None if timeout is None else timedelta(seconds=timeout),
            when_busy=when_busy,
        )
        if not wait:
            if as_json:
                write_json({"turn_id": turn.turn_id, "outcome": "accepted"})
            else:
                write(f"{turn.turn_id}\n")
            return
        waits = asyncio.create_task(_tell_waits(turn))
        try:
            result = await turn.result()
        except asyncio.CancelledError:
            note(f"turn {turn.turn_id} goes on; `laneway cancel {conversation} {agent} {turn.turn_id}` stops it")
            raise
        finally:
            waits.cancel()
            await asyncio.gather(waits, return_exceptions=True)
        edits = () if as_json else (await turn.record()).tally.edits
    if as_json:
        write_json(result_json(result))
    else:
        for edit in edits:
            note(edit_line(asdict(edit)))
        write(output_text(result.output) + "\n")


async def _tell_waits(turn: Turn) -> None:
    """Say what the turn waits for: without an answer it goes no further."""
    async for event in turn.events():
        if question := question_line(event):
            note(f"{question}: {where_to_answer(event)}")


def _read_stdin() -> str:
    try:
        return sys.stdin.read().removesuffix("\n")
    except UnicodeDecodeError as error:
        raise InvalidInput(f"the prompt on standard input is not {error.encoding} text: {error.reason}") from error
