"""Compaction by the provider itself: asked for by the framework's own capabilities, kept as the record that came back.

What a provider compacted stands in its answer as a part that only it can have made, and that goes back to it with every
later request; the framework leaves out what stands before it. The stored history keeps both. The answer that brings
the part begins a cache epoch, since what is sent from then on is another prompt.
"""

from __future__ import annotations

from typing import Any, Final, cast

from pydantic_ai.capabilities import AbstractCapability
from pydantic_ai.messages import CompactionPart, ModelMessage, ModelResponse
from pydantic_ai.models import Model
from pydantic_ai.models.anthropic import AnthropicCompaction, AnthropicModel
from pydantic_ai.models.openai import OpenAICompaction, OpenAIResponsesModel
from pydantic_ai.models.wrapper import WrapperModel

from laneway.activities.pydantic_models import inner_models
from laneway.errors import ConfigurationError, UnsupportedCapability
from laneway.history.scopes import CompactionInForce

__all__ = ["COMPACTION", "can_compact", "compaction_of", "is_compaction"]

COMPACTION: Final = "laneway:native_compaction"
"""What receipts of a compaction name in place of a processor."""

_NAMED: Final = ("anthropic:", "openai:", "openai-responses:")
"""How the names of models begin that can."""

_ANTHROPIC_LEAST_TOKENS: Final = 50_000


def can_compact(model: object) -> bool:
    """Whether each model that may answer has a provider that compacts."""
    if not isinstance(model, Model):
        return isinstance(model, str) and model.startswith(_NAMED)
    leaves = _leaves(cast("Model", model))
    return all(isinstance(leaf, OpenAIResponsesModel | AnthropicModel) for leaf in leaves)


def compaction_of(model: Model, compaction: CompactionInForce) -> list[AbstractCapability[Any]]:
    """What a run is given so that its provider compacts.

    Raises:
        UnsupportedCapability: a model that may answer has no provider that does.
        ConfigurationError: the provider would refuse the threshold.
    """
    if not can_compact(model):
        raise UnsupportedCapability(
            f"compaction_mode='native' needs a provider that compacts, and {model.model_id} has none: OpenAI's "
            "Responses API and Anthropic do. Nothing was sent; leave the mode out, or use a history processor"
        )
    kinds = {type(leaf): leaf for leaf in _leaves(model)}
    found: list[AbstractCapability[Any]] = []
    if any(issubclass(kind, OpenAIResponsesModel) for kind in kinds):
        found.append(OpenAICompaction[Any](stateless=False, token_threshold=compaction.threshold))
    if any(issubclass(kind, AnthropicModel) for kind in kinds):
        threshold = compaction.threshold
        if threshold is not None and threshold < _ANTHROPIC_LEAST_TOKENS:
            raise ConfigurationError(
                f"compaction_threshold={threshold} is less than Anthropic takes: give {_ANTHROPIC_LEAST_TOKENS} or more"
            )
        found.append(
            AnthropicCompaction[Any]() if threshold is None else AnthropicCompaction[Any](token_threshold=threshold)
        )
    return found


def is_compaction(message: ModelMessage) -> bool:
    """Whether a message brings what its provider compacted."""
    return isinstance(message, ModelResponse) and any(
        isinstance(part, CompactionPart) and part.provider_name is not None for part in message.parts
    )


def _leaves(model: Model) -> list[Model]:
    return [inner for inner in inner_models(model) if not isinstance(inner, WrapperModel)]
