"""Exact archival for graphs: before a model node, of results that are too large, and the tool that reads it back.

A compiled graph has its tools bound already, so its author gives it the tool when it is made. The tool finds the turn's
archive in the context of the step that runs it.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Collection, Generator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Final

from langchain_core.messages import AIMessage, BaseMessage, ToolMessage
from langchain_core.tools import BaseTool, StructuredTool

from laneway.activities.archive import TurnArchive, no_such, put_exchanges, too_large
from laneway.activities.from_threads import wait_for
from laneway.activities.langchain_codec import MessageCodec
from laneway.activities.langchain_editing import DIALECT, NodeRequest, describe, request_of, with_ids
from laneway.activities.langchain_growth import History
from laneway.activities.langchain_parts import blocks_of
from laneway.activities.langchain_recorded import has_begun
from laneway.activities.langchain_summary import LangChainText
from laneway.errors import ConfigurationError
from laneway.history.archival import READ_TOOL, ArchivePlan, HistoryArchiveSettings, archive
from laneway.history.editing import EditOutcome
from laneway.history.model_calls import CallJournal
from laneway.history.stored_json import any_json

__all__ = ["archive_before", "archive_tools", "bounded", "check_archival", "readable"]

_KEY: Final = "archive"
_TEXT: Final = LangChainText()
_BLOCKING: Final = (
    f"{READ_TOOL} is called synchronously in an asynchronous node, which would wait for itself: call it with ainvoke"
)


async def archive_before(
    request: NodeRequest,
    settings: HistoryArchiveSettings,
    *,
    owner: object,
    archived: TurnArchive | None,
    journal: CallJournal,
    codec: MessageCodec,
    given: int,
) -> EditOutcome[BaseMessage] | None:
    """Archive what may be, before a model node; None where nothing is. The same again on each attempt at the step.

    Args:
        request: the request.
        settings: when, and how much.
        owner: the adapter.
        archived: the turn's archive.
        journal: the step's.
        codec: how messages are stored.
        given: how many messages the turn's prompt is.
    """
    asked = request_of(request, owner=owner)
    kept = journal.finished(_KEY)
    if kept is None:
        if has_begun(journal):
            return None  # tasks that have finished were given the history as it is
        stored = await put_exchanges(archived, DIALECT, asked, settings, encode=codec.encode, given=given)
        if stored is None:
            return None
        found, reference = stored
        kept = await journal.finish(_KEY, json.dumps([found.start, found.end, found.exchanges, reference]).encode())
    start, end, exchanges, reference = json.loads(kept)
    plan = ArchivePlan(start, end, exchanges)
    results = list(_results(request.messages[start:end]))
    return with_ids(request, archive(DIALECT, asked, plan, reference, results=results, user_text=_TEXT.user_text))


def _results(messages: Sequence[BaseMessage]) -> Generator[tuple[str, str]]:
    """The tool and the outcome of each call of whole exchanges."""
    tools: dict[str, str] = {}
    for message in messages:
        if isinstance(message, AIMessage):
            tools.update({call["id"] or "": call["name"] for call in message.tool_calls})
        elif isinstance(message, ToolMessage):
            failed = message.status == "error"
            yield message.name or tools.get(message.tool_call_id, "tool"), "failed" if failed else "returned"
        else:
            for block in blocks_of(message):
                if block.get("type") == "tool_result":
                    name = tools.get(str(block.get("tool_use_id")), "tool")
                    yield name, "failed" if block.get("is_error") else "returned"


async def bounded(
    history: History,
    known: Collection[int],
    *,
    max_bytes: int | None,
    archived: TurnArchive | None,
    turn_id: str,
) -> History:
    """A history without results of tools that are too large for it: they are archived, and shown by their ends.

    Args:
        history: the history after a superstep.
        known: its messages from before it, by `id()`.
        max_bytes: how large a result may be, as JSON; None for any size.
        archived: where larger ones are put; None where they fail the turn.
        turn_id: the turn.

    Raises:
        ToolOutputTooLarge: one is larger, and is not archived.
    """
    if max_bytes is None:
        return history
    messages, entries = list(history.messages), list(history.entries)
    for place, message in enumerate(messages):
        if id(message) in known or not isinstance(message, ToolMessage) or message.name == READ_TOOL:
            continue
        result = any_json(message.content)
        if len(result) <= max_bytes:
            continue
        tool = message.name or message.tool_call_id
        if archived is None:
            raise too_large(tool, len(result), max_bytes)
        text = await archived.instead_of(tool, result)
        messages[place] = message.model_copy(update={"content": text})
        entries[place] = describe(messages[place], turn_id)
    return History(messages, entries)


# The tool -------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Reader:
    """Reads archives for the tools of one step."""

    archived: TurnArchive
    codec: MessageCodec
    loop: asyncio.AbstractEventLoop

    async def read(self, reference: str, offset: int) -> str:
        return await self.archived.read(reference, offset, self._render)

    def _render(self, payloads: Sequence[bytes]) -> str:
        lines = (line for payload in payloads for line in _TEXT.lines(self.codec.decode(payload)))
        return "\n".join(map(str, lines))


_reader: Final[ContextVar[_Reader | None]] = ContextVar("laneway_archive_reader", default=None)


@contextmanager
def readable(archived: TurnArchive | None, codec: MessageCodec) -> Generator[None]:
    """Inside, the tool reads from a turn's archive."""
    reader = None if archived is None else _Reader(archived, codec, asyncio.get_running_loop())
    token = _reader.set(reader)
    try:
        yield
    finally:
        _reader.reset(token)


def _read(reference: str, offset: int = 0) -> str:
    """Read what was archived of this conversation, exactly as it was.

    Args:
        reference: the archive's name, such as ar-0123456789abcdef.
        offset: from which character on, where an earlier reading was not the whole.
    """
    reader = _reader.get()
    if reader is None:
        return no_such(reference)
    return wait_for(reader.read(reference, offset), reader.loop, refusal=_BLOCKING)


async def _aread(reference: str, offset: int = 0) -> str:
    reader = _reader.get()
    return no_such(reference) if reader is None else await reader.read(reference, offset)


def archive_tools() -> list[BaseTool]:
    """The tool by which a graph's model reads archives, to be given to the graph when it is made."""
    return [StructuredTool.from_function(_read, _aread, name=READ_TOOL, parse_docstring=True)]


def check_archival(
    settings: object, tools: Mapping[str, BaseTool], model_nodes: Collection[str], *, graph: str
) -> None:
    """Make sure that a graph can do with archival.

    Args:
        settings: as the adapter was given them; None for no archival.
        tools: the graph's, by name.
        model_nodes: the nodes that ask a model.
        graph: its name.

    Raises:
        ConfigurationError: it has not the tool that reads archives, or no node before which anything would be archived.
    """
    if settings is None:
        return
    if not model_nodes:
        raise ConfigurationError(
            f"no model is found in the nodes of the graph {graph!r}, so that nothing would be archived: name the nodes "
            "that ask one with model_nodes"
        )
    if getattr(tools.get(READ_TOOL), "coroutine", None) is not _aread:
        raise ConfigurationError(
            f"history_archive: the graph {graph!r} has no tool {READ_TOOL}, by which its model reads what is archived: "
            "make it with tools=[…, *LangChainAdapter.archive_tools()]"
        )
