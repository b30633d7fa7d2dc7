"""Exact archival in a Pydantic AI run: what is archived before a request, and the tool that reads it back."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from pydantic_ai.capabilities import AbstractCapability
from pydantic_ai.messages import (
    BaseToolReturnPart,
    ModelMessage,
    ModelRequest,
    RetryPromptPart,  # pyright: ignore[reportDeprecated]
)
from pydantic_ai.models import Model
from pydantic_ai.toolsets import AbstractToolset, FunctionToolset

from laneway.activities.adapter import StepWork
from laneway.activities.archive import TurnArchive, put_exchanges
from laneway.activities.pydantic_editing import DIALECT, describe, measured, request_of
from laneway.activities.pydantic_summary import PydanticText
from laneway.history.archival import READ_TOOL, HistoryArchiveSettings, archive
from laneway.history.editing import EditOutcome
from laneway.history.origins import EntryMetadata

__all__ = ["ArchiveReader", "archive_before"]

_TEXT = PydanticText()


async def archive_before(
    work: StepWork[ModelMessage],
    settings: HistoryArchiveSettings,
    *,
    owner: object,
    model: Model,
    encode: Callable[[ModelMessage], bytes],
    messages: Sequence[ModelMessage],
    entries: Sequence[EntryMetadata],
    request: ModelRequest,
    request_index: int,
    live: int,
) -> EditOutcome[ModelMessage] | None:
    """Archive what may be, before a request is edited and sent; None where nothing is.

    Args:
        work: the step.
        settings: when, and how much.
        owner: the adapter.
        model: the model that the request goes to.
        encode: the stored form of a message.
        messages: the history before the request.
        entries: what is known of each of its messages.
        request: the request.
        request_index: which request of the turn it is, from 1.
        live: see `Continuity`.
    """
    whole, known = [*messages, request], [*entries, describe(request, work.turn_id)]
    asked = request_of(
        work,
        owner=owner,
        model=model,
        messages=whole,
        entries=known,
        request_index=request_index,
        estimated_tokens=measured(whole, known, live).history_tokens,
    )
    stored = await put_exchanges(work.archive, DIALECT, asked, settings, encode=encode)
    if stored is None:
        return None
    plan, reference = stored
    results = [result for message in whole[plan.start : plan.end] for result in _results(message)]
    return archive(DIALECT, asked, plan, reference, results=results, user_text=_TEXT.user_text)


def _results(message: ModelMessage) -> list[tuple[str, str]]:
    found: list[tuple[str, str]] = []
    for part in message.parts:
        match part:
            case BaseToolReturnPart():
                found.append((part.tool_name, "returned" if part.outcome == "success" else part.outcome))
            case RetryPromptPart(tool_name=str(name)):  # pyright: ignore[reportDeprecated]
                found.append((name, "to be tried again"))
            case _:
                pass
    return found


class ArchiveReader(AbstractCapability[Any]):
    """Gives the model the tool that reads archives."""

    def __init__(self, archived: TurnArchive, decode: Callable[[bytes], ModelMessage]) -> None:
        super().__init__()
        self._archived = archived
        self._decode = decode

    def get_toolset(self) -> AbstractToolset[Any]:
        toolset = FunctionToolset[Any](id="laneway-archive")
        toolset.add_function(self.read_archived, name=READ_TOOL)
        return toolset

    async def read_archived(self, reference: str, offset: int = 0) -> str:
        """Read what was archived of this conversation, exactly as it was.

        Args:
            reference: the archive's name, such as ar-0123456789abcdef.
            offset: from which character on, where an earlier reading was not the whole.
        """
        return await self._archived.read(reference, offset, self._render)

    def _render(self, payloads: Sequence[bytes]) -> str:
        lines = (line for payload in payloads for line in _TEXT.lines(self._decode(payload)))
        return "\n".join(map(str, lines))
