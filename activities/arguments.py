"""What adapters of every framework take alike, checked where it is given: found in a turn, it would fail every turn."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, cast

from laneway.activities.adapter import RetryPolicy
from laneway.activities.hooks import Hooks
from laneway.history.archival import HistoryArchiveSettings
from laneway.history.budget import RequestBudget
from laneway.history.context import HistoryProcessor
from laneway.history.given import check_callable, check_flag, is_function, refused
from laneway.history.processors import compose
from laneway.history.threads import TextWindow

__all__ = ["check_arguments", "one_processor"]

_KINDS: Final[Mapping[str, tuple[type, str]]] = {
    "history": (TextWindow, "TextWindow(6), or None for native history"),
    "history_archive": (HistoryArchiveSettings, "HistoryArchiveSettings(…), or None for no archival"),
    "budget": (RequestBudget, "RequestBudget(…), or None for no limit"),
    "retry_policy": (RetryPolicy, "RetryPolicy(…), or None for the default one"),
    "hooks": (Hooks, "Hooks(…), or None for none"),
    "delegates": (Mapping, "a dict from names to Delegation(…), or None for none"),
}


def check_arguments(
    adapter: str, *, max_tool_result_bytes: object, condition: object, stream: object, **given: object
) -> None:
    """Refuse what an adapter cannot work with.

    Args:
        adapter: the adapter's class.
        max_tool_result_bytes: as it was given.
        condition: the history processor's condition, as it was given.
        stream: whether it streams, as it was given.
        given: the arguments of `_KINDS`, as they were given.

    Raises:
        InvalidArgument: one is of another type than it has to be; the error says what to give.
    """
    for name, value in given.items():
        kind, what = _KINDS[name]
        if value is not None and not isinstance(value, kind):
            raise refused(f"{adapter}: {name}", value, what)
    limit = max_tool_result_bytes
    if limit is not None and (isinstance(limit, bool) or not isinstance(limit, int) or limit < 0):
        raise refused(f"{adapter}: max_tool_result_bytes", limit, "a nonnegative int, or None for results of any size")
    check_callable(
        f"{adapter}: history_processor_condition",
        condition,
        "a function from HistoryProcessorState to bool, or None for always",
    )
    check_flag(f"{adapter}: stream", stream, optional=True)


def one_processor(adapter: str, given: object) -> HistoryProcessor[Any] | None:
    """The history processor, or those of a list as one, in order.

    Raises:
        InvalidArgument: it is none, or there is none in the list.
    """
    if given is None or is_function(given):
        return cast("HistoryProcessor[Any] | None", given)
    several = cast("Sequence[object]", given) if isinstance(given, Sequence) and not isinstance(given, str) else None
    if not several or not all(map(is_function, several)):
        raise refused(
            f"{adapter}: history_processor",
            cast("object", given),
            "a function from HistoryProcessorContext to messages, a stock processor, a list of such, or None for none",
        )
    return compose(*cast("Sequence[HistoryProcessor[Any]]", several))
