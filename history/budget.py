"""Budgets: how large a request may be, and how much a turn or a conversation may spend. Pure.

A provider's own count is better than any estimate, but it holds for one history only: the one that was sent. So it is
kept with that history's digest, used for exactly that prefix, and forgotten when the history was rewritten.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Final, Literal, Self, get_args

from laneway.errors import BudgetExceeded, InvalidArgument, RequestTooLarge

__all__ = [
    "BudgetDimension",
    "BudgetScope",
    "Framing",
    "Headroom",
    "RequestBudget",
    "RequestEstimate",
    "ScopeName",
    "Spent",
    "UsageCheckpoint",
    "estimate_request",
    "exceeded",
    "headroom_of",
    "refuse_over_budget",
    "scopes_from_json",
    "scopes_to_json",
]

BudgetDimension = Literal["request_limit", "tool_call_limit", "max_total_input_tokens"]
"""What is counted up over a turn or a conversation."""

ScopeName = Literal["turn", "conversation", "delegation"]
"""What a budget is counted over: one turn, all turns of a conversation with an agent, a tree of delegated turns."""


@dataclass(frozen=True, slots=True)
class RequestBudget:
    """What model requests may take. What is None is not limited, 0 forbids.

    Given to an adapter or a turn, it bounds one turn. Given to a conversation, it bounds all turns of the conversation
    with an agent together. Where several are in force each holds: an inner one can only narrow. A request or a tool
    call is counted before it is made, and what failed is not given back.

    Attributes:
        max_request_tokens: how large one request may be, in tokens, the output that is reserved for it included.
        max_total_input_tokens: how many input tokens all requests together may take.
        request_limit: how many model requests may be made, those that fail on their way and summaries included.
        tool_call_limit: how many tool calls may be made.

    Raises:
        InvalidArgument: a limit is no int, or negative.
    """

    max_request_tokens: int | None = None
    max_total_input_tokens: int | None = None
    request_limit: int | None = None
    tool_call_limit: int | None = None

    def __post_init__(self) -> None:
        for name in _LIMITS:
            value: object = getattr(self, name)
            if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 0):
                raise InvalidArgument(
                    f"the budget's {name} is {value!r}: give a nonnegative int, or None for no limit (0 forbids)"
                )

    def narrowed(self, inner: RequestBudget | None) -> RequestBudget:
        """This budget with another one inside it: of each limit the smaller."""
        if inner is None or inner.is_empty:
            return self
        if self.is_empty:
            return inner
        return RequestBudget(*(_least(getattr(self, name), getattr(inner, name)) for name in _LIMITS))

    @property
    def counted(self) -> Mapping[BudgetDimension, int]:
        """The limits of what is counted up, where there are any."""
        found = ((dimension, getattr(self, dimension)) for dimension in get_args(BudgetDimension))
        return {dimension: limit for dimension, limit in found if limit is not None}

    @property
    def is_empty(self) -> bool:
        """Whether it limits nothing."""
        return self == _UNLIMITED

    def to_data(self) -> dict[str, int]:
        """The limits that there are, as JSON has them."""
        return {name: value for name in _LIMITS if (value := getattr(self, name)) is not None}

    @classmethod
    def from_data(cls, data: Mapping[str, int]) -> Self:
        """Read what `to_data` gives."""
        return cls(**data)


_LIMITS: Final = tuple(one.name for one in fields(RequestBudget))
_UNLIMITED: Final = RequestBudget()


def _least(outer: int | None, inner: int | None) -> int | None:
    given = [limit for limit in (outer, inner) if limit is not None]
    return min(given, default=None)


@dataclass(frozen=True, slots=True)
class Spent:
    """What was spent. Requests and tool calls are counted when they are made, whatever becomes of them.

    Attributes:
        requests: model requests.
        tool_calls: tool calls.
        input_tokens: input tokens: the provider's figure, or the estimate where a request failed.
    """

    requests: int = 0
    tool_calls: int = 0
    input_tokens: int = 0

    def of(self, dimension: BudgetDimension) -> int:
        """How much of what a limit is about."""
        match dimension:
            case "request_limit":
                return self.requests
            case "tool_call_limit":
                return self.tool_calls
            case "max_total_input_tokens":
                return self.input_tokens

    def __add__(self, other: Spent) -> Spent:
        return Spent(
            self.requests + other.requests,
            self.tool_calls + other.tool_calls,
            self.input_tokens + other.input_tokens,
        )


@dataclass(frozen=True, slots=True)
class BudgetScope:
    """A budget, what it is counted over, and how deep in a tree of delegated turns (0: a turn that a caller submitted).

    It is stored as JSON, so that readers know it and delegated turns can be given it.
    """

    name: ScopeName
    budget: RequestBudget
    depth: int = 0

    def to_data(self) -> list[object]:
        """As JSON has it."""
        return [self.name, self.budget.to_data(), self.depth]

    @classmethod
    def from_data(cls, data: Sequence[object]) -> Self:
        """Read what `to_data` gives."""
        name, budget, depth = data
        return cls(name, RequestBudget.from_data(budget), depth)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


@dataclass(frozen=True, slots=True)
class Headroom:
    """How much of one limit is left.

    Attributes:
        scope: what it is counted over.
        dimension: the limit's name.
        limit: the limit.
        consumed: how much of it is spent.
    """

    scope: ScopeName
    dimension: BudgetDimension
    limit: int
    consumed: int

    @property
    def remaining(self) -> int:
        """What is left; 0 where more was spent than a later, narrower budget allows."""
        return max(self.limit - self.consumed, 0)


def headroom_of(scope: BudgetScope, spent: Spent) -> list[Headroom]:
    """How much of each counted limit of a budget is left."""
    counted = scope.budget.counted.items()
    return [Headroom(scope.name, dimension, limit, spent.of(dimension)) for dimension, limit in counted]


_WHAT: Mapping[BudgetDimension, str] = {
    "request_limit": "model request",
    "tool_call_limit": "tool call",
    "max_total_input_tokens": "model request",
}


def exceeded(
    scope: ScopeName, dimension: BudgetDimension, *, limit: int, consumed: int, asked: int, depth: int
) -> BudgetExceeded:
    """The error for something that a budget forbids."""
    more = f"{asked} more input tokens" if dimension == "max_total_input_tokens" else f"{asked} more"
    return BudgetExceeded(
        f"the budget of the {scope} forbids another {_WHAT[dimension]}: {dimension} is {limit}, {consumed} are "
        f"consumed and this takes {more} (depth {depth}). Nothing was sent; raise the budget's {dimension}, or "
        + ("begin another conversation" if scope == "conversation" else "let the turn do less"),
        scope=scope,
        dimension=dimension,
        limit=limit,
        consumed=consumed,
        depth=depth,
    )


# The size of one request ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class UsageCheckpoint:
    """What a provider measured of a history after a successful request.

    Attributes:
        digest: the digest of exactly that history, the answer included.
        length: its number of entries.
        input_tokens: what the request took, cached tokens included.
        output_tokens: what the answer took.
    """

    digest: str
    length: int
    input_tokens: int
    output_tokens: int


@dataclass(frozen=True, slots=True)
class Framing:
    """What a request carries beside its messages, in tokens; estimated.

    Attributes:
        instructions_tokens: the instructions.
        tools_tokens: the definitions of tools.
        output_schema_tokens: the definition of the output.
    """

    instructions_tokens: int = 0
    tools_tokens: int = 0
    output_schema_tokens: int = 0

    @property
    def total_tokens(self) -> int:
        """All of it."""
        return self.instructions_tokens + self.tools_tokens + self.output_schema_tokens


@dataclass(frozen=True, slots=True)
class RequestEstimate:
    """What the next request takes, in tokens.

    Attributes:
        measured_tokens: the prefix that a provider has measured, with what it was sent beside the messages; 0 if none
            fits.
        estimated_tokens: the messages after it, or all of them, without what is new.
        new_tokens: what the request adds: a prompt, tool results.
        framing: instructions and schemas.
        measured_framing_tokens: how much of the framing the measured prefix contains already.
        reserved_tokens: what is reserved for the output.
    """

    measured_tokens: int
    estimated_tokens: int
    new_tokens: int = 0
    framing: Framing = Framing()
    measured_framing_tokens: int = 0
    reserved_tokens: int = 0

    @property
    def history_tokens(self) -> int:
        """The messages: history, and what is new."""
        return self.measured_tokens + self.estimated_tokens + self.new_tokens

    @property
    def input_tokens(self) -> int:
        """All that is sent."""
        known = self.measured_framing_tokens if self.measured_tokens else 0
        return self.history_tokens + max(self.framing.total_tokens - known, 0)

    @property
    def total_tokens(self) -> int:
        """The whole request, the reserved output included."""
        return self.input_tokens + self.reserved_tokens

    def framed(
        self, framing: Framing, *, new_tokens: int, measured_framing_tokens: int, reserved_tokens: int
    ) -> RequestEstimate:
        """This estimate of messages as one of the whole request.

        Args:
            framing: what is sent beside the messages.
            new_tokens: how many of the estimated tokens are the request's own.
            measured_framing_tokens: how large the framing was when the prefix was measured; 0 where nobody knows.
            reserved_tokens: what is reserved for the output.
        """
        return replace(
            self,
            estimated_tokens=max(self.estimated_tokens - new_tokens, 0),
            new_tokens=new_tokens,
            framing=framing,
            measured_framing_tokens=measured_framing_tokens,
            reserved_tokens=reserved_tokens,
        )


def estimate_request(
    entry_tokens: Sequence[int], *, usage: UsageCheckpoint | None = None, digest_of_prefix: str | None = None
) -> RequestEstimate:
    """Estimate a request's messages from what is known of them.

    Args:
        entry_tokens: the estimate of each entry of the history, in order.
        usage: the newest usage checkpoint, if there is one.
        digest_of_prefix: the digest of the history's first `usage.length` entries as they are now.
    """
    if usage is None or usage.digest != digest_of_prefix or usage.length > len(entry_tokens):
        return RequestEstimate(0, sum(entry_tokens))
    measured = usage.input_tokens + usage.output_tokens
    if measured <= 0:  # a provider that reports no usage has not measured the history as empty
        return RequestEstimate(0, sum(entry_tokens))
    return RequestEstimate(measured, sum(entry_tokens[usage.length :]))


def refuse_over_budget(estimate: RequestEstimate, *, max_request_tokens: int) -> None:
    """Stop a request that would not fit, before the provider is called.

    Raises:
        RequestTooLarge: the estimate is over the budget.
    """
    if estimate.total_tokens <= max_request_tokens:
        return
    framing = estimate.framing
    known = " (what the measured history was sent with is in it)" if estimate.measured_tokens else ""
    raise RequestTooLarge(
        f"the request would take {estimate.total_tokens} tokens, the budget's max_request_tokens is "
        f"{max_request_tokens}: {estimate.measured_tokens} measured and {estimate.estimated_tokens} estimated of "
        f"history, {estimate.new_tokens} of new content, {framing.instructions_tokens} of instructions, "
        f"{framing.tools_tokens} of tool schemas, {framing.output_schema_tokens} of output schemas{known}, "
        f"{estimate.reserved_tokens} reserved for the output. Nothing was sent; shorten the history with a history "
        "processor, or raise the budget"
    )


def scopes_to_json(scopes: Iterable[BudgetScope]) -> str:
    """Scopes as they are stored."""
    return json.dumps([scope.to_data() for scope in scopes], separators=(",", ":"))


def scopes_from_json(blob: bytes | str) -> tuple[BudgetScope, ...]:
    """Read what `scopes_to_json` gives."""
    return tuple(map(BudgetScope.from_data, json.loads(blob)))
