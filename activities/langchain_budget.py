"""What a graph's models and tools may spend: asked where LangChain tells its callbacks of a request or a call.

The hard fact: models and tools are asked somewhere inside of a node, several in one superstep, in coroutines and in
threads. LangChain tells its callbacks of each before it is sent or run, and what they raise stops it. It awaits a
coroutine of theirs only where a coroutine asks; what a thread asks can wait for the event loop. So there are two
handlers, of which each request and each call meets one.
"""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, cast
from uuid import UUID

from langchain_core.callbacks import AsyncCallbackHandler, BaseCallbackHandler
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, SystemMessage, ToolMessage
from langchain_core.outputs import ChatGeneration, LLMResult

from laneway.activities.account import TurnAccount
from laneway.activities.langchain_editing import DIALECT
from laneway.activities.langchain_prefix import PrefixWatch
from laneway.errors import ConfigurationError
from laneway.history.budget import Framing, RequestEstimate, UsageCheckpoint, estimate_request
from laneway.history.estimation import estimate_message, estimate_text
from laneway.history.origins import EntryMetadata
from laneway.history.stored_json import any_json

__all__ = ["GraphBudget", "SpendingStopped", "estimate_of"]

_RESERVED: Final = ("max_completion_tokens", "max_output_tokens", "max_tokens", "max_tokens_to_sample")
_OUTPUT: Final = ("response_format", "output_config", "output_format", "text")

_MAX_WAIT_SECONDS: Final = 30.0
"""How long a thread waits for the event loop, which lives while it answers heartbeats every second."""
_BLOCKING: Final = (
    "an asynchronous node asks a model, a tool or a graph synchronously, which stops all that the worker does, and "
    "cannot be held to a budget: use ainvoke() or astream() there, or make the node synchronous. Nothing was sent"
)


class SpendingStopped(BaseException):
    """A request or a call was stopped before it was sent or run.

    Not an `Exception`, which nodes, middleware and retry policies take for the model's or the tool's failure.

    Args:
        error: why.
    """

    def __init__(self, error: Exception) -> None:
        super().__init__(str(error))
        self.error = error


@dataclass(frozen=True)
class Sized:
    """A history that a superstep begins from, as the estimate of a request sees it.

    Attributes:
        messages: the messages, as the graph is shown them.
        tokens: the estimate of each of them that is known, by message id.
        live: index of the first message that came after the history was written anew.
        framing: how many tokens the request of its newest answer carried beside its messages; 0 where nobody looked.
    """

    messages: Sequence[BaseMessage] = ()
    tokens: Mapping[str, int] = field(default_factory=dict[str, int])
    live: int = 0
    framing: int = 0

    @classmethod
    def of(
        cls,
        shown: Sequence[BaseMessage],
        messages: Sequence[BaseMessage],
        entries: Sequence[EntryMetadata],
        *,
        live: int,
        framing: int,
    ) -> Sized:
        """What is shown of a history whose entries are known."""
        pairs = zip(messages, entries, strict=True)
        tokens = {one.id: entry.estimated_tokens for one, entry in pairs if one.id and entry.estimated_tokens}
        return cls(shown, tokens, live, framing)

    def size(self, message: BaseMessage) -> int:
        return self.tokens.get(message.id or "") or estimate_message(DIALECT, message)

    def measured_in(self, sent: Sequence[BaseMessage]) -> tuple[int, UsageCheckpoint | None]:
        """How many of the messages that are sent a provider has measured, and what it said.

        What an answer's usage says holds where all that was before it is sent again, and nothing else.
        """
        kept = 0
        for here, there in zip(self.messages, sent, strict=False):
            if here.id is None or here.id != there.id:
                break
            kept += 1
        for index in range(kept - 1, self.live - 1, -1):
            message = self.messages[index]
            usage = message.usage_metadata if isinstance(message, AIMessage) else None
            if usage and usage["input_tokens"]:
                return index + 1, UsageCheckpoint("", 0, usage["input_tokens"], usage["output_tokens"])
        return 0, None


def estimate_of(request: Sequence[BaseMessage], parameters: Mapping[str, Any], before: Sized) -> RequestEstimate:
    """How large a request is as a whole.

    Args:
        request: the messages that are about to be sent.
        parameters: what goes with them, as the integration passes it on.
        before: the history that the superstep began from.
    """
    first = 0
    while (
        first < len(request)
        and isinstance(request[first], SystemMessage)
        and not (before.messages and request[first].id == before.messages[0].id)
    ):
        first += 1
    sent = request[first:]
    newest = len(sent)
    while newest and not isinstance(sent[newest - 1], AIMessage):
        newest -= 1
    sizes = [before.size(message) for message in sent]
    measured, usage = before.measured_in(sent)
    framing = Framing(
        instructions_tokens=sum(estimate_message(DIALECT, message) for message in request[:first]),
        tools_tokens=sum(map(_tokens, cast("Sequence[object]", parameters.get("tools") or ()))),
        output_schema_tokens=sum(_tokens(value) for name in _OUTPUT if (value := parameters.get(name))),
    )
    reserved: list[int] = [value for name in _RESERVED if isinstance(value := parameters.get(name), int)]
    return estimate_request(sizes[measured:], usage=usage, digest_of_prefix="").framed(
        framing,
        new_tokens=sum(sizes[max(newest, measured) :]),
        measured_framing_tokens=before.framing,
        reserved_tokens=reserved[0] if reserved else 0,
    )


