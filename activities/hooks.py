"""What a hook is told, and what it may answer. Framework-neutral: the same for every adapter.

A hook is a function, sync (it runs in a worker thread) or async, that gets one event. Hooks run on workers: those of
the adapter, then the application's, then those of the scopes around the call, outermost first.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Literal, TypeAlias, cast, get_args

from laneway.activities.references import Reference
from laneway.errors import ConfigurationError
from laneway.history.given import check_text, is_function, refused
from laneway.history.records import TurnUsage

__all__ = [
    "DECIDING",
    "ENDINGS",
    "HOOK_NAMES",
    "AfterModelRequest",
    "AfterTool",
    "BeforeModelRequest",
    "BeforeTool",
    "Deny",
    "Edit",
    "Hook",
    "HookEvent",
    "HookName",
    "Hooks",
    "TurnEnd",
    "UserPromptSubmit",
]

HookName = Literal[
    "user_prompt_submit",
    "before_model_request",
    "after_model_request",
    "before_tool",
    "after_tool",
    "turn_committed",
    "turn_failed",
    "turn_cancelled",
]
HOOK_NAMES: tuple[HookName, ...] = get_args(HookName)

ENDINGS: frozenset[HookName] = frozenset({"turn_committed", "turn_failed", "turn_cancelled"})
"""Told of how a turn ended, which they cannot change any more."""

DECIDING: frozenset[HookName] = frozenset({"user_prompt_submit", "before_model_request", "before_tool"})
"""Asked before something happens, which they may forbid."""


@dataclass(frozen=True, kw_only=True)
class HookEvent:
    """Where something happens.

    Attributes:
        conversation, agent, turn_id: in which turn.
    """

    conversation: str
    agent: str
    turn_id: str


@dataclass(frozen=True, kw_only=True)
class UserPromptSubmit(HookEvent):
    """A turn is about to begin. Answer None to go on, `Edit` for another prompt, or `Deny`.

    Attributes:
        prompt: the prompt, as hooks before this one left it.
    """

    prompt: Any


@dataclass(frozen=True, kw_only=True)
class BeforeModelRequest(HookEvent):
    """A model is about to be asked. Answer None, or `Deny` to end the turn.

    Attributes:
        step: the turn's step, from 0.
        request_index: which model request of the turn it is, from 1.
        model_id: the model.
    """

    step: int
    request_index: int
    model_id: str


@dataclass(frozen=True, kw_only=True)
class AfterModelRequest(BeforeModelRequest):
    """A model has answered, and the answer is safe.

    Attributes:
        text: the text of the answer.
        tools: the tools that it calls.
    """

    text: str = ""
    tools: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class BeforeTool(HookEvent):
    """A tool is about to be run. Answer None, or `Deny`: it is not run then, and the model is told the reason.

    Attributes:
        step: the turn's step.
        tool: its name.
        call_id: the model's id of the call.
        arguments: as the tool gets them.
    """

    step: int
    tool: str
    call_id: str
    arguments: Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class AfterTool(BeforeTool):
    """A tool has run, and what came of it is safe.

    Attributes:
        outcome: `returned`; `retry` where it asks the model to try again; `failed` where it says that it failed.
    """

    outcome: str


@dataclass(frozen=True, kw_only=True)
class TurnEnd(HookEvent):
    """A turn has ended: `turn_committed`, `turn_failed` or `turn_cancelled`. A worker's death can have it told twice.

    Attributes:
        usage: what the turn used.
        error_type, error_message: for a failed turn, why.
    """

    usage: TurnUsage
    error_type: str | None = None
    error_message: str | None = None


@dataclass(frozen=True)
class Edit:
    """Another prompt, in place of the one that was submitted. Nothing of that one is kept.

    Attributes:
        prompt: what the agent's framework takes.
    """

    prompt: Any


@dataclass(frozen=True)
class Deny:
    """No.

    Attributes:
        reason: what the caller is told, or the model, for a tool.

    Raises:
        InvalidArgument: the reason is no text.
    """

    reason: str

    def __post_init__(self) -> None:
        check_text("Deny: reason", self.reason)


Hook: TypeAlias = Callable[[Any], "Edit | Deny | Awaitable[Edit | Deny | None] | None"]

_TIMEOUT = timedelta(seconds=10)


@dataclass(frozen=True)
class Hooks:
    """Hooks, by what they are for: one each, or several that run in order.

    Attributes:
        timeout: how long each call of one may take.

    Raises:
        InvalidArgument: the timeout is not positive, or a hook is neither a function nor a name.
    """

    user_prompt_submit: Hook | str | Sequence[Hook | str] = ()
    before_model_request: Hook | str | Sequence[Hook | str] = ()
    after_model_request: Hook | str | Sequence[Hook | str] = ()
    before_tool: Hook | str | Sequence[Hook | str] = ()
    after_tool: Hook | str | Sequence[Hook | str] = ()
    turn_committed: Hook | str | Sequence[Hook | str] = ()
    turn_failed: Hook | str | Sequence[Hook | str] = ()
    turn_cancelled: Hook | str | Sequence[Hook | str] = ()
    timeout: timedelta = field(default=_TIMEOUT, kw_only=True)

    def __post_init__(self) -> None:
        if not isinstance(cast("object", self.timeout), timedelta) or self.timeout <= timedelta(0):
            raise refused("Hooks: timeout", self.timeout, "a positive timedelta")
        for name in HOOK_NAMES:
            for hook in self.of(name):
                if not isinstance(hook, Reference) and not is_function(hook):
                    check_text(f"Hooks: {name}", hook, give="a function, a registered name, or a list of them")

    def of(self, name: HookName) -> tuple[Any, ...]:
        """The hooks for something, in order."""
        given: Any = getattr(self, name)
        return tuple(cast("Sequence[Any]", given)) if isinstance(given, list | tuple) else (given,)

    @property
    def names(self) -> frozenset[HookName]:
        """What there are hooks for."""
        return frozenset(name for name in HOOK_NAMES if self.of(name))

    def with_each(self, change: Callable[[Any], Any]) -> Hooks:
        """The same with each hook put through `change`."""
        changed: dict[str, Any] = {name: tuple(map(change, self.of(name))) for name in HOOK_NAMES}
        return Hooks(**changed, timeout=self.timeout)

    def check_callable(self) -> None:
        """Refuse what is no function, where hooks stay in this process.

        Raises:
            ConfigurationError: one is none.
        """
        for name in HOOK_NAMES:
            for hook in self.of(name):
                if not callable(hook):
                    raise ConfigurationError(f"the hook {name}={hook!r} cannot be called: give a function")
