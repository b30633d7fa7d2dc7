"""How large the next request is, and whether it may be sent.

A provider's own count is better than any estimate, but it holds for one history only: the one that was sent. So it is
kept with that history's digest, used for exactly that prefix, and forgotten when the history was rewritten.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from laneway.errors import RequestTooLarge

__all__ = ["RequestEstimate", "UsageCheckpoint", "estimate_request", "refuse_over_budget"]


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
class RequestEstimate:
    """What the next request takes, in tokens.

    Attributes:
        measured_tokens: the prefix that a provider has measured; 0 if none fits.
        estimated_tokens: the messages after it, or all of them.
        reserved_tokens: instructions, schemas and whatever else is not history.
    """

    measured_tokens: int
    estimated_tokens: int
    reserved_tokens: int = 0

    @property
    def history_tokens(self) -> int:
        """The history alone."""
        return self.measured_tokens + self.estimated_tokens

    @property
    def total_tokens(self) -> int:
        """The whole request."""
        return self.history_tokens + self.reserved_tokens


def estimate_request(
    entry_tokens: Sequence[int],
    *,
    usage: UsageCheckpoint | None = None,
    digest_of_prefix: str | None = None,
    reserved_tokens: int = 0,
) -> RequestEstimate:
    """Estimate a request from what is known of its history.

    Args:
        entry_tokens: the estimate of each entry of the history, in order.
        usage: the newest usage checkpoint, if there is one.
        digest_of_prefix: the digest of the history's first `usage.length` entries as they are now.
        reserved_tokens: tokens of the instructions, schemas and new content that come on top of the history.
    """
    if usage is None or usage.digest != digest_of_prefix or usage.length > len(entry_tokens):
        return RequestEstimate(0, sum(entry_tokens), reserved_tokens)
    measured = usage.input_tokens + usage.output_tokens
    if measured <= 0:  # a provider that reports no usage has not measured the history as empty
        return RequestEstimate(0, sum(entry_tokens), reserved_tokens)
    return RequestEstimate(measured, sum(entry_tokens[usage.length :]), reserved_tokens)


def refuse_over_budget(estimate: RequestEstimate, *, max_request_tokens: int) -> None:
    """Stop a request that would not fit, before the provider is called.

    Raises:
        RequestTooLarge: the estimate is over the budget.
    """
    if estimate.total_tokens <= max_request_tokens:
        return
    raise RequestTooLarge(
        f"the request would take {estimate.total_tokens} tokens, the budget is {max_request_tokens}: "
        f"{estimate.measured_tokens} measured and {estimate.estimated_tokens} estimated of history, "
        f"{estimate.reserved_tokens} reserved for instructions, schemas and new content; "
        "shorten the history with a history processor, or raise the budget"
    )