def _tokens(value: object) -> int:
    return estimate_text(any_json(value).decode())


@dataclass
class _Batch:
    """The tool calls of one answer, which are allowed all or none.

    Attributes:
        names: the calls that have not begun, by their ids: each a name of its own within the step.
        asked: the question to the account, once it is asked.
    """

    names: dict[str, str]
    asked: asyncio.Future[None] | None = None


class GraphBudget:
    """Has what a superstep's models and tools spend counted before they do.

    Args:
        account: the turn's.
        tools: the names of the graph's tools: an answer's calls of others make its output, or are refused.
        watch: stops requests that would be refused, which are not to be counted; None where there is none.

    Attributes:
        before: the history that the superstep begins from.
        stopped: what the account has refused, or how asking it failed.
    """

    def __init__(self, account: TurnAccount, tools: frozenset[str], watch: PrefixWatch | None) -> None:
        self.before = Sized()
        self.stopped: Exception | None = None
        self._account = account
        self._tools = tools
        self.watch = watch
        self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()
        self._names: Counter[str] = Counter()
        self._batches: list[_Batch] = []
        self._sent: dict[UUID, tuple[int, int]] = {}
        self._answered: list[tuple[int, int]] = []
        self._framings: dict[str, int] = {}
        self.handlers: Sequence[BaseCallbackHandler] = (_InLoop(self), _InThreads(self))

    def begin(self, before: Sized) -> None:
        """A superstep is about to run on a history, whose open tool calls are one batch for each answer."""
        self.before = before
        answered: set[str] = set()
        answers: list[AIMessage] = []
        for message in reversed(before.messages):
            if isinstance(message, ToolMessage):
                answered.add(message.tool_call_id)
            elif isinstance(message, AIMessage):
                answers.append(message)
            else:
                break
        for message in reversed(answers):
            self._await_calls(message, answered)

    async def settle(self) -> None:
        """Put what the answered requests took in place of what was reserved for them."""
        while self._answered:
            number, tokens = self._answered.pop()
            await self._account.settle(tokens, number)

    def framing_after(self, messages: Sequence[BaseMessage]) -> int:
        """How many tokens the request of a history's newest answer carried beside its messages."""
        for message in reversed(messages):
            if isinstance(message, AIMessage):
                return self._framings.get(message.id or "", self.before.framing)
        return 0

    # What is asked, in the event loop ---------------------------------------------------------------------------------

    async def request(self, run_id: UUID, messages: Sequence[BaseMessage], parameters: Mapping[str, Any]) -> None:
        """A model request is about to be sent. Raises `SpendingStopped` where it may not be."""
        try:
            await self.settle()
            estimate = estimate_of(messages, parameters, self.before) if self._account.measures_tokens else None
            number = await self._account.request(estimate)
        except Exception as error:
            raise self._stop(error) from error
        self._sent[run_id] = number, 0 if estimate is None else estimate.framing.total_tokens

    async def tool_call(self, tool: str, call_id: str | None) -> None:
        """A tool is about to run. Raises `SpendingStopped` where it may not."""
        batch = next((one for one in reversed(self._batches) if call_id in one.names), None)
        try:
            if batch is None:
                await self._account.tool_calls([self._name(call_id or f"tool {tool}")], are_unique=True)
                return
            if batch.asked is None:
                asked = self._account.tool_calls(list(batch.names.values()), are_unique=True)
                batch.asked = asyncio.ensure_future(asked)
            batch.names.pop(str(call_id))
            # Each of the batch waits for it, and the one that began it may be cancelled.
            await asyncio.shield(batch.asked)
        except Exception as error:
            raise self._stop(error) from error

    def answered(self, run_id: UUID, response: LLMResult) -> None:
        """A model has answered; called from any thread."""
        number, framing = self._sent.pop(run_id, (0, 0))
        for generations in response.generations:
            for generation in generations:
                message = generation.message if isinstance(generation, ChatGeneration) else None
                if not isinstance(message, AIMessage):
                    continue
                if number and message.usage_metadata and message.usage_metadata["input_tokens"]:
                    self._answered.append((number, message.usage_metadata["input_tokens"]))
                if message.id:
                    self._framings[message.id] = framing
                self._await_calls(message, ())

    def in_loop(self, asked: Coroutine[Any, Any, None]) -> None:
        """Ask from a thread.

        Raises:
            SpendingStopped: see `request`; or the event loop is held by what waits for the thread.
        """
        asking = asyncio.run_coroutine_threadsafe(asked, self._loop)
        try:
            asking.result(_MAX_WAIT_SECONDS)
        except TimeoutError:
            asking.cancel()
            raise self._stop(ConfigurationError(_BLOCKING)) from None

    def refuse_blocking(self) -> None:
        """Refuse what is asked synchronously in the event loop: LangChain runs coroutines elsewhere then.

        Raises:
            SpendingStopped: it is.
        """
        if asyncio.get_running_loop() is not self._loop:
            raise self._stop(ConfigurationError(_BLOCKING))

    def is_elsewhere(self) -> bool:
        """Whether this thread is not one that runs the step's event loop."""
        return threading.get_ident() != self._thread

    # Names ------------------------------------------------------------------------------------------------------------

    def _await_calls(self, message: AIMessage, answered: set[str] | tuple[()]) -> None:
        calls = [
            call["id"]
            for call in message.tool_calls
            if call["id"] and call["name"] in self._tools and call["id"] not in answered
        ]
        if calls:
            self._batches.append(_Batch({call_id: self._name(call_id) for call_id in dict.fromkeys(calls)}))

    def _name(self, call: str) -> str:
        """A name that the call has on every attempt, however often one of its id is made in the step."""
        self._names[call] += 1
        return call if self._names[call] == 1 else f"{call}:{self._names[call]}"

    def _stop(self, error: Exception) -> SpendingStopped:
        self.stopped = self.stopped or error
        return SpendingStopped(error)


