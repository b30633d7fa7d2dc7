"""What a worker has to know of the models that a LangChain graph asks: how they fail, and what they may not do.

The models are somewhere in the graph's functions, where nobody can exchange them. So the provider SDKs' own retries,
with which an answer that is cut in the middle is paid twice unseen, are switched off for what a lane asks and for
nothing else: the SDKs look up how often to try in one method, and that one answers 0 inside a lane's model request.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Mapping
from contextvars import ContextVar
from datetime import timedelta
from typing import Any, Final, cast

from langchain_core.exceptions import ModelError

from laneway.activities.retries import TransientFailure

__all__ = ["IN_LANE_REQUEST", "stop_sdk_retries", "told_apart"]

IN_LANE_REQUEST: Final[ContextVar[bool]] = ContextVar("laneway_in_lane_request", default=False)
"""Whether what runs is a model request of a lane."""

_SDKS: Final = ("openai", "anthropic")
_TRANSIENT_STATUS: Final = frozenset({408, 409, 425, 429})
_TRANSIENT_KINDS: Final = frozenset(
    {"api_error", "overloaded_error", "rate_limit_error", "server_error", "timeout_error"}
)
"""What an error inside of a stream, which began with 200, calls itself."""
_BROKEN: Final = frozenset({"APIConnectionError", "TransportError"})
"""How errors of connections are called, by the SDKs and by the HTTP clients beneath them."""
_TOLD: Final = re.compile(r"^ResponseError\(code='(\w+)'")
_QUOTA: Final = "insufficient_quota"

_stopped: Final[set[str]] = set()


def stop_sdk_retries() -> None:
    """Have the SDKs that are loaded leave retries of lanes' model requests to the lane."""
    for sdk in _SDKS:
        module = sys.modules.get(f"{sdk}._models")
        options: Any = getattr(module, "FinalRequestOptions", None)
        if sdk in _stopped or options is None:
            continue
        _stopped.add(sdk)
        given = options.get_max_retries

        def get_max_retries(self: Any, max_retries: int, given: Any = given) -> int:
            return 0 if IN_LANE_REQUEST.get() else cast("int", given(self, max_retries))

        options.get_max_retries = get_max_retries


def told_apart(error: Exception) -> Exception:
    """A failed model request's error: a `TransientFailure` where another attempt may not meet it, else the error."""
    for one in _causes(error):
        status = _status(one)
        if status is not None:
            if not _is_passing(one, status):
                return error
            return TransientFailure(error, retry_after=_retry_after(one))
        if isinstance(one, ConnectionError | TimeoutError) or any(
            kind.__name__ in _BROKEN for kind in type(one).__mro__
        ):
            return TransientFailure(error)
        if _told_in_stream(one) or (isinstance(one, ModelError) and one.is_retryable):
            return TransientFailure(error)
    return error


def _told_in_stream(error: BaseException) -> bool:
    """Whether a stream that had begun ended with an error of the provider's own making.

    OpenAI's SDK raises the bare `APIError` for it, and LangChain, on the Responses API, a `ValueError` around what the
    provider said.
    """
    if isinstance(error, ValueError) and (told := _TOLD.search(str(error))) is not None:
        return told[1] in _TRANSIENT_KINDS
    return type(error).__name__ == "APIError" and _kind(error) in (*_TRANSIENT_KINDS, None)


def _causes(error: BaseException) -> Iterator[BaseException]:
    seen: set[int] = set()
    one: BaseException | None = error
    while one is not None and id(one) not in seen:
        seen.add(id(one))
        yield one
        one = one.__cause__


def _status(error: BaseException) -> int | None:
    for name in ("status_code", "code"):
        status: object = getattr(error, name, None)
        if isinstance(status, int) and 100 <= status < 600:
            return int(status)
    return None


def _is_passing(error: BaseException, status: int) -> bool:
    if getattr(error, "code", None) == _QUOTA or getattr(error, "type", None) == _QUOTA:
        return False
    if status == 200:
        return _kind(error) in _TRANSIENT_KINDS
    return status in _TRANSIENT_STATUS or status >= 500


def _kind(error: BaseException) -> object:
    """What an error's body calls it."""
    body: object = getattr(error, "body", None)
    if not isinstance(body, dict):
        return None
    fields = cast("Mapping[str, object]", body)
    inner = fields.get("error")
    return cast("Mapping[str, object]", inner).get("type") if isinstance(inner, dict) else fields.get("type")


def _retry_after(error: BaseException) -> timedelta | None:
    headers: Any = getattr(getattr(error, "response", None), "headers", None)
    if headers is None:
        return None
    for name, unit in (("retry-after-ms", 0.001), ("retry-after", 1.0)):
        try:
            seconds = float(headers.get(name)) * unit
        except (TypeError, ValueError):
            continue
        if seconds >= 0:
            return timedelta(seconds=seconds)
    return None
