"""Pydantic AI's messages, described: what they are to the rules of history editing. No rule is decided here.

Pydantic AI packs things of different lives into one request: system text, the results of the last tool exchange, the
next prompt. `split` takes such a request apart by its parts; the facts are of requests of one kind of part.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final, TypeGuard

from pydantic_ai.messages import (
    ModelMessage,
    ModelRequest,
    ModelResponse,
    ThinkingPart,
    ToolCallPart,
    ToolReturnPart,
    repair_messages,
)

from laneway.activities.pydantic_content import canonical, is_native_message, weight_of
from laneway.activities.pydantic_parts import (
    PartKind,
    facts_of_request,
    facts_of_response,
    is_bound,
    is_result,
    kind_of,
    name_of_block,
)
from laneway.history.detachment import detached
from laneway.history.dialect import EntryFacts, EntryWeight
from laneway.history.origins import HistoryOrigin

__all__ = ["PydanticDialect", "binds_reasoning"]

_ORDER: Final[tuple[PartKind, ...]] = ("results", "system", "checkpoint", "feedback", "prompt")
"""The order in which a request is taken apart: results end what came before, system text stands between two cycles."""

NO_RESULT: Final = "No result was recorded for this call."


def binds_reasoning(profile: Mapping[str, object]) -> bool:
    """Whether a model ties its thinking blocks to everything before them, by its Pydantic AI profile."""
    return profile.get("anthropic_binds_thinking_blocks") is True


class PydanticDialect:
    """Describes `ModelMessage`s, as `RepairableDialect` asks. It holds no state."""

    def is_native(self, value: object) -> TypeGuard[ModelMessage]:
        """Whether a value is a request or a response made of Pydantic AI's own parts."""
        return is_native_message(value)

    def split(self, message: ModelMessage) -> tuple[ModelMessage, ...]:
        """The message, or the requests of one kind of part that it holds."""
        if isinstance(message, ModelResponse):
            return (message,)
        kinds = [kind_of(part) for part in message.parts]
        present = [kind for kind in _ORDER if kind in kinds]
        if len(present) <= 1:
            return (message,)
        # What only records a change of tools or settings stays with what it was sent beside.
        carrier = "results" if "results" in present else present[-1]
        pieces: list[ModelMessage] = []
        for kind in present:
            taken = {kind, "rider"} if kind == carrier else {kind}
            parts = [part for part, its in zip(message.parts, kinds, strict=True) if its in taken]
            # Instructions are the whole request's. Left on an earlier piece they would keep the framework from
            # merging it, where it stays alone, with the request that follows it then.
            instructions = message.instructions if kind == present[-1] else None
            pieces.append(replace(message, parts=parts, instructions=instructions))
        return tuple(pieces)

    def facts(self, message: ModelMessage) -> EntryFacts:
        """What the rules need to know of a message that `split` returned."""
        return facts_of_response(message) if isinstance(message, ModelResponse) else facts_of_request(message)

    def content(self, message: ModelMessage) -> bytes:
        """What the message says, in canonical form."""
        return canonical(message)

    def detached(self, message: ModelMessage) -> ModelMessage:
        """A deep copy."""
        return detached(message)

    def weight(self, message: ModelMessage) -> EntryWeight:
        """Everything of the message that a model is sent, its instructions apart, which are not history."""
        return weight_of(message)

    def origins(
        self, message: ModelMessage, *, run_id: str | None, source_location: str | None
    ) -> tuple[HistoryOrigin, ...]:
        """One origin a tool result, and one for every other kind of thing in the message."""
        if isinstance(message, ModelResponse):
            return (HistoryOrigin("model", run_id, source_location),)
        origins: list[HistoryOrigin] = []
        for part in message.parts:
            if is_result(part):
                origins.append(HistoryOrigin("tool", run_id, source_location, part.tool_name, part.tool_call_id))
                continue
            match kind_of(part):
                case "system":
                    origins.append(HistoryOrigin("system", run_id, source_location))
                case "prompt":
                    origins.append(HistoryOrigin("user", run_id, source_location))
                case _:
                    origins.append(HistoryOrigin("framework", run_id, source_location))
        return tuple(dict.fromkeys(origins))

    def bound_reasoning(self, message: ModelMessage) -> tuple[str, ...]:
        """Names of the thinking blocks that Claude signed."""
        if not isinstance(message, ModelResponse):
            return ()
        return tuple(
            name_of_block(part) for part in message.parts if isinstance(part, ThinkingPart) and is_bound(message, part)
        )

    def without_bound_reasoning(self, message: ModelMessage) -> ModelMessage | None:
        """The message without those blocks; None if it was nothing but them."""
        if not isinstance(message, ModelResponse):
            return message
        parts = [part for part in message.parts if not is_bound(message, part)]
        return replace(message, parts=parts) if parts else None

    def settle(self, messages: Sequence[ModelMessage]) -> list[tuple[ModelMessage, int]]:
        """The framework's own normal form. It merges neighbours and moves parts; of a valid history it drops none."""
        settled: list[tuple[ModelMessage, int]] = []
        start = 0
        for message in repair_messages(messages, repair_last_response=False):
            end, parts = start, -1
            while end < len(messages) and parts < len(message.parts) and messages[end].kind == message.kind:
                parts = max(parts, 0) + len(messages[end].parts)
                end += 1
            if parts != len(message.parts):
                break
            is_untouched = end == start + 1 and messages[start] == message
            settled.append((messages[start] if is_untouched else message, end - start))
            start = end
        if start < len(messages):
            # Something was dropped or invented: the history was not valid before anybody edited it, and its repair is
            # for an import to ask for.
            return [(message, 1) for message in messages]
        return settled

    def answers(self, model: ModelMessage, calls: Sequence[int]) -> Sequence[ModelMessage]:
        """A request that answers calls of a response as interrupted. It is the same for the same response."""
        made = [part for part in model.parts if isinstance(part, ToolCallPart)]
        returns = [
            ToolReturnPart(
                tool_name=made[call].tool_name,
                content=NO_RESULT,
                tool_call_id=made[call].tool_call_id,
                tool_kind=made[call].tool_kind,
                outcome="interrupted",
            )
            for call in calls
        ]
        if model.timestamp is not None:
            for part in returns:
                part.timestamp = model.timestamp
        return [ModelRequest(parts=returns)]

    def with_ids(self, message: ModelMessage, ids: Sequence[str]) -> ModelMessage:
        """The message with its calls, or its results, given these ids."""
        new = iter(ids)
        if isinstance(message, ModelResponse):
            return replace(
                message,
                parts=[
                    replace(part, tool_call_id=next(new)) if isinstance(part, ToolCallPart) else part
                    for part in message.parts
                ],
            )
        parts = [replace(part, tool_call_id=next(new)) if is_result(part) else part for part in message.parts]
        return replace(message, parts=parts)

    def without_results(self, message: ModelMessage, results: Sequence[int]) -> ModelMessage | None:
        """The message without these results; None if it was nothing but them."""
        if isinstance(message, ModelResponse):
            return message
        given = [part for part in message.parts if is_result(part)]
        dropped = {id(given[result]) for result in results}
        parts = [part for part in message.parts if id(part) not in dropped]
        return replace(message, parts=parts) if parts else None
