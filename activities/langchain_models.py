"""What a worker has to know of the LangChain chat models that a graph asks: what they can, and how they fail.

Integrations are packages of their own that need not be installed, so models and errors are known by their shape.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from typing import Any, Final, cast

from langchain_core.exceptions import ModelError
from langchain_core.language_models import BaseChatModel
from langchain_core.runnables import RunnableBinding, RunnableSequence, RunnableWithFallbacks

from laneway.activities.retries import TransientFailure

__all__ = ["ModelTraits", "inner_models", "model_id_of", "stop_sdk_retries", "told_apart", "traits_of"]

_BINDING: Final = re.compile(
    r"(^|[./])claude-(fable-5-1|fable-5-2|mythos-5-2|opus-5-5|sonnet-5-5|haiku-5-5)(?![0-9])", re.IGNORECASE
)
"""Claude models that sign their thinking over everything before it. Anthropic, "Prefix checks on thinking blocks"."""

_TRANSIENT_STATUS: Final = frozenset({408, 409, 425, 429})
_TRANSPORT: Final = frozenset({"httpx", "httpx2", "httpcore", "httpcore2"})
_LOST_CONNECTION: Final = frozenset({"TransportError", "APIConnectionError", "NetworkError", "ProtocolError"})
_OVERLOADED: Final = frozenset({"overloaded_error", "api_error", "rate_limit_error", "server_error", "timeout_error"})


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


def stop_sdk_retries(model: object) -> None:
    """Switch off the retries of the provider SDKs: an answer that is cut in the middle would be paid twice unseen."""
    for inner in inner_models(model):
        if isinstance(getattr(inner, "max_retries", None), int):
            cast("Any", inner).max_retries = 0  # for clients that are made when they are first used
        # Those of Anthropic's integration are cached properties, so that they are looked up and not called for.
        for name in ("root_client", "root_async_client", "_client", "_async_client"):
            client: Any = vars(inner).get(name)
            if getattr(client, "max_retries", 0):
                client.max_retries = 0


def told_apart(error: Exception) -> Exception:
    """A failed request's error: a `TransientFailure` where another attempt may not meet it, else the error itself."""
    if isinstance(error, TransientFailure) or not _is_transient(error):
        return error
    return TransientFailure(error, retry_after=_retry_after(error))


def _is_transient(error: Exception) -> bool:
    if _code_of(error) == "insufficient_quota":
        return False
    if isinstance(error, ModelError) and error.is_retryable:
        return True
    status: object = getattr(error, "status_code", None)
    if isinstance(status, int) and (status in _TRANSIENT_STATUS or status >= 500):
        return True
    names = {cls.__name__ for cls in type(error).__mro__}
    packages = {cls.__module__.partition(".")[0] for cls in type(error).__mro__}
    if names & _LOST_CONNECTION and packages & {*_TRANSPORT, "openai", "anthropic"}:
        return True
    # An error in the middle of a stream, whose status was 200.
    return bool(packages & {"openai", "anthropic"}) and "APIError" in names and _code_of(error) in _OVERLOADED


def _code_of(error: Exception) -> str | None:
    """What the provider calls the error in its body."""
    places: list[object] = [getattr(error, "code", None), getattr(error, "type", None), getattr(error, "body", None)]
    while places:
        place = places.pop(0)
        if isinstance(place, str):
            return place
        if isinstance(place, dict):
            body = cast("dict[str, object]", place)
            places += [body.get("error"), body.get("code"), body.get("type")]
    return None


def _retry_after(error: Exception) -> timedelta | None:
    headers: Any = getattr(getattr(error, "response", None), "headers", None)
    value = None if headers is None else headers.get("retry-after")
    if not isinstance(value, str):
        return None
    try:
        seconds = float(value)
    except ValueError:
        try:
            at = parsedate_to_datetime(value)
        except ValueError:
            return None
        seconds = ((at if at.tzinfo else at.replace(tzinfo=UTC)) - datetime.now(UTC)).total_seconds()
    return timedelta(seconds=max(seconds, 0)) if seconds == seconds and seconds < 1e9 else None
