"""What follows when a step's attempt fails: another attempt, or the end of the turn. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta

from laneway.activities.adapter import RetryPolicy
from laneway.errors import LanewayError, ServiceUnavailable
from laneway.history.records import StepAttempt
from laneway.history.stored_json import as_printable

__all__ = [
    "FailTurn",
    "RetryStep",
    "SerializationFailed",
    "TransientFailure",
    "cause_of",
    "decide",
]


class TransientFailure(Exception):
    """A provider's failure that another attempt may not meet. Adapters raise it, with the framework's error as cause.

    Args:
        retry_after: how long the provider asks to wait.
    """

    def __init__(self, cause: BaseException, *, retry_after: timedelta | None = None) -> None:
        super().__init__(str(cause))
        self.cause = cause
        self.retry_after = retry_after


class SerializationFailed(LanewayError):
    """A message or an output cannot be stored: something in it has no JSON form."""


@dataclass(frozen=True)
class RetryStep:
    """Try the step again after `delay`; None leaves the delay to Temporal."""

    delay: timedelta | None
    counts: bool


@dataclass(frozen=True)
class FailTurn:
    """The turn fails."""


def decide(error: Exception, *, policy: RetryPolicy, failed: Sequence[StepAttempt]) -> RetryStep | FailTurn:
    """Say what follows `error`.

    Args:
        error: what ended the attempt.
        policy: the agent's.
        failed: the step's earlier attempts that ended in a provider's failure.
    """
    if isinstance(error, ServiceUnavailable):
        # Redis is on its way back, or the turn's timeout ends it.
        return RetryStep(None, counts=False)
    if not isinstance(error, TransientFailure):
        return FailTurn()
    tried = len(failed) + 1
    if tried >= policy.max_attempts:
        return FailTurn()
    if error.retry_after is not None:
        if error.retry_after > policy.max_delay:
            return FailTurn()
        return RetryStep(error.retry_after, counts=True)
    return RetryStep(policy.delay_after(tried), counts=True)


def cause_of(error: Exception) -> tuple[str, str]:
    """The type and the message of what went wrong, as the turn's record keeps them."""
    cause = error.cause if isinstance(error, TransientFailure) else error
    kind = cause.code if isinstance(cause, LanewayError) else type(cause).__name__
    return kind, as_printable(str(cause) or repr(cause))
