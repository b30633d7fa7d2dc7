"""History editing where a Pydantic AI run asks its model, and what of the provider's own state outlives an edit.

An edit happens between the framework's own steps: the request is known, and not yet sent. What the framework will do
with the edited history is what it would do with any other, so nothing of the run has to be told.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, cast

from pydantic_ai import RunContext
from pydantic_ai.messages import ModelMessage, ModelRequest, ModelResponse
from pydantic_ai.models import Model
from pydantic_ai.settings import ModelSettings

from laneway.activities.adapter import StepWork
from laneway.activities.pydantic_messages import PydanticDialect, binds_reasoning
from laneway.activities.pydantic_models import inner_models
from laneway.history.budget import RequestEstimate, UsageCheckpoint, estimate_request
from laneway.history.editing import EditOutcome, EditRequest, edit_history
from laneway.history.estimation import estimate_message
from laneway.history.model_calls import ModelCalls
from laneway.history.origins import EntryMetadata
from laneway.history.scopes import HistoryProcessingInForce

__all__ = ["DIALECT", "Continuity", "describe", "edit", "measured", "request_of", "ties_reasoning"]

DIALECT = PydanticDialect()


def describe(message: ModelMessage, turn_id: str, *, source: str | None = None) -> EntryMetadata:
    """What is known of a message that a turn produced, or that was brought from elsewhere (`source`)."""
    origins = DIALECT.origins(message, run_id=turn_id, source_location=source)
    return EntryMetadata(origins, estimate_message(DIALECT, message))


@dataclass
class Continuity:
    """What of a provider's own state may be used on a lane.

    Attributes:
        cache_identity: names the lane and its cache epoch: within one, a prompt only grows.
        live: index of the first message that came after the history was written anew; 0 where it never was. Response
            and conversation ids before it continue a history that is no more.
    """

    cache_identity: str
    live: int = 0

    def settings(self, ctx: RunContext[Any]) -> ModelSettings:
        """What to lay over a request's settings. The caller's own are read, never changed."""
        given = cast("dict[str, object]", ctx.model_settings or {})
        if all(inner.system != "openai" for inner in inner_models(cast("Model", ctx.model))):
            return ModelSettings()
        changed: dict[str, object] = {}
        if "openai_prompt_cache_key" not in given:
            changed["openai_prompt_cache_key"] = self.cache_identity
        if self.live:
            # Response ids in the history carry a digest of what they continue; a fixed one does not.
            if given.get("openai_previous_response_id") not in (None, "auto"):
                changed["openai_previous_response_id"] = "auto"
            conversation = given.get("openai_conversation_id")
            if conversation is not None and not self._is_live(str(conversation), ctx.messages):
                changed["openai_conversation_id"] = None
        return cast("ModelSettings", changed)

    def _is_live(self, conversation: str, messages: Sequence[ModelMessage]) -> bool:
        ids = _conversation_ids(messages[self.live :])
        return any(conversation in ("auto", one) for one in ids)


def _conversation_ids(messages: Iterable[ModelMessage]) -> Iterator[str]:
    for message in messages:
        if isinstance(message, ModelResponse) and message.provider_details:
            found = message.provider_details.get("conversation_id")
            if isinstance(found, str):
                yield found


def measured(messages: Sequence[ModelMessage], entries: Sequence[EntryMetadata], live: int) -> RequestEstimate:
    """How large a history is: as its provider measured it up to the last answer, estimated from there on.

    An answer's usage holds for exactly what was sent for it, so one from before a rewrite is not looked at.
    """
    for index in range(len(messages) - 1, live - 1, -1):
        message = messages[index]
        if isinstance(message, ModelResponse) and message.usage.input_tokens:
            # What it measured is not looked at again: a long history costs no more than what came since.
            usage = UsageCheckpoint("", 0, message.usage.input_tokens, message.usage.output_tokens)
            return estimate_request(_tokens(entries[index + 1 :]), usage=usage, digest_of_prefix="")
    return estimate_request(_tokens(entries))


def _tokens(entries: Sequence[EntryMetadata]) -> list[int]:
    return [entry.estimated_tokens or 0 for entry in entries]


async def edit(
    work: StepWork[ModelMessage],
    processing: HistoryProcessingInForce[ModelMessage],
    *,
    owner: object,
    model: Model,
    messages: Sequence[ModelMessage],
    entries: Sequence[EntryMetadata],
    request: ModelRequest,
    request_index: int,
    live: int,
    calls: ModelCalls | None = None,
) -> EditOutcome[ModelMessage]:
    """Run the processor in force on a request that is about to be sent.

    Args:
        work: the step.
        processing: the processor and the condition.
        owner: the adapter, whose processor may not call it.
        model: the model that the request goes to.
        messages: the history before the request.
        entries: what is known of each of its messages.
        request: the request.
        request_index: which request of the turn it is, from 1.
        live: see `Continuity`.
        calls: through which processors ask models.

    Raises:
        HistoryProcessingError, HistoryProcessingValidationError: see `edit_history`.
    """
    if processing.processor is None:
        return EditOutcome("unprocessed", messages, entries)
    whole, known = [*messages, request], [*entries, describe(request, work.turn_id)]
    estimate = measured(whole, known, live)
    asked = request_of(
        work,
        owner=owner,
        model=model,
        messages=whole,
        entries=known,
        request_index=request_index,
        estimated_tokens=estimate.history_tokens,
        calls=calls,
    )
    return await edit_history(DIALECT, asked, processing)


def request_of(
    work: StepWork[ModelMessage],
    *,
    owner: object,
    model: Model,
    messages: Sequence[ModelMessage],
    entries: Sequence[EntryMetadata],
    request_index: int,
    estimated_tokens: int = 0,
    calls: ModelCalls | None = None,
) -> EditRequest[ModelMessage]:
    """A model request of a step, as history editing takes it: `messages` end with the request."""
    return EditRequest(
        messages=messages,
        entries=entries,
        adapter_shortname="pydantic_ai",
        model_id=model.model_id,
        request_index=request_index,
        cache_epoch=work.checkpoint.epoch,
        estimated_tokens=estimated_tokens,
        history_version=f"{work.checkpoint}+{work.step}",
        owner=owner,
        run_id=work.turn_id,
        binds_reasoning=ties_reasoning(model),
        calls=calls,
    )


def ties_reasoning(model: Model) -> bool:
    """Whether a model that may answer ties its reasoning to everything before it."""
    return any(binds_reasoning(inner.profile) for inner in inner_models(model))
