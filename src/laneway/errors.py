"""Every error that Laneway raises.

    LanewayError
    ├── ConfigurationError            what was set up cannot work; nothing was sent or written
    │   ├── InvalidArgument           a constructor was given what cannot work; a ValueError as well
    │   └── UnsupportedCapability     the agent's adapter cannot do what was asked for
    ├── InvalidInput                  a value of one call was refused; nothing was written
    ├── ServiceUnavailable            Temporal or Redis did not answer
    ├── UnknownAgent                  no agent of that name is registered here
    ├── LaneBusy                      the lane's queue refused the turn
    ├── TurnConflict                  the turn id is taken by another prompt
    ├── DelegationFailed              work that was handed to another agent was not done
    ├── UnknownRequest                no turn waits for that request
    ├── AlreadyAnswered               another answer to the request came first
    ├── TurnError                     how an accepted turn ended, other than by its commit
    │   ├── TurnFailed
    │   │   ├── TurnTimedOut
    │   │   └── TurnDenied            a hook refused the prompt
    │   └── TurnCancelled
    ├── StoreError                    what Redis holds, or refuses to hold
    │   ├── CheckpointLost            committed history is missing
    │   ├── CheckpointCorrupt         committed history was altered
    │   ├── StaleTurn                 a write of a turn that has ended, or of an attempt that was replaced
    │   └── StoreFull                 Redis refused a write for want of memory
    ├── HookError                     a hook failed, or answered what it may not
    │   └── HookTimedOut              it took too long
    ├── RequestTooLarge               the request would not fit its budget (code `fit-overflow`)
    ├── ToolOutputTooLarge            a tool returned more than may enter history
    ├── BudgetExceeded                a budget of requests, tool calls or input tokens is used up
    └── HistoryError
        ├── HistoryProcessingError            the user's callback failed
        └── HistoryProcessingValidationError  the user's callback returned what may not be sent

Each message says which value, which rule, and what to do. `code` is the stable name of the kind: it is what a turn
record, a Temporal failure and the CLI's JSON carry, so it never changes once released.
"""

from __future__ import annotations

from typing import ClassVar

__all__ = [
    "AlreadyAnswered",
    "BudgetExceeded",
    "CheckpointCorrupt",
    "CheckpointLost",
    "ConfigurationError",
    "DelegationFailed",
    "HistoryError",
    "HistoryProcessingError",
    "HistoryProcessingValidationError",
    "HookError",
    "HookTimedOut",
    "InvalidArgument",
    "InvalidInput",
    "LaneBusy",
    "LanewayError",
    "RequestTooLarge",
    "ServiceUnavailable",
    "StaleTurn",
    "StoreError",
    "StoreFull",
    "ToolOutputTooLarge",
    "TurnCancelled",
    "TurnConflict",
    "TurnDenied",
    "TurnError",
    "TurnFailed",
    "TurnTimedOut",
    "UnknownAgent",
    "UnknownRequest",
    "UnsupportedCapability",
]


class LanewayError(Exception):
    """The root: catching it catches everything that Laneway raises on purpose."""

    code: ClassVar[str] = "LanewayError"

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if "code" not in cls.__dict__:
            cls.code = cls.__name__


class ConfigurationError(LanewayError):
    """What was set up cannot work: a setting, an agent, an adapter. Raised where it is set up, before any I/O."""


class InvalidArgument(ConfigurationError, ValueError):
    """An argument of a constructor is of another type than it has to be, or a value that cannot work."""


class UnsupportedCapability(ConfigurationError):
    """The agent's adapter cannot do what was asked for. Refused before a model is asked; no prompt was kept."""


class InvalidInput(LanewayError):
    """A value of one call was refused. Nothing was written."""


class ServiceUnavailable(LanewayError):
    """Temporal or Redis did not answer, or refused the connection."""


class UnknownAgent(LanewayError):
    """No agent of that name is registered in this application."""


class LaneBusy(LanewayError):
    """The lane did not accept the turn: its queue is full, or it is busy and the caller asked not to wait."""


class TurnConflict(LanewayError):
    """The turn id was used before with another prompt."""


