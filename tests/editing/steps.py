"""One model request of an adapter, taken without servers of Laneway's: what it does to a history goes over the wire."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

from langchain_core.messages import BaseMessage
from pydantic_ai import Agent
from pydantic_ai.messages import ModelMessage, ModelRequest
from pydantic_ai.models import Model
from pydantic_ai.usage import RunUsage

from laneway import LangChainAdapter, PydanticAdapter
from laneway.activities.adapter import StepResult, StepWork
from laneway.activities.journal import ToolJournal
from laneway.activities.pydantic_run import RunState
from laneway.history.checkpoints import CheckpointRef
from laneway.history.origins import EntryMetadata


def agent_of(model: Model) -> Agent[None, str]:
    """An agent with the tool that histories here call."""
    agent: Agent[None, str] = Agent(model, instructions="Be brief.")
    agent.tool_plain(name="stock")(lambda q: {"left": q})
    return agent


async def _unused(*_: Any) -> None:
    return None


def work_of(
    messages: Sequence[ModelMessage], entries: Sequence[EntryMetadata], *, request_index: int = 1
) -> StepWork[ModelMessage]:
    """The step that sends a history which ends with a request."""
    pending = messages[-1]
    assert isinstance(pending, ModelRequest)
    state = RunState(position="request", pending=pending, usage=RunUsage(), run_step=request_index - 1)
    return _work(messages[:-1], entries[:-1], prompt=b'"unused"', step=request_index, state=state.to_json())


def _work(
    history: Sequence[Any], entries: Sequence[EntryMetadata], *, prompt: bytes, step: int, state: bytes | None
) -> StepWork[Any]:
    return StepWork(
        conversation="c",
        turn_id="turn-9",
        step=step,
        attempt=1,
        prompt=prompt,
        history=tuple(history),
        entries=tuple(entries),
        base_length=0,
        checkpoint=CheckpointRef(0, len(history), "0" * 32),
        extras={},
        lane_id="lane",
        state=state,
        journal=ToolJournal({}, _unused),
        stage=_unused,
        emit=lambda kind, data: None,
    )


def first_work_of(adapter: LangChainAdapter, messages: Sequence[BaseMessage], prompt: str) -> StepWork[BaseMessage]:
    """The first step of a graph's turn, on a history that is committed."""
    entries = [adapter.describe(message, "earlier") for message in messages]
    return _work(messages, entries, prompt=adapter.encode_prompt(prompt), step=0, state=None)


async def ask(
    agent: Agent[None, str],
    messages: Sequence[ModelMessage],
    entries: Sequence[EntryMetadata],
    processor: Any,
    *,
    request_index: int = 1,
) -> StepResult[ModelMessage]:
    """Send a history that ends with a request, through a history processor."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        adapter = PydanticAdapter(agent, history_processor=processor, stream=False)
    return await adapter.step(work_of(messages, entries, request_index=request_index))
