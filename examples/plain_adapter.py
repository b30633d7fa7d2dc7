"""An adapter for agents that are plain functions, to show what one takes. It cannot edit history.

A message is a dict with `role` (`user`, `assistant`, `tool`) and `text`; an assistant's may have `call`, with the name
and the arguments of a tool. An agent is a function from the messages to the next one.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

from laneway import RetryPolicy
from laneway.activities.adapter import StepResult, StepWork
from laneway.activities.capabilities import Capability
from laneway.errors import HistoryProcessingValidationError, InvalidInput
from laneway.history.origins import EntryMetadata, HistoryOrigin, OriginKind
from laneway.history.records import EventKind, TurnUsage
from laneway.history.repair import ImportRepair

Message = dict[str, Any]
Answer = Callable[[Sequence[Message]], Awaitable[Message]]
Tool = Callable[..., Any]

_ORIGINS: Mapping[str, OriginKind] = {"user": "user", "assistant": "model", "tool": "tool"}


class PlainAdapter:
    """Runs a function as an agent.

    Args:
        answer: makes the next message from the messages before it.
        name: names the function in the lane contract, as a model's name would.
        tools: what it may call, by name; sync or async.
    """

    shortname = "plain"
    capabilities: frozenset[Capability] = frozenset()
    retry_policy = RetryPolicy()

    def __init__(self, answer: Answer, *, name: str, tools: Mapping[str, Tool] | None = None) -> None:
        self._answer = answer
        self._name = name
        self._tools = dict(tools or {})

    def contract(self) -> Mapping[str, object]:
        return {"adapter": self.shortname, "model": self._name, "tools": sorted(self._tools)}

    # Messages ---------------------------------------------------------------------------------------------------------

    def encode_prompt(self, prompt: object) -> bytes:
        if not isinstance(prompt, str) or not prompt.strip():
            raise InvalidInput(f"the prompt is {prompt!r}: give some text")
        return json.dumps(prompt).encode()

    def decode_prompt(self, prompt: bytes) -> str:
        return str(json.loads(prompt))

    def encode(self, message: Message) -> bytes:
        return json.dumps(message, sort_keys=True).encode()

    def decode(self, payload: bytes) -> Message:
        return dict(json.loads(payload))

    def describe(self, message: Message, turn_id: str) -> EntryMetadata:
        return EntryMetadata((HistoryOrigin(_ORIGINS[message["role"]], run_id=turn_id),), len(message["text"]) // 3 + 4)

    def encode_import(self, messages: object, *, repair: bool) -> bytes:
        if not isinstance(messages, list) or any(one.get("role") not in _ORIGINS for one in messages):
            raise HistoryProcessingValidationError("the history is no list of messages", rule="not_native")
        return json.dumps({"import": messages}, separators=(",", ":")).encode()

    def decode_import(self, blob: bytes, turn_id: str) -> tuple[Sequence[Message], Sequence[EntryMetadata]]:
        messages: list[Message] = json.loads(blob)["import"]
        return messages, [self.describe(one, turn_id) for one in messages]

    def repairs_of(self, blob: bytes) -> Sequence[ImportRepair]:
        return ()

    def state_of(
        self, messages: Sequence[Message], extras: Mapping[str, object], parts: Mapping[str, bytes]
    ) -> Mapping[str, object]:
        raise InvalidInput("this agent has no state beside its messages")

    def output_of(self, message: Message) -> object:
        return message["text"]

    def decode_output(self, output: str) -> object:
        return json.loads(output)

    # Steps ------------------------------------------------------------------------------------------------------------

    async def step(self, work: StepWork[Message]) -> StepResult[Message]:
        state = {"requests": 0, "calls": 0} if work.state is None else json.loads(work.state)
        last = work.history[-1] if work.history and work.state is not None else None
        if last is not None and last["role"] == "assistant":
            return await self._call(work, last["call"], state)
        opening = [] if work.state is not None else [{"role": "user", "text": self.decode_prompt(work.prompt)}]
        answer = await self._answer([*work.history, *opening])
        state["requests"] += 1
        work.emit(EventKind.TEXT_DELTA, {"text": answer["text"]})
        result = _result([*opening, answer], state)
        return result if "call" in answer else replace(result, done=True, output_in_history=True)

    async def _call(self, work: StepWork[Message], call: Sequence[Any], state: dict[str, int]) -> StepResult[Message]:
        name, arguments = call
        key = work.journal.key("call", name, json.dumps(arguments).encode())
        done = work.journal.finished(key)
        if done is None:
            outcome = self._tools[name](**arguments)
            outcome = await outcome if inspect.isawaitable(outcome) else outcome
            # What the journal holds stands: another attempt may have been first.
            done = await work.journal.finish(key, json.dumps(outcome).encode())
        state["calls"] += 1
        return replace(_result([{"role": "tool", "text": str(json.loads(done))}], state), asked=False)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        yield


def _result(appended: Sequence[Message], state: dict[str, int]) -> StepResult[Message]:
    usage = TurnUsage(requests=state["requests"], tool_calls=state["calls"])
    return StepResult(appended=appended, state=json.dumps(state).encode(), usage=usage)
