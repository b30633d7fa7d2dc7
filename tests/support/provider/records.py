"""What the server has seen: one record for each request to a model, in order of arrival."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from tests.support.provider.answers import Answer
from tests.support.provider.transcript import Api, Json, ProviderRequest


@dataclass
class Progress:
    """What becomes of a request; only the server writes to it."""

    status: int | None = None
    request: ProviderRequest | None = None
    answer: Answer | None = None
    answer_id: str | None = None
    answer_body: Json | None = None
    fault: str | None = None
    refusal: str | None = None
    completed_at: float | None = None
    aborted: bool = False
    closed_at: float | None = None
    closed_by: Literal["client", "server"] | None = None
    ended: asyncio.Event = field(default_factory=asyncio.Event)
    closed: asyncio.Event = field(default_factory=asyncio.Event)


@dataclass(frozen=True, eq=False)
class RequestRecord:
    """A request as it came. Times are ``time.monotonic()`` seconds, comparable within the machine."""

    index: int
    api: Api
    path: str
    headers: Mapping[str, str]
    body: Json
    arrived_at: float
    progress: Progress = field(default_factory=Progress, repr=False)

    @property
    def status(self) -> int | None:
        """The status that was sent, ``None`` before that or when none ever was."""
        return self.progress.status

    @property
    def request(self) -> ProviderRequest:
        """The request in the form that scripts see. Only of one that passed the rules."""
        if self.progress.request is None:
            raise LookupError(f"request {self.index} was not accepted: {self.refusal or self.fault}")
        return self.progress.request

    @property
    def answer(self) -> Answer | None:
        """The answer that the script made."""
        return self.progress.answer

    @property
    def answer_id(self) -> str | None:
        """The id of the answer on the wire, as soon as it is made."""
        return self.progress.answer_id

    @property
    def answer_body(self) -> Json | None:
        """The answer as the API would send it whole, also when it was streamed."""
        return self.progress.answer_body

    @property
    def fault(self) -> str | None:
        """The name of the fault that was injected."""
        return self.progress.fault

    @property
    def refusal(self) -> str | None:
        """The message of the refusal, if the request broke a rule."""
        return self.progress.refusal

    @property
    def completed(self) -> bool:
        """Whether a response (an error too) has been sent whole."""
        return self.progress.completed_at is not None

    @property
    def aborted(self) -> bool:
        """Whether the response ended before it was whole, by either side."""
        return self.progress.aborted

    @property
    def closed_at(self) -> float | None:
        """When the client's connection was closed."""
        return self.progress.closed_at

    @property
    def closed_by(self) -> Literal["client", "server"] | None:
        """Which side closed the connection."""
        return self.progress.closed_by

    def forget_body(self) -> None:
        """Let go of what was sent, for runs whose bodies would fill the memory."""
        self.body.clear()
        self.progress.request = None
        self.progress.answer_body = None

    async def ended(self, timeout_seconds: float = 10.0) -> None:
        """Wait until the response has been sent whole or has broken off."""
        await asyncio.wait_for(self.progress.ended.wait(), timeout_seconds)

    async def closed(self, timeout_seconds: float = 10.0) -> float:
        """Wait until the connection is closed; returns when. A pooled connection stays open after an answer."""
        await asyncio.wait_for(self.progress.closed.wait(), timeout_seconds)
        assert self.progress.closed_at is not None
        return self.progress.closed_at


@dataclass
class Counters:
    """How many requests came and what became of them.

    ``made`` counts answers that the script made, which a provider would bill; ``finished`` those of them
    that were delivered whole.
    """

    requests: int = 0
    made: int = 0
    finished: int = 0
    refused: int = 0
    faulted: int = 0
    aborted: int = 0
