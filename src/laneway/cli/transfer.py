"""`laneway export` and `laneway import`: a lane's history as a JSON file, in its framework's own list form."""

from __future__ import annotations

import json
import sys
from base64 import b64decode, b64encode
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from laneway.cli.apps import AppTarget, load_app
from laneway.cli.edits import repair_line
from laneway.cli.failures import NotFound
from laneway.cli.lanes import check_lane, choose_lane, find_lanes
from laneway.cli.output import one_line, safe, write, write_json
from laneway.cli.places import locate, open_client, open_store
from laneway.errors import HistoryProcessingValidationError, InvalidInput

if TYPE_CHECKING:
    from laneway.activities.adapter import Adapter

__all__ = ["export_lane", "import_history"]

_STANDARD = "-"
_NOT_NATIVE = "not_native"
_REPAIRABLE = {
    "orphan_call": "a tool call in it has no result right after it; --repair answers it with that",
    "orphan_result": "it has a tool result that no call before it asked for; --repair removes it",
    "reused_call_id": "a tool call in it has the id of an earlier one; --repair gives it another",
}


# Export ---------------------------------------------------------------------------------------------------------------


async def export_lane(
    conversation: str,
    agent: str,
    *,
    app: str | None,
    contract: str | None,
    output: str,
    archives: bool,
    data_dir: Path,
    as_json: bool,
) -> None:
    """Write a lane's committed history, as it is stored: a list with one message a line; or with what was archived."""
    from laneway.activities.agents import Agents

    check_lane(conversation, agent)
    agents = None if app is None else Agents(load_app(AppTarget.parse(app)).agents)
    if agents is not None:
        agents[agent]  # an unknown agent is told before anything is connected
    async with open_store(await locate(data_dir)) as store:
        lane = await choose_lane(store, await find_lanes(store, conversation, agent), agents, contract)
        checkpoint = (await store.head(lane)).checkpoint
        entries = await store.history(lane, checkpoint)
        archived = await store.archives.all_of(lane)
    if not entries:
        raise NotFound(
            f"the lane of conversation {conversation!r} with agent {agent!r} has no committed messages: there is "
            "nothing to export"
        )
    blob = b"[\n" + b",\n".join(entry.payload for entry in entries) + b"\n]\n"
    if archives:
        stored = {reference: b64encode(item).decode() for reference, item in archived.items()}
        blob = b"".join((b'{"archives": ', json.dumps(stored).encode(), b',\n"messages": ', blob.rstrip(), b"}\n"))
    elif archived:
        sys.stderr.write(
            f"laneway: {len(archived)} archived items are left out, and what the history refers to cannot be read "
            "elsewhere: --archives writes them too\n"
        )
    if output == _STANDARD:
        sys.stdout.flush()
        sys.stdout.buffer.write(blob)
        sys.stdout.buffer.flush()
        return
    _write_file(output, blob)
    if as_json:
        write_json(
            {
                "conversation": conversation,
                "agent": agent,
                "contract": lane.contract,
                "checkpoint": asdict(checkpoint),
                "output": output,
            }
        )
    else:
        write(safe(f"{len(entries)} messages written to {output}") + "\n")


def _write_file(name: str, blob: bytes) -> None:
    try:
        Path(name).write_bytes(blob)
    except OSError as error:
        raise InvalidInput(f"{name} cannot be written: {error.strerror}; name another file with --output") from error


# Import ---------------------------------------------------------------------------------------------------------------


async def import_history(
    target: str,
    conversation: str,
    agent: str,
    file: str,
    *,
    repair: bool,
    turn_id: str | None,
    data_dir: Path,
    as_json: bool,
) -> None:
    """Open a lane with the history in a file, and write what was repaired."""
    from laneway.activities.agents import Agents
    from laneway.activities.archive_transfer import checked_archives
    from laneway.history.lanes import check_name

    # All that can be refused is refused before anything is connected.
    check_name(conversation, what="the conversation id")
    if turn_id is not None:
        check_name(turn_id, what="the turn id")
    agents = Agents(load_app(AppTarget.parse(target)).agents)
    adapter = agents[agent]
    items, archives = _taken_apart(_read(file), file=file)
    messages = _decoded(adapter, items, file=file)
    _check(adapter, messages, repair=repair)
    checked_archives(archives, adapter)
    async with open_client(agents, await locate(data_dir)) as client:
        record = await client.conversation(conversation).import_messages(
            agent, messages, repair=repair, archives=archives, turn_id=turn_id
        )
    assert record.checkpoint is not None
    if as_json:
        write_json(
            {
                "turn_id": record.turn_id,
                "outcome": record.outcome,
                "checkpoint": asdict(record.checkpoint),
                "repairs": [asdict(one) for one in record.repairs],
            }
        )
        return
    write(f"{record.checkpoint.length} messages imported (turn {record.turn_id})\n")
    for one in record.repairs:
        write(f"message {one.index}: {repair_line(one)}\n")


