"""The demo's agent, written with Pydantic AI: a plain agent with three tools."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Literal, TypeVar

from pydantic_ai import Agent, ModelRetry, RunContext
from pydantic_ai.exceptions import UserError
from pydantic_ai.messages import (
    ModelMessage,
    ModelRequest,
    ModelResponse,
    RetryPromptPart,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.models import Model, ModelRequestParameters, StreamedResponse, infer_model
from pydantic_ai.models.function import AgentInfo, DeltaToolCall, FunctionModel
from pydantic_ai.models.wrapper import WrapperModel
from pydantic_ai.settings import ModelSettings

from laneway import PydanticAdapter

from examples.demo.folder import Excerpt, Found, Listing, Refused
from examples.demo.guide import INSTRUCTIONS, Guide, check_model_name
from examples.demo.ledger import Gate, Gates, Ledger, LineKind
from examples.demo.scratch import AGENT, MODEL_VARIABLE, DemoError, Scratch
from examples.demo.script import Conversation, reply_to, spoken

__all__ = ["conversation_of", "pydantic_adapter"]

_T = TypeVar("_T")


def pydantic_adapter(root: Path, scratch: Scratch, model_name: str | None) -> PydanticAdapter[None, str]:
    """The agent. Arguments and errors are those of `build_app`."""
    ledger, gates = scratch.ledger, scratch.gates
    model = _LedgerModel(_model(model_name, gates), ledger, gates if model_name else None)
    agent = Agent(model, name=AGENT, instructions=INSTRUCTIONS, retries=2)
    _add_tools(agent, Guide(root, scratch))
    return PydanticAdapter(agent)


def _model(name: str | None, gates: Gates) -> Model:
    if name is None:
        return _scripted_model(gates)
    check_model_name(name)
    try:
        return infer_model(name)
    except UserError as error:
        raise DemoError(f"{MODEL_VARIABLE}={name!r} cannot be used: {str(error).splitlines()[0]}") from None


def _add_tools(agent: Agent[None, str], guide: Guide) -> None:
    folder = guide.folder

    def run(ctx: RunContext[None], call: Callable[[], _T], **arguments: object) -> _T:
        try:
            return guide.run(call, turn=str(ctx.run_id), call_id=ctx.tool_call_id, tool=str(ctx.tool_name), **arguments)
        except Refused as error:
            raise ModelRetry(str(error)) from None

    @agent.tool
    def list_files(ctx: RunContext[None], ending: str = "", order: Literal["path", "largest"] = "path") -> Listing:
        """List the files whose names end in `ending` (all for an empty one): how many, and the first 50."""
        return run(ctx, lambda: folder.list_files(ending, order), ending=ending, order=order)

    @agent.tool
    def search_word(ctx: RunContext[None], word: str) -> Found:
        """Find the text files that have a whole word: how many, the first 50, and the first line that has it."""
        return run(ctx, lambda: folder.search_word(word), word=word)

    @agent.tool
    def read_lines(ctx: RunContext[None], path: str, first_line: int = 1, count: int = 20) -> Excerpt:
        """Read up to 40 lines of a text file, and how many lines it has. Line numbers count from 1."""
        chosen = {"path": path, "first_line": first_line, "count": count}
        return run(ctx, lambda: folder.read_lines(path, first_line, count), **chosen)


def conversation_of(messages: Sequence[ModelMessage]) -> Conversation:
    """What a model is sent, as the script reads it."""
    conversation = Conversation()
    for message in messages:
        for part in message.parts:
            match part:
                case UserPromptPart(content=str(text)) if isinstance(message, ModelRequest):
                    conversation.asked(text)
                case ToolCallPart():
                    conversation.called(part.tool_call_id, part.tool_name, part.args_as_dict())
                case ToolReturnPart():
                    conversation.returned(part.tool_call_id, part.content)
                case RetryPromptPart():
                    conversation.returned(part.tool_call_id, str(part.content))
                case TextPart(content=text) if isinstance(message, ModelResponse):
                    conversation.answered(text)
                case _:
                    pass
    return conversation


def _scripted_model(gates: Gates) -> FunctionModel:
    async def stream(messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[str | dict[int, DeltaToolCall]]:
        reply = reply_to(conversation_of(messages))
        if isinstance(reply, str):
            async for piece in spoken(reply, gates):
                yield piece
            return
        for index, call in enumerate(reply):
            call_id = f"call-{len(messages)}-{index + 1}"
            yield {index: DeltaToolCall(call.tool, json.dumps(call.arguments), tool_call_id=call_id)}

    return FunctionModel(stream_function=stream, model_name="scripted")


def _request_number(messages: list[ModelMessage]) -> int:
    """Which model request of its turn it is that sends these messages, from 1."""
    number = 1
    for message in messages:
        if isinstance(message, ModelResponse):
            number += 1
        elif any(isinstance(part, UserPromptPart) for part in message.parts):
            number = 1
    return number


class _LedgerModel(WrapperModel):
    """Any model, with a line in the ledger when a request begins and when its answer is whole."""

    def __init__(self, wrapped: Model, ledger: Ledger, gates: Gates | None) -> None:
        super().__init__(wrapped)
        self._ledger = ledger
        self._gates = gates

    @asynccontextmanager
    async def request_stream(
        self,
        messages: list[ModelMessage],
        model_settings: ModelSettings | None,
        model_request_parameters: ModelRequestParameters,
        run_context: RunContext[Any] | None = None,
    ) -> AsyncGenerator[StreamedResponse]:
        turn, call = str(run_context.run_id if run_context else None), str(_request_number(messages))
        self._ledger.write(LineKind.MODEL_STARTED, turn=turn, call=call)
        opened = super().request_stream(messages, model_settings, model_request_parameters, run_context)
        async with opened as response:
            if self._gates is not None:
                # A real model has begun to answer here; the scripted one comes to the gate in mid-sentence.
                await self._gates.hold(Gate.REQUEST)
            yield response
        self._ledger.write(LineKind.MODEL_FINISHED, turn=turn, call=call)
