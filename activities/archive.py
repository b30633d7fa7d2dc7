"""The archive of a turn: where what does not stay in history is put, and read back from."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

from laneway.errors import StoreFull, ToolOutputTooLarge
from laneway.history.archival import READ_TOOL, ArchivePlan, HistoryArchiveSettings, plan_archive
from laneway.history.archives import ArchivedItem, Archives
from laneway.history.dialect import MessageDialect, MessageT
from laneway.history.editing import EditRequest
from laneway.history.heads import Fence

__all__ = ["READ_CHARS", "TurnArchive", "no_such", "put_exchanges", "too_large"]

_log = logging.getLogger(__name__)

READ_CHARS = 20_000
"""The most characters that one reading of an archive gives."""

_SHOWN_CHARS = 2_000


class TurnArchive:
    """What an attempt at a step of a turn archives and reads.

    Args:
        archives: the store's.
        fence: the attempt.
    """

    def __init__(self, archives: Archives, fence: Fence) -> None:
        self._archives = archives
        self._fence = fence

    async def put(self, item: ArchivedItem) -> str:
        """Archive something; its reference. Raises as `Archives.put` does."""
        return await self._archives.put(self._fence, item)

    async def read(self, reference: str, offset: int, render: Callable[[Sequence[bytes]], str]) -> str:
        """A part of an archived item as text, for the model that asked for it.

        Args:
            reference: which.
            offset: from which character on.
            render: makes a text of archived messages.
        """
        item = await self._archives.get(self._fence.lane, reference, turn_id=self._fence.turn_id)
        if item is None:
            return no_such(reference)
        text = item.payloads[0].decode() if item.kind == "result" else render(item.payloads)
        if offset < 0 or (offset >= len(text) and offset):
            return f"offset={offset} is outside of archive {reference}: it has {len(text)} characters."
        part = text[offset : offset + READ_CHARS]
        end = offset + len(part)
        if end == len(text) and not offset:
            return part
        more = f" {READ_TOOL} with offset={end} goes on." if end < len(text) else ""
        return f"{part}\n[Characters {offset} to {end} of {len(text)}.{more}]"

    async def instead_of(self, tool: str, result: bytes) -> str:
        """Archive a tool's result, as JSON, that is too large for history; the text that stands for it."""
        reference = await self.put(ArchivedItem("result", (result,), tool))
        text = result.decode()
        return (
            f"[The result of {tool} has {len(result)} bytes, too many to be shown. It is stored as {reference}; "
            f'{READ_TOOL}(reference="{reference}") shows it, from offset= on. Its beginning and its end:]\n'
            f"{text[:_SHOWN_CHARS]}\n[…]\n{text[-_SHOWN_CHARS:]}"
        )


async def put_exchanges(
    archive: TurnArchive | None,
    dialect: MessageDialect[MessageT],
    request: EditRequest[MessageT],
    settings: HistoryArchiveSettings,
    *,
    encode: Callable[[MessageT], bytes],
    given: int = 1,
) -> tuple[ArchivePlan, str] | None:
    """Store what may leave the history before a request; what that is and its reference, None where nothing may.

    Args:
        archive: the turn's.
        dialect: what describes the messages.
        request: the request that is about to be sent.
        settings: when, and how much.
        encode: the stored form of a message.
        given: how many messages the turn's prompt is.
    """
    messages = request.messages
    plan = plan_archive(
        dialect,
        messages,
        request.entries,
        settings,
        turn_id=request.run_id or "",
        estimated_tokens=request.estimated_tokens,
        given=given,
    )
    if plan is None or archive is None:
        return None
    if request.binds_reasoning and any(map(dialect.bound_reasoning, messages[plan.start :])):
        return None  # the provider would refuse what the running turn has thought since
    item = ArchivedItem("exchanges", tuple(map(encode, messages[plan.start : plan.end])))
    try:
        return plan, await archive.put(item)
    except StoreFull as error:
        _log.warning("nothing was archived, and the history is as before: %s", error)
        return None


def no_such(reference: str) -> str:
    """What a model is told of a reference that nothing has."""
    return f"There is no archive {reference!r} in this conversation. References look like ar-0123456789abcdef."


def too_large(tool: str, size_bytes: int, limit: int) -> ToolOutputTooLarge:
    """The error for a result that may not enter history, where it is not archived.

    Args:
        tool: whose.
        size_bytes: how large it is, as JSON.
        limit: how large it may be.
    """
    return ToolOutputTooLarge(
        f"tool {tool!r} returned {size_bytes} bytes, and max_tool_result_bytes is {limit}: return less, raise the "
        "limit, or set history_archive, with which such results are archived for the model to read"
    )
