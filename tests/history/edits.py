"""What the tests of history editing share: the example cases, the edits they describe, and a pass over a history."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from langchain_core.messages import messages_from_dict, messages_to_dict
from pydantic_ai.messages import ModelMessage, ModelMessagesTypeAdapter

from laneway.activities.langchain_messages import LangChainDialect
from laneway.activities.pydantic_messages import PydanticDialect
from laneway.history.context import HistoryProcessor, HistoryProcessorCondition, HistoryProcessorContext
from laneway.history.editing import EditOutcome, EditRequest, edit_history
from laneway.history.estimation import estimate_history
from laneway.history.origins import EntryMetadata
from laneway.history.scopes import HistoryProcessingInForce

CASES = Path(__file__).parent / "cases"
DIALECT = PydanticDialect()

Context = HistoryProcessorContext[ModelMessage]


@dataclass(frozen=True)
class Frame:
    """One framework's messages, as the tests of both frameworks need them."""

    name: str
    dialect: Any
    load: Callable[[Any], list[Any]]
    dump: Callable[[list[Any]], list[Any]]

    def __str__(self) -> str:
        return self.name


PYDANTIC = Frame(
    "pydantic_ai",
    DIALECT,
    ModelMessagesTypeAdapter.validate_python,
    lambda messages: ModelMessagesTypeAdapter.dump_python(messages, mode="json"),
)
LANGCHAIN = Frame("langchain", LangChainDialect(), messages_from_dict, messages_to_dict)
FRAMES = [PYDANTIC, LANGCHAIN]


def cases(kind: str) -> list[dict[str, Any]]:
    """The example cases of one kind, in the order of their names."""
    return [json.loads(path.read_text()) for path in sorted(CASES.glob(f"{kind}-*.json"))]


def messages_of(stored: object) -> list[ModelMessage]:
    """Messages from their serialised form."""
    return ModelMessagesTypeAdapter.validate_python(stored)


def entries_of(messages: Sequence[Any], run_id: str | None = None, *, frame: Frame = PYDANTIC) -> list[EntryMetadata]:
    """The metadata that a store would hold for messages of one run."""
    origins = frame.dialect.origins
    return [EntryMetadata(origins(message, run_id=run_id, source_location="test")) for message in messages]


def request_for(
    messages: Sequence[Any],
    entries: Sequence[EntryMetadata] | None = None,
    *,
    request_index: int = 1,
    binds_reasoning: bool = False,
    current_start: int | None = None,
    owner: object = "adapter",
    frame: Frame = PYDANTIC,
) -> EditRequest[Any]:
    """A request about to be sent with these messages."""
    known = entries_of(messages, frame=frame) if entries is None else entries
    return EditRequest(
        messages=messages,
        entries=known,
        adapter_shortname=frame.name,
        model_id="test:model",
        request_index=request_index,
        cache_epoch=3,
        estimated_tokens=estimate_history(frame.dialect, messages, known),
        history_version="v1",
        owner=owner,
        run_id="turn-9",
        binds_reasoning=binds_reasoning,
        current_start=current_start,
    )


async def edit(
    request: EditRequest[Any],
    processor: HistoryProcessor[Any] | None,
    condition: HistoryProcessorCondition | None = None,
    *,
    frame: Frame = PYDANTIC,
) -> EditOutcome[Any]:
    """One pass of editing."""
    return await edit_history(frame.dialect, request, HistoryProcessingInForce(processor, condition))


def says(message: ModelMessage) -> bytes:
    """What a message says, to compare histories by content."""
    return DIALECT.content(message)


def processor_of(operations: Sequence[dict[str, Any]], frame: Frame = PYDANTIC) -> Callable[[Any], Any]:
    """The processor that makes a case's edit. Indices and group numbers are those of the input."""

    def process(ctx: HistoryProcessorContext[Any]) -> Any:
        slots: list[list[Any]] = [[message] for message in ctx.messages]
        for operation in operations:
            match operation["op"]:
                case "keep":
                    return [ctx.messages[index] for index in operation["indices"]]
                case "drop":
                    slots[operation["index"]] = []
                case "drop_part":
                    message = slots[operation["index"]][0]
                    parts = [part for at, part in enumerate(message.parts) if at != operation["part"]]
                    changed = copy.copy(message)
                    changed.parts = parts
                    slots[operation["index"]] = [changed]
                case "insert":
                    new = frame.load([operation["message"]])
                    if operation["at"] == len(slots):
                        slots.append(new)
                    else:
                        slots[operation["at"]] = new + slots[operation["at"]]
                case "replace":
                    slots[operation["index"]] = frame.load([operation["message"]])
                case "drop_group" | "replace_group":
                    group = ctx.groups[operation["group"]]
                    for index in range(group.entry_start, group.entry_end):
                        slots[index] = []
                    slots[group.entry_start] = frame.load(operation.get("messages", []))
                case "swap_groups":
                    numbers = list(range(len(ctx.groups)))
                    first, second = operation["first"], operation["second"]
                    numbers[first], numbers[second] = second, first
                    return [
                        message
                        for number in numbers
                        for message in ctx.messages[ctx.groups[number].entry_start : ctx.groups[number].entry_end]
                    ]
                case "keep_recent":
                    return ctx.keep_recent_groups(operation["n"])
                case "raise":
                    raise RuntimeError("the processor failed")
                case "return":
                    return _returned(operation["what"], ctx, frame)
                case unknown:
                    raise AssertionError(f"unknown operation {unknown!r}")
        return [message for slot in slots for message in slot]

    return process


def _returned(what: str, ctx: HistoryProcessorContext[Any], frame: Frame) -> object:
    match what:
        case "empty":
            return []
        case "none":
            return None
        case "dicts":
            return frame.dump(ctx.messages)
        case "one_dict":
            return frame.dump(ctx.messages)[0]
        case "text":
            return "the history"
        case "iterator":
            return iter(ctx.messages)
        case "tuple":
            return tuple(copy.deepcopy(ctx.messages))
        case "copy":
            return copy.deepcopy(ctx.messages)
        case unknown:
            raise AssertionError(f"unknown return {unknown!r}")
