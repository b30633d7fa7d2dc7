"""Running a turn's hooks: in order, each with its time, its decision kept and not asked for again."""

from __future__ import annotations

import asyncio
import inspect
import json
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from laneway.activities.hooks import (
    DECIDING,
    ENDINGS,
    BeforeModelRequest,
    Deny,
    Edit,
    HookEvent,
    HookName,
    Hooks,
    TurnEnd,
    UserPromptSubmit,
)
from laneway.errors import HookError, HookTimedOut, InvalidInput, LanewayError, TurnDenied
from laneway.history.callbacks import callback_name, is_async
from laneway.history.records import Outcome, TurnRecord

__all__ = ["HookJournal", "TurnHooks", "inside_hook"]

_log = logging.getLogger(__name__)

_INSIDE: ContextVar[bool] = ContextVar("laneway_inside_hook", default=False)


def inside_hook() -> bool:
    """Whether a hook is running here: what it does, its own turns included, calls no hooks."""
    return _INSIDE.get()


@dataclass(frozen=True)
class HookJournal:
    """What hooks of a step have decided.

    Attributes:
        recorded: by name.
        keep: keeps a decision unless there is one of that name, with the prompt that it leads to, if to another one;
            answers what there was, or None.
    """

    recorded: Mapping[str, bytes] = field(default_factory=dict[str, bytes])
    keep: Callable[[str, bytes, bytes | None], Awaitable[bytes | None]] | None = None


