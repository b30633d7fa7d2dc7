"""The requests that one summary takes: admitted before they are sent, tried again, and counted; for every framework."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Final, TypeVar

from laneway.activities.adapter import RetryPolicy
from laneway.activities.retries import TransientFailure
from laneway.history.model_calls import CallUsage, ModelCalls

__all__ = ["SUMMARY_RETRIES", "SummaryRequests"]

T = TypeVar("T")

SUMMARY_RETRIES: Final = RetryPolicy(max_attempts=3, first_delay=timedelta(seconds=1), max_delay=timedelta(seconds=20))
"""As the turn's own requests are retried, though not for as long."""


@dataclass
class SummaryRequests:
    """The requests of one summary.

    Attributes:
        calls: what admits them.
        retry_policy: how those that failed on their way are tried again.
        told_apart: of a request's error a `TransientFailure`, where another attempt may not meet it, else the error.
        usage: what they have used so far, those that failed counted.
    """

    calls: ModelCalls | None
    retry_policy: RetryPolicy
    told_apart: Callable[[Exception], Exception]
    usage: CallUsage = field(default_factory=CallUsage)

    async def send(self, request: Callable[[], Awaitable[T]], *, tokens: int) -> T:
        """What a request is answered.

        Args:
            request: sends it.
            tokens: an estimate of it.

        Raises:
            RequestTooLarge, BudgetExceeded: it may not be sent.
            Exception: what the last attempt failed with.
        """
        policy = self.retry_policy
        for attempt in range(1, policy.max_attempts + 1):
            if self.calls is not None:
                await self.calls.admit(tokens)
            self.usage = replace(self.usage, requests=self.usage.requests + 1)
            try:
                return await request()
            except Exception as error:
                told = self.told_apart(error)
                if not isinstance(told, TransientFailure) or attempt == policy.max_attempts:
                    raise
                wait = policy.delay_after(attempt) if told.retry_after is None else told.retry_after
                if wait > policy.max_delay:
                    raise
            await asyncio.sleep(wait.total_seconds())
        raise AssertionError("the last attempt returns or raises")

    def used(self, *, input_tokens: int, output_tokens: int, cache_read_tokens: int, cache_write_tokens: int) -> None:
        """Count what an answer took."""
        before = self.usage
        self.usage = CallUsage(
            before.requests,
            before.input_tokens + input_tokens,
            before.output_tokens + output_tokens,
            before.cache_read_tokens + cache_read_tokens,
            before.cache_write_tokens + cache_write_tokens,
        )