def _taken_apart(value: object, *, file: str) -> tuple[Sequence[object], dict[str, bytes]]:
    """The messages in a file, and what was archived.

    Raises:
        InvalidInput: it is neither a list nor what `laneway export --archives` writes.
    """
    what = "standard input" if file == _STANDARD else file
    archives: dict[str, bytes] = {}
    whole = cast("dict[str, object]", value if isinstance(value, dict) else {})
    if set(whole) == {"archives", "messages"}:
        try:
            given = cast("dict[str, str]", whole["archives"])
            archives = {reference: b64decode(one, validate=True) for reference, one in given.items()}
        except (AttributeError, TypeError, ValueError) as error:
            raise InvalidInput(f"the archives in {what} cannot be read: {error}; export them again") from error
        value = whole["messages"]
    if not isinstance(value, list):
        kind = _kind(cast("object", value))
        raise InvalidInput(f"{what} holds {kind}, not a list of messages; give what `laneway export` writes")
    return cast("list[object]", value), archives


def _read(file: str) -> object:
    """The JSON in a file.

    Raises:
        InvalidInput: there is no file, or no JSON.
    """
    what = "standard input" if file == _STANDARD else file
    try:
        blob = sys.stdin.buffer.read() if file == _STANDARD else Path(file).read_bytes()
    except OSError as error:
        raise InvalidInput(f"{what} cannot be read: {error.strerror}; give a file of JSON, or - for stdin") from error
    try:
        value: object = json.loads(blob)
    except (ValueError, RecursionError) as error:  # of text that is not UTF-8, too
        raise InvalidInput(f"{what} is not JSON: {error}; give what `laneway export` writes") from error
    return value


def _kind(value: object) -> str:
    """What a JSON value is, if not a list."""
    match value:
        case dict():
            return "an object"
        case str():
            return "a string"
        case _:
            return json.dumps(value)


def _decoded(adapter: Adapter[Any], items: Sequence[object], *, file: str) -> list[Any]:
    """The native messages.

    Raises:
        HistoryProcessingValidationError: one is none of the agent's framework.
    """
    messages: list[Any] = []
    for index, item in enumerate(items):
        try:
            messages.append(adapter.decode(json.dumps(item).encode()))
        except Exception as error:  # whatever the framework raises for what it cannot read
            what = "standard input" if file == _STANDARD else file
            raise HistoryProcessingValidationError(
                f"{what} breaks the rule {_NOT_NATIVE!r} at message {index}: {adapter.shortname} cannot read it "
                f"({_why(error)})",
                rule=_NOT_NATIVE,
                index=index,
            ) from error
    return messages


def _why(error: Exception) -> str:
    from pydantic import ValidationError

    if not isinstance(error, ValidationError):
        return one_line(f"{type(error).__name__}: {error}", limit=300)
    first = error.errors(include_url=False, include_context=False, include_input=False)[0]
    where = ".".join(map(str, first["loc"]))
    return one_line(f"{where}: {first['msg']}" if where else first["msg"], limit=300)


def _check(adapter: Adapter[Any], messages: Sequence[Any], *, repair: bool) -> None:
    """Check a history whole.

    Raises:
        HistoryProcessingValidationError: it may not be sent; it says what `--repair` would do.
    """
    try:
        adapter.encode_import(messages, repair=repair)
    except HistoryProcessingValidationError as error:
        if error.rule not in _REPAIRABLE:
            raise
        raise HistoryProcessingValidationError(
            f"the imported history breaks the rule {error.rule!r} at message {error.index}: {_REPAIRABLE[error.rule]}",
            rule=error.rule,
            index=error.index,
        ) from error