class _InLoop(AsyncCallbackHandler):
    """Asks about what coroutines of the step ask."""

    raise_error = True

    def __init__(self, budget: GraphBudget) -> None:
        super().__init__()
        self._budget = budget

    @property
    def ignore_llm(self) -> bool:
        return self._budget.is_elsewhere()

    @property
    def ignore_chat_model(self) -> bool:
        return self.ignore_llm

    @property
    def ignore_agent(self) -> bool:
        return self.ignore_llm

    async def on_chat_model_start(
        self, serialized: dict[str, Any], messages: list[list[BaseMessage]], *, run_id: UUID, **kwargs: Any
    ) -> None:
        self._budget.refuse_blocking()
        _check(self._budget, serialized, messages, run_id, kwargs)
        for request in messages:
            await self._budget.request(run_id, request, kwargs.get("invocation_params") or {})

    async def on_llm_start(
        self, serialized: dict[str, Any], prompts: list[str], *, run_id: UUID, **kwargs: Any
    ) -> None:
        self._budget.refuse_blocking()
        for prompt in prompts:
            await self._budget.request(run_id, [HumanMessage(prompt)], kwargs.get("invocation_params") or {})

    async def on_llm_end(self, response: LLMResult, *, run_id: UUID, **kwargs: Any) -> None:
        self._budget.answered(run_id, response)

    async def on_tool_start(self, serialized: dict[str, Any], input_str: str, **kwargs: Any) -> None:
        self._budget.refuse_blocking()
        await self._budget.tool_call(_tool(serialized, kwargs), cast("str | None", kwargs.get("tool_call_id")))


class _InThreads(BaseCallbackHandler):
    """Asks about what threads of the step ask."""

    raise_error = True
    run_inline = True

    def __init__(self, budget: GraphBudget) -> None:
        super().__init__()
        self._budget = budget

    @property
    def ignore_llm(self) -> bool:
        return not self._budget.is_elsewhere()

    @property
    def ignore_chat_model(self) -> bool:
        return self.ignore_llm

    @property
    def ignore_agent(self) -> bool:
        return self.ignore_llm

    def on_chat_model_start(
        self, serialized: dict[str, Any], messages: list[list[BaseMessage]], *, run_id: UUID, **kwargs: Any
    ) -> None:
        _check(self._budget, serialized, messages, run_id, kwargs)
        for request in messages:
            self._budget.in_loop(self._budget.request(run_id, request, kwargs.get("invocation_params") or {}))

    def on_llm_start(self, serialized: dict[str, Any], prompts: list[str], *, run_id: UUID, **kwargs: Any) -> None:
        for prompt in prompts:
            given: Mapping[str, Any] = kwargs.get("invocation_params") or {}
            self._budget.in_loop(self._budget.request(run_id, [HumanMessage(prompt)], given))

    def on_llm_end(self, response: LLMResult, *, run_id: UUID, **kwargs: Any) -> None:
        self._budget.answered(run_id, response)

    def on_tool_start(self, serialized: dict[str, Any], input_str: str, **kwargs: Any) -> None:
        call_id = cast("str | None", kwargs.get("tool_call_id"))
        self._budget.in_loop(self._budget.tool_call(_tool(serialized, kwargs), call_id))


def _check(
    budget: GraphBudget,
    serialized: dict[str, Any],
    messages: list[list[BaseMessage]],
    run_id: UUID,
    given: Mapping[str, Any],
) -> None:
    """Have a request that would be refused be stopped before it is counted."""
    if budget.watch is not None:
        budget.watch.on_chat_model_start(serialized, messages, run_id=run_id, **given)


def _tool(serialized: Mapping[str, Any] | None, given: Mapping[str, Any]) -> str:
    return str((serialized or {}).get("name") or given.get("name") or "")
