"""Model calls that a history processor makes: recorded, so that none is paid twice, and told on the edit's receipt.

An attempt at a step may end at any time, and the next one runs the processors again, on the same history. So the answer
to a call is kept under the name of what was asked before anything is done with it, and found there by the next attempt.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import asdict, astuple, dataclass, field, replace
from hashlib import blake2b
from typing import Any, Final, Literal, Protocol, Self

from laneway.errors import ServiceUnavailable, StoreError
from laneway.history.refusals import EarlierCalls
from laneway.history.stored_json import compact_json

__all__ = ["CallAnswer", "CallFailed", "CallJournal", "CallReceipt", "CallUsage", "ModelCalls"]

_FAILED: Final = "#failed"
"""How the keys of calls end that came to nothing."""


@dataclass(frozen=True, slots=True)
class CallUsage:
    """What a model call used, by its provider's own figures; the requests that failed on the way are counted."""

    requests: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0


@dataclass(frozen=True, slots=True)
class CallAnswer:
    """What a model call came to."""

    text: str
    model: str | None = None
    usage: CallUsage = field(default_factory=CallUsage)

    def to_json(self) -> bytes:
        """The stored form."""
        return compact_json(asdict(self))

    @classmethod
    def from_json(cls, blob: bytes) -> Self:
        """Read what `to_json` gives."""
        data: dict[str, Any] = json.loads(blob)
        return cls(data["text"], data["model"], CallUsage(**data["usage"]))


class CallFailed(Exception):
    """A model call that came to nothing, with what it used all the same.

    Args:
        cause: what went wrong.
        usage: what was used.
    """

    def __init__(self, cause: Exception, usage: CallUsage, *, model: str | None = None) -> None:
        super().__init__(str(cause))
        self.cause = cause
        self.usage = usage
        self.model = model


@dataclass(frozen=True, slots=True)
class CallReceipt:
    """A model call of a history processor.

    Attributes:
        purpose: what for: `summary`.
        model: the model, as its framework names it; None where a function of the application's was asked.
        outcome: `answered`; `recorded` where an earlier attempt at the step was answered; `failed`; `put_off` where
            nothing was asked, since calls before it had failed.
        error: what went wrong.
        usage: what it used; it is part of the turn's usage.
    """

    purpose: str
    model: str | None
    outcome: Literal["answered", "recorded", "failed", "put_off"]
    error: str | None = None
    usage: CallUsage = field(default_factory=CallUsage)

    @classmethod
    def from_values(cls, values: Sequence[Any]) -> Self:
        """Read what `dataclasses.astuple` gives, after JSON."""
        purpose, model, outcome, error, usage = values
        return cls(purpose, model, outcome, error, CallUsage(*usage))


class CallJournal(Protocol):
    """Where finished calls of a step are kept; see `laneway.activities.journal.ToolJournal`."""

    def key(self, call_id: str, tool: str, arguments: bytes) -> str: ...

    def finished(self, key: str) -> bytes | None: ...

    async def finish(self, key: str, result: bytes) -> bytes: ...


class ModelCalls:
    """The model calls of one pass of history editing.

    Args:
        journal: the step's.
        prefix: finds the native messages that a conversation's requests begin with, where `messages`, as a processor
            sees them, are those; see `native_prefix`.
        admit: asked before each request, with an estimate of it.
        settle: told what an answer's input took.
        earlier: what became of calls before this pass.

    Attributes:
        receipts: what was called, in order.
        framing: what the conversation's requests carry besides, as its framework has it; None where nobody knows.
    """

    def __init__(
        self,
        journal: CallJournal,
        *,
        framing: object = None,
        prefix: Callable[[Sequence[Any]], Sequence[Any] | None] = lambda messages: None,
        admit: Callable[[int], Awaitable[None]] | None = None,
        settle: Callable[[int], Awaitable[None]] | None = None,
        earlier: EarlierCalls | None = None,
    ) -> None:
        self.receipts: list[CallReceipt] = []
        self.framing = framing
        self._journal = journal
        self._prefix = prefix
        self._admit = admit
        self._settle = settle
        self._earlier = earlier or EarlierCalls()

    def native_prefix(self, messages: Sequence[Any]) -> Sequence[Any] | None:
        """The native messages, as the provider was sent them before, that a processor sees as `messages`.

        None where they are not such: then the provider cannot have cached them.
        """
        return self._prefix(messages)

    async def admit(self, estimated_tokens: int) -> None:
        """A request of a call is about to be sent.

        Raises:
            RequestTooLarge, BudgetExceeded: it may not be.
        """
        if self._admit is not None:
            await self._admit(estimated_tokens)

    def is_put_off(self, purpose: str) -> bool:
        """Whether nothing is to be asked for this now: it failed in this turn, or too lately in the lane's last ones.

        It is told on a receipt, once a turn.
        """
        if self._earlier.is_told(purpose):
            return True
        why = self._earlier.why_put_off()
        if why is not None:
            self.receipts.append(CallReceipt(purpose, None, "put_off", why))
        return why is not None

    async def once(
        self, purpose: str, asked: str, call: Callable[[], Awaitable[CallAnswer]], *, keeps_failure: bool = False
    ) -> str:
        """The answer to a call: that of an earlier attempt at the step, else what `call` gives.

        Args:
            purpose: what for.
            asked: names the call by what it asks.
            call: makes it.
            keeps_failure: whether a failure is the outcome as well, so that further attempts do not ask again.

        Raises:
            Exception: whatever `call` raises; of a `CallFailed` its cause; of an earlier attempt a `RuntimeError`.
        """
        digest = blake2b(asked.encode("utf-8", "surrogatepass"), digest_size=12).hexdigest()
        key = self._journal.key(purpose, purpose, digest.encode())
        done = self._journal.finished(key)
        if done is None:
            if (failed := self._journal.finished(key + _FAILED)) is not None:
                receipt = CallReceipt.from_values(json.loads(failed))
                self.receipts.append(receipt)
                raise RuntimeError(receipt.error)
            try:
                answer = await self._called(purpose, call)
            except (StoreError, ServiceUnavailable):
                raise  # of the step, not of the call
            except Exception:
                if keeps_failure:
                    await self._journal.finish(key + _FAILED, json.dumps(astuple(self.receipts[-1])).encode())
                raise
            # Journaled before it is used; where another attempt was faster, its answer stands.
            done = await self._journal.finish(key, answer.to_json())
            receipt = CallReceipt(purpose, answer.model, "answered", usage=answer.usage)
        else:
            receipt = CallReceipt(purpose, None, "recorded")
        standing = CallAnswer.from_json(done)
        self.receipts.append(replace(receipt, model=standing.model, usage=standing.usage))
        return standing.text

    async def _called(self, purpose: str, call: Callable[[], Awaitable[CallAnswer]]) -> CallAnswer:
        try:
            answer = await call()
        except CallFailed as error:
            self._failed(purpose, error.cause, error.usage, error.model)
            raise error.cause from None
        except Exception as error:
            self._failed(purpose, error, CallUsage(), None)
            raise
        if self._settle is not None:
            await self._settle(answer.usage.input_tokens)
        return answer

    def _failed(self, purpose: str, error: Exception, usage: CallUsage, model: str | None) -> None:
        message = f"{type(error).__name__}: {error}"
        self.receipts.append(CallReceipt(purpose, model, "failed", message[:1000], usage))

    def failed(self, purpose: str, error: BaseException) -> None:
        """Say that a call was given up, where `once` could not."""
        self.receipts.append(CallReceipt(purpose, None, "failed", f"{type(error).__name__}: {error}"[:1000]))
