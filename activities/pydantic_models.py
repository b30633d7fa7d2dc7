"""What a worker has to know of the models that a Pydantic AI agent asks: what they can, and how they fail."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

from pydantic_ai.exceptions import (
    FallbackExceptionGroup,
    ModelAPIError,
    ModelConnectionError,
    ModelHTTPError,
    ModelQuotaExceededError,
    ModelRateLimitError,
    ModelRequestTimeout,
    ModelServerError,
    ModelUnavailableError,
)
from pydantic_ai.models import Model
from pydantic_ai.models.fallback import FallbackModel
from pydantic_ai.models.function import FunctionModel
from pydantic_ai.models.wrapper import WrapperModel

from laneway.activities.retries import TransientFailure

__all__ = ["can_stream", "inner_models", "stop_sdk_retries", "told_apart"]

_TRANSIENT_STATUS = frozenset({408, 409, 425, 429})


def inner_models(model: Model) -> Iterator[Model]:
    """A model, and those that it sends to. One that stands for several has no profile, and is not among them."""
    if not _stands_for_several(model):
        yield model
    if isinstance(model, WrapperModel):
        yield from inner_models(model.wrapped)
    elif isinstance(model, FallbackModel):
        for inner in model.models:
            yield from inner_models(inner)


def _stands_for_several(model: Model) -> bool:
    return isinstance(model, FallbackModel) or (isinstance(model, WrapperModel) and _stands_for_several(model.wrapped))


def can_stream(model: Model) -> bool:
    """Whether each model that may answer can stream its answer."""
    return all(_can_stream(inner) for inner in inner_models(model))


def _can_stream(model: Model) -> bool:
    if isinstance(model, FunctionModel):
        return model.stream_function is not None
    return type(model).request_stream is not Model.request_stream


def stop_sdk_retries(model: Model) -> None:
    """Switch off the retries of the provider SDKs: an answer that is cut in the middle would be paid twice unseen."""
    for inner in inner_models(model):
        client: Any = getattr(inner, "client", None)
        if getattr(client, "max_retries", 0):
            client.max_retries = 0


def told_apart(error: Exception) -> Exception:
    """A failed request's error: a `TransientFailure` where another attempt may not meet it, else the error itself."""
    if isinstance(error, FallbackExceptionGroup):
        told = [told_apart(inner) for inner in error.exceptions]
        passing = [inner for inner in told if isinstance(inner, TransientFailure)]
        if not passing:
            return error
        waits = [inner.retry_after for inner in passing if inner.retry_after is not None]
        return TransientFailure(error, retry_after=min(waits, default=None))
    if not isinstance(error, ModelAPIError) or isinstance(error, ModelQuotaExceededError):
        return error
    transient = isinstance(
        error,
        ModelRateLimitError | ModelUnavailableError | ModelServerError | ModelConnectionError | ModelRequestTimeout,
    ) or (isinstance(error, ModelHTTPError) and (error.status_code in _TRANSIENT_STATUS or error.status_code >= 500))
    if not transient:
        return error
    wait = error.retry_after
    return TransientFailure(error, retry_after=None if wait is None else timedelta(seconds=wait))