@dataclass
class TurnHooks:
    """The hooks that are in force for a turn.

    Attributes:
        layers: the adapter's, the application's, those of the scopes.
        conversation, agent, turn_id: the turn.
        episode: the step that a batch of tool calls began with.
        journal: see there; of the whole turn.
    """

    layers: Sequence[Hooks] = ()
    conversation: str = ""
    agent: str = ""
    turn_id: str = ""
    episode: int = 0
    journal: HookJournal = field(default_factory=HookJournal)
    _named: Counter[str] = field(default_factory=Counter[str])

    def has(self, *names: HookName) -> bool:
        """Whether there are hooks for one of these."""
        return any(layer.of(name) for layer in self.layers for name in names)

    @property
    def place(self) -> Mapping[str, str]:
        """Where the turn is, for an event."""
        return {"conversation": self.conversation, "agent": self.agent, "turn_id": self.turn_id}

    async def prompt(
        self, prompt: bytes, *, decode: Callable[[bytes], object], encode: Callable[[object], bytes]
    ) -> bytes:
        """Ask about a turn's prompt, which the turn's first step does before anything else.

        Args:
            prompt: its stored form.
            decode, encode: the adapter's.

        Returns:
            the stored form of what the hooks made of it; by then it is what is kept, and the other one is not.

        Raises:
            TurnDenied: a hook denied it.
            HookError: a hook failed.
        """
        for hook, timeout, key in self._each("user_prompt_submit", ""):
            recorded = self.journal.recorded.get(key)
            if recorded is None:
                answer = await self._call(
                    hook, UserPromptSubmit(prompt=decode(prompt), **self.place), timeout, (Edit, Deny)
                )
                edited = self._encoded(hook, answer, encode) if isinstance(answer, Edit) else None
                recorded, prompt = await self._kept(key, answer, edited), edited or prompt
            self._raise_if_denied(recorded)
        return prompt

    async def before_model_request(self, *, step: int, request_index: int, model_id: str) -> None:
        """Ask before a model is asked.

        Raises:
            TurnDenied: a hook denied it.
            HookError: a hook failed.
        """
        event = BeforeModelRequest(**self.place, step=step, request_index=request_index, model_id=model_id)
        for hook, timeout, key in self._each("before_model_request", str(request_index)):
            recorded = self.journal.recorded.get(key)
            if recorded is None:
                recorded = await self._kept(key, await self._call(hook, event, timeout, (Deny,)), None)
            self._raise_if_denied(recorded)

    async def ask(self, name: HookName, event: HookEvent, *, key: str) -> str | None:
        """Ask before, or tell after, something that `key` names among its kind in the step.

        Returns:
            the reason why it is denied; None where it is not.

        Raises:
            HookError: a hook failed.
        """
        allowed = (Deny,) if name in DECIDING else ()
        for hook, timeout, name_of_it in self._each(name, key):
            recorded = self.journal.recorded.get(name_of_it)
            if recorded is None:
                recorded = await self._kept(name_of_it, await self._call(hook, event, timeout, allowed), None)
            if (reason := _reason(recorded)) is not None:
                return reason
        return None

    async def tell_end(self, record: TurnRecord) -> None:
        """Tell of the turn's end. What fails here is logged: the turn has ended as it has."""
        event = TurnEnd(
            **self.place, usage=record.usage, error_type=record.error_type, error_message=record.error_message
        )
        for layer in self.layers:
            for hook in layer.of(_ENDING[record.outcome]):
                try:
                    await self._call(hook, event, layer.timeout, ())
                except LanewayError as error:
                    _log.warning("after the end of turn %s: %s", self.turn_id, error)

    @property
    def wants_end(self) -> bool:
        """Whether there are hooks that are told of the turn's end."""
        return self.has(*ENDINGS)

    def _each(self, name: HookName, key: str) -> list[tuple[Any, timedelta, str]]:
        found: list[tuple[Any, timedelta, str]] = []
        if inside_hook():
            return found
        for layer in self.layers:
            for hook in layer.of(name):
                named = f"{name}:{key}:{callback_name(hook)}"
                self._named[named] += 1
                found.append((hook, layer.timeout, f"{named}:{self._named[named]}"))
        return found

    async def _call(self, hook: Any, event: HookEvent, timeout: timedelta, allowed: tuple[type[Any], ...]) -> Any:
        name, token = callback_name(hook), _INSIDE.set(True)
        clock = asyncio.timeout(timeout.total_seconds())
        try:
            async with clock:
                answer: object = hook(event) if is_async(hook) else await asyncio.to_thread(hook, event)
                if inspect.isawaitable(answer):
                    answer = await answer
        except TimeoutError as error:
            if clock.expired():
                raise HookTimedOut(
                    f"the hook {name} did not answer within {timeout.total_seconds():g} s: nothing was sent after it. "
                    "Make it faster, or raise the timeout of its Hooks"
                ) from None
            raise _failure(name, error) from error
        except asyncio.CancelledError as error:
            if (task := asyncio.current_task()) is not None and task.cancelling():
                raise
            raise _failure(name, error) from error
        except Exception as error:
            raise _failure(name, error) from error
        finally:
            _INSIDE.reset(token)
        if answer is None or isinstance(answer, allowed):
            return answer
        what = ", ".join([*(f"{kind.__name__}(…)" for kind in allowed), "None"])
        raise HookError(f"the hook {name} returned {answer!r}: it may return {what}")

    async def _kept(self, key: str, answer: Edit | Deny | None, prompt: bytes | None) -> bytes:
        decision: dict[str, object] = {}
        if isinstance(answer, Deny):
            decision["deny"] = answer.reason
        elif isinstance(answer, Edit):
            decision["edit"] = True
        value = json.dumps(decision).encode()
        if self.journal.keep is None:
            return value
        held = await self.journal.keep(key, value, prompt)
        return value if held is None else held

    def _encoded(self, hook: Any, answer: Edit, encode: Callable[[object], bytes]) -> bytes:
        try:
            return encode(answer.prompt)
        except InvalidInput as error:
            raise HookError(f"the hook {callback_name(hook)} made a prompt that is none: {error}") from error

    def _raise_if_denied(self, recorded: bytes) -> None:
        if (reason := _reason(recorded)) is not None:
            raise TurnDenied(reason, turn_id=self.turn_id, error_type=TurnDenied.code, error_message=reason)


_ENDING: Mapping[Outcome, HookName] = {
    "committed": "turn_committed",
    "failed": "turn_failed",
    "cancelled": "turn_cancelled",
}


def _reason(recorded: bytes) -> str | None:
    reason: str | None = json.loads(recorded).get("deny")
    return reason


def _failure(name: str, error: BaseException) -> HookError:
    return HookError(f"the hook {name} raised {type(error).__name__}: {error}. Nothing was sent after it")
