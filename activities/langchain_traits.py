"""What history editing has to know of the LangChain chat models that a graph asks.

Integrations are packages of their own that need not be installed, so models are known by their shape.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final, cast

from langchain_core.language_models import BaseChatModel
from langchain_core.runnables import RunnableBinding, RunnableSequence, RunnableWithFallbacks

__all__ = ["ModelTraits", "inner_models", "model_id_of", "traits_of"]

_BINDING: Final = re.compile(
    r"(^|[./])claude-(fable-5-1|fable-5-2|mythos-5-2|opus-5-5|sonnet-5-5|haiku-5-5)(?![0-9])", re.IGNORECASE
)
"""Claude models that sign their thinking over everything before it. Anthropic, "Prefix checks on thinking blocks"."""


@dataclass(frozen=True)
class ModelTraits:
    """What history editing asks of the models that may answer a request.

    Attributes:
        model_id: the first of them, as `provider:name`; empty where none is known.
        binds_reasoning: whether one of them ties its reasoning to everything before it.
    """

    model_id: str = ""
    binds_reasoning: bool = False


def traits_of(models: Iterable[object], *, binds_reasoning: bool | None = None) -> ModelTraits:
    """The traits of models, or of runnables around models.

    Args:
        models: in the order in which they are asked.
        binds_reasoning: what is known better than the models' names tell; None for what they tell.
    """
    inner = [one for model in models for one in inner_models(model)]
    if binds_reasoning is None:
        binds_reasoning = any(_BINDING.search(_name_of(model)) for model in inner)
    return ModelTraits(model_id_of(inner[0]) if inner else "", binds_reasoning)


def inner_models(runnable: object) -> Iterator[BaseChatModel]:
    """The chat models in a runnable: bound to tools, with fallbacks, before a parser."""
    match runnable:
        case BaseChatModel():
            yield runnable
        case RunnableBinding():
            yield from inner_models(cast("Any", runnable).bound)
        case RunnableWithFallbacks() | RunnableSequence():
            around = cast("Any", runnable)
            for one in around.steps if isinstance(runnable, RunnableSequence) else around.runnables:
                yield from inner_models(one)
        case _:
            return


def model_id_of(model: BaseChatModel) -> str:
    """A model as `provider:name`: the provider is that of the integration's package."""
    package = type(model).__module__.partition(".")[0]
    provider = package.removeprefix("langchain_").replace("_", "-")
    if not package.startswith("langchain_") or package == "langchain_core":
        provider = model._llm_type  # pyright: ignore[reportPrivateUsage]  # what every integration has to define
    return f"{provider}:{_name_of(model)}"


def _name_of(model: BaseChatModel) -> str:
    for attribute in ("model_name", "model", "model_id", "deployment_name"):
        name: object = getattr(model, attribute, None)
        if isinstance(name, str) and name:
            return name
    return type(model).__name__
