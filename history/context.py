"""What a history processor and its condition are given."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeAlias

from laneway.history.dialect import MessageT
from laneway.history.groups import HistoryGroup
from laneway.history.model_calls import ModelCalls
from laneway.history.origins import EntryMetadata

__all__ = ["HistoryProcessor", "HistoryProcessorCondition", "HistoryProcessorContext", "HistoryProcessorState"]


@dataclass(frozen=True, slots=True)
class HistoryProcessorState:
    """What a condition decides on. It holds no messages, so that asking costs nothing.

    Attributes:
        adapter_shortname: which adapter runs the agent, such as `pydantic_ai`.
        model_id: the model that the request goes to.
        request_index: which model request of the turn this is, from 1.
        cache_epoch: the cache epoch of the history.
        estimated_tokens: a conservative estimate of the history, in tokens.
        history_version: an opaque name of exactly this history: equal names, equal histories.
    """

    adapter_shortname: str
    model_id: str
    request_index: int
    cache_epoch: int
    estimated_tokens: int
    history_version: str


@dataclass(frozen=True)
class HistoryProcessorContext(Generic[MessageT]):
    """What a processor edits.

    The messages are detached copies: what a processor does to them in place is an edit like any other and is validated
    like any other, and the stored history does not change until the edit has been accepted.

    Attributes:
        messages: the history, oldest first, the current request last. System text that shares a native message with a
            prompt is a message of its own here.
        groups: the atomic pieces of `messages`, in order.
        entries: what is known of each message beside its content. Changing metadata inside a message changes nothing
            here.
        adapter_shortname: which adapter runs the agent, such as `pydantic_ai`.
        model_id: the model that the request goes to.
        request_index: which model request of the turn this is, from 1.
        cache_epoch: the cache epoch of the history.
        estimated_tokens: a conservative estimate of the history, in tokens.
        calls: through which the stock processors ask models, so that no answer is paid twice; None outside of turns.
    """

    messages: list[MessageT]
    groups: tuple[HistoryGroup, ...]
    entries: tuple[EntryMetadata, ...]
    adapter_shortname: str
    model_id: str
    request_index: int
    cache_epoch: int
    estimated_tokens: int
    calls: ModelCalls | None = field(default=None, repr=False, compare=False)

    def keep_recent_groups(self, n: int) -> list[MessageT]:
        """The messages of the last `n` closed, unprotected groups, and of all that is protected, open or current.

        The order is kept, nothing is changed, and protected groups do not count toward `n`.

        Raises:
            TypeError: `n` is not an int (a bool is not one).
            ValueError: `n` is negative.
        """
        # A bool is refused by name: `keep_recent_groups(True)` is a slip that would otherwise keep one group.
        if isinstance(n, bool) or not isinstance(n, int):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise TypeError(f"keep_recent_groups takes a nonnegative int, got {n!r}: give the number of groups to keep")
        if n < 0:
            raise ValueError(f"keep_recent_groups takes a nonnegative int, got {n!r}: 0 keeps only what must be kept")
        eligible = [group for group in self.groups if group.closed and not group.protected]
        dropped = {group.group_id for group in eligible[: max(len(eligible) - n, 0)]}
        return [
            message
            for group in self.groups
            if group.group_id not in dropped
            for message in self.messages[group.entry_start : group.entry_end]
        ]


HistoryProcessor: TypeAlias = Callable[
    [HistoryProcessorContext[MessageT]], Sequence[MessageT] | Awaitable[Sequence[MessageT]]
]
"""Edits a history: returns the native messages that stand in its place. Sync ones run in a worker thread."""

HistoryProcessorCondition: TypeAlias = Callable[[HistoryProcessorState], bool]
"""Says whether the processor runs for this request. It must return exactly `True` or `False`."""