class DelegationFailed(LanewayError):
    """Work that was handed to another agent was not done, and its delegation says that the turn fails with it."""


class UnknownRequest(LanewayError):
    """No turn waits for a request of that id: it never did, or it has ended."""


class AlreadyAnswered(LanewayError):
    """Another answer to the request came first, and counts. Nothing was changed."""


class TurnError(LanewayError):
    """How an accepted turn ended, other than by its commit. The lane's history is as it was before the turn."""

    def __init__(self, message: str, *, turn_id: str) -> None:
        super().__init__(message)
        self.turn_id = turn_id


class TurnFailed(TurnError):
    """The turn failed.

    Attributes:
        turn_id: the turn.
        error_type: the class name of the cause, as its library names it; for Laneway's own errors their `code`.
        error_message: the cause's own message.
    """

    def __init__(self, message: str, *, turn_id: str, error_type: str, error_message: str) -> None:
        super().__init__(message, turn_id=turn_id)
        self.error_type = error_type
        self.error_message = error_message


class TurnTimedOut(TurnFailed):
    """The turn's `timeout` passed, in the queue or while it ran."""


class TurnDenied(TurnFailed):
    """A hook refused the turn. No trace of it is in the lane's history.

    Attributes:
        reason: the hook's.
    """

    @property
    def reason(self) -> str:
        """The hook's reason."""
        return self.error_message


class TurnCancelled(TurnError):
    """The turn was cancelled before its commit."""


class StoreError(LanewayError):
    """What Redis holds, or refuses to hold."""


class CheckpointLost(StoreError):
    """Committed history is missing from Redis. It is never replaced by a shorter one in silence."""


class CheckpointCorrupt(StoreError):
    """Committed history in Redis is not what was committed.

    Attributes:
        epoch: the cache epoch that holds the damaged entry.
        index: the first entry that does not fit the digest chain, from 0.
    """

    def __init__(self, message: str, *, epoch: int, index: int) -> None:
        super().__init__(message)
        self.epoch = epoch
        self.index = index


class StaleTurn(StoreError):
    """A write came from a turn that has ended, or from an attempt that another one replaced. Nothing was written."""


class StoreFull(StoreError):
    """Redis refused a write for want of memory. Nothing was written."""


class HookError(LanewayError):
    """A hook raised, or answered what it may not. The turn fails, and nothing is sent after it."""


class HookTimedOut(HookError):
    """A hook did not answer within its time."""


class RequestTooLarge(LanewayError):
    """The request would not fit the budget's `max_request_tokens`. Raised before the provider is called."""

    code: ClassVar[str] = "fit-overflow"


class BudgetExceeded(LanewayError):
    """A budget forbids another model request or tool call. Raised before it is made.

    Attributes:
        scope: what the budget is counted over: `turn`, `conversation`, `delegation`.
        dimension: the limit's name: `request_limit`, `tool_call_limit`, `max_total_input_tokens`.
        limit: the limit.
        consumed: what was consumed before.
        depth: how deep in a tree of delegated turns; 0 for a turn that a caller submitted.
    """

    def __init__(self, message: str, *, scope: str, dimension: str, limit: int, consumed: int, depth: int) -> None:
        super().__init__(message)
        self.scope = scope
        self.dimension = dimension
        self.limit = limit
        self.consumed = consumed
        self.depth = depth


class ToolOutputTooLarge(LanewayError):
    """A tool returned more than `max_tool_result_bytes`, and nothing archives it. It did not enter history."""


class HistoryError(LanewayError):
    """A history could not be edited."""


class HistoryProcessingError(HistoryError):
    """A history processor or its condition raised. No request was sent."""


class HistoryProcessingValidationError(HistoryError):
    """A history processor returned a history that may not be sent. No request was sent.

    Attributes:
        rule: the name of the broken rule, such as `orphan_result`.
        index: the message at fault: an index into the input where the fault is something that the edit took away or
            changed, else into the returned list; None where no single message is at fault.
    """

    def __init__(self, message: str, *, rule: str, index: int | None = None) -> None:
        super().__init__(message)
        self.rule = rule
        self.index = index
