"""`laneway compact`: sums up a lane's history on demand."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

from laneway.cli.apps import AppTarget, load_app
from laneway.cli.edits import edit_line
from laneway.cli.output import safe, write, write_json
from laneway.cli.places import locate, open_client

__all__ = ["compact_lane"]


async def compact_lane(
    target: str,
    conversation: str,
    agent: str,
    *,
    focus: str | None,
    keep: int,
    turn_id: str | None,
    data_dir: Path,
    as_json: bool,
) -> None:
    """Sum up a lane's history, and write what happened, or why nothing did."""
    from laneway.activities.agents import Agents
    from laneway.history.lanes import check_name

    # All that can be refused is refused before anything is connected.
    check_name(conversation, what="the conversation id")
    if turn_id is not None:
        check_name(turn_id, what="the turn id")
    agents = Agents(load_app(AppTarget.parse(target)).agents)
    agents[agent]
    async with open_client(agents, await locate(data_dir)) as client:
        report = await client.conversation(conversation).compact(agent, focus=focus, keep=keep, turn_id=turn_id)
    if as_json:
        write_json(asdict(report))
    elif report.compacted and report.receipt is not None:
        write(safe(edit_line(asdict(report.receipt))) + "\n")
    else:
        write(safe(f"nothing was compacted: {report.reason}") + "\n")
