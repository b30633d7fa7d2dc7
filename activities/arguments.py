"""What adapters of every framework take alike, checked where it is given: found in a turn, it would fail every turn."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Self, cast

from laneway.activities.adapter import RetryPolicy
from laneway.activities.hooks import Hooks
from laneway.history.archival import HistoryArchiveSettings
from laneway.history.budget import RequestBudget
from laneway.history.callbacks import callback_name
from laneway.history.context import HistoryProcessor, HistoryProcessorCondition
from laneway.history.delegation import Delegation
from laneway.history.given import check_callable, check_flag, is_function, refused
from laneway.history.processors import compose
from laneway.history.scopes import HistoryProcessingSettings, in_force
from laneway.history.threads import TextWindow

__all__ = ["AdapterArguments", "WithArguments"]

_KINDS: Final[Mapping[str, tuple[type, str]]] = {
    "history": (TextWindow, "TextWindow(6), or None for native history"),
    "history_archive": (HistoryArchiveSettings, "HistoryArchiveSettings(…), or None for no archival"),
    "budget": (RequestBudget, "RequestBudget(…), or None for no limit"),
    "retry_policy": (RetryPolicy, "RetryPolicy(…), or None for the default one"),
    "hooks": (Hooks, "Hooks(…), or None for none"),
    "delegates": (Mapping, "a dict from names to Delegation(…), or None for none"),
}


@dataclass(frozen=True, kw_only=True)
class AdapterArguments:
    """What every adapter was given, checked.

    Attributes:
        adapter: the adapter's class.
        budget: what the requests of each turn may take.
        retry_policy: how model requests that failed on their way are retried.
        stream: whether model requests are streamed; None for where the model can.
        text_window: how much of the text thread a turn begins with; None for native history.
        archival: when tool exchanges of a running turn are archived; None for never. Results that are too large are
            archived too then.
        max_result_bytes: how large a tool's result may be in history, as JSON; None for any size.
        hooks: called around turns, model requests and tools.
        processing: the adapter's own history processing.
        delegates: the agents that it can hand work to.
    """

    adapter: str
    budget: RequestBudget | None
    retry_policy: RetryPolicy
    stream: bool | None
    text_window: TextWindow | None
    archival: HistoryArchiveSettings | None
    max_result_bytes: int | None
    hooks: Hooks | None
    processing: HistoryProcessingSettings[Any]
    delegates: Mapping[str, Delegation]

    @classmethod
    def checked(
        cls,
        adapter: str,
        *,
        budget: RequestBudget | None,
        retry_policy: RetryPolicy | None,
        stream: bool | None,
        history: TextWindow | None,
        history_archive: HistoryArchiveSettings | None,
        max_tool_result_bytes: int | None,
        hooks: Hooks | None,
        history_processor: object,
        history_processor_condition: HistoryProcessorCondition | None,
        delegates: Mapping[str, Delegation] | None,
    ) -> Self:
        """Take the arguments of an adapter's constructor, by their public names.

        Raises:
            ConfigurationError: one is of another type than it has to be, and the error says what to give; or there is
                a condition and no processor.
        """
        _check(
            adapter,
            history=history,
            history_archive=history_archive,
            max_tool_result_bytes=max_tool_result_bytes,
            budget=budget,
            retry_policy=retry_policy,
            hooks=hooks,
            delegates=delegates,
            condition=history_processor_condition,
            stream=stream,
        )
        processor = _one_processor(adapter, history_processor)
        processing: HistoryProcessingSettings[Any] = HistoryProcessingSettings(processor, history_processor_condition)
        in_force([processing])
        return cls(
            adapter=adapter,
            budget=budget,
            retry_policy=retry_policy or RetryPolicy(),
            stream=stream,
            text_window=history,
            archival=history_archive,
            max_result_bytes=max_tool_result_bytes,
            hooks=hooks,
            processing=processing,
            delegates=dict(delegates or {}),
        )

    @property
    def processor(self) -> HistoryProcessor[Any] | None:
        """The adapter's own history processor."""
        return in_force([self.processing]).processor

    def warn_of_cost(self, *, stacklevel: int) -> None:
        """Say, where there is a history processor, that edits cost cached prefixes.

        Args:
            stacklevel: as `warnings.warn` takes it, counted from the caller.
        """
        if self.processor is not None:
            warnings.warn(
                f"the history processor {callback_name(self.processor)} rewrites what a provider may have cached: "
                "requests after an edit can cost more",
                UserWarning,
                stacklevel=stacklevel + 1,
            )


class WithArguments:
    """An adapter, as far as its arguments answer for it.

    Args:
        given: its arguments.
    """

    def __init__(self, given: AdapterArguments) -> None:
        self._given = given

    @property
    def retry_policy(self) -> RetryPolicy:
        """How its model requests are retried."""
        return self._given.retry_policy

    @property
    def budget(self) -> RequestBudget | None:
        """What the requests of each turn may take."""
        return self._given.budget

    @property
    def hooks(self) -> Hooks | None:
        """What is called around its turns, model requests and tools."""
        return self._given.hooks

    @property
    def processing(self) -> HistoryProcessingSettings[Any]:
        """Its own history processing."""
        return self._given.processing

    @property
    def delegates(self) -> Mapping[str, Delegation]:
        """The agents that it can hand work to, by name."""
        return self._given.delegates

    @property
    def text_window(self) -> TextWindow | None:
        """How much of the text thread a turn begins with; None for native history."""
        return self._given.text_window


def _check(adapter: str, *, max_tool_result_bytes: object, condition: object, stream: object, **given: object) -> None:
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


def _one_processor(adapter: str, given: object) -> HistoryProcessor[Any] | None:
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
