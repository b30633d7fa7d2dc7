"""Scripted models and the graphs that ask them."""

from __future__ import annotations

import inspect
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from typing import Any

from langchain_core.callbacks import AsyncCallbackManagerForLLMRun, CallbackManagerForLLMRun
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage, HumanMessage
from langchain_core.messages.tool import tool_call_chunk
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult
from langchain_core.runnables import Runnable
from langchain_core.tools import BaseTool

Answer = Callable[[list[BaseMessage]], AIMessage | Awaitable[AIMessage]]

USAGE = {"input_tokens": 3, "output_tokens": 2, "total_tokens": 5}


class ScriptedModel(BaseChatModel):
    """A model that answers what a function says, streamed or not."""

    answer: Any
    model_name: str = "scripted"
    streams: bool = True

    @property
    def _llm_type(self) -> str:
        return "scripted"

    @property
    def _identifying_params(self) -> dict[str, Any]:
        return {"model_name": self.model_name}

    def bind_tools(self, tools: Sequence[Any], **kwargs: Any) -> Runnable[Any, AIMessage]:
        names = [tool.name if isinstance(tool, BaseTool) else getattr(tool, "__name__", str(tool)) for tool in tools]
        return self.bind(tools=names, **{key: value for key, value in kwargs.items() if key == "tool_choice"})

    def _generate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        answer = self.answer(messages)
        assert isinstance(answer, AIMessage), "an asynchronous script in a synchronous call"
        return ChatResult(generations=[ChatGeneration(message=answer)])

    async def _agenerate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: AsyncCallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        return ChatResult(generations=[ChatGeneration(message=await self._answered(messages))])

    async def _astream(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: AsyncCallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> AsyncIterator[ChatGenerationChunk]:
        for chunk in chunks_of(await self._answered(messages)):
            made = ChatGenerationChunk(message=chunk)
            if run_manager is not None:
                await run_manager.on_llm_new_token(str(chunk.text), chunk=made)
            yield made

    def _stream(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> Iterator[ChatGenerationChunk]:
        answer = self.answer(messages)
        assert isinstance(answer, AIMessage), "an asynchronous script in a synchronous call"
        for chunk in chunks_of(answer):
            made = ChatGenerationChunk(message=chunk)
            if run_manager is not None:
                run_manager.on_llm_new_token(str(chunk.text), chunk=made)
            yield made

    def _should_stream(self, *args: Any, **kwargs: Any) -> bool:
        return self.streams and super()._should_stream(*args, **kwargs)

    async def _answered(self, messages: list[BaseMessage]) -> AIMessage:
        answer = self.answer(messages)
        made = await answer if inspect.isawaitable(answer) else answer
        assert isinstance(made, AIMessage)
        return made


def chunks_of(answer: AIMessage) -> Iterator[AIMessageChunk]:
    """A message as a provider streams it: word by word, then its calls, then its usage."""
    if isinstance(answer.content, str):
        words = answer.content.split(" ")
        for place, word in enumerate(words):
            yield AIMessageChunk(word if place == len(words) - 1 else f"{word} ", id=answer.id)
    else:
        yield AIMessageChunk(answer.content, id=answer.id)
    calls = [
        tool_call_chunk(name=call["name"], args=json.dumps(call["args"]), id=call["id"], index=place)
        for place, call in enumerate(answer.tool_calls)
    ]
    yield AIMessageChunk(
        "",
        id=answer.id,
        tool_call_chunks=calls,
        usage_metadata=answer.usage_metadata,
        response_metadata=answer.response_metadata,
        chunk_position="last",
    )


def said(text: str) -> AIMessage:
    return AIMessage(text, usage_metadata=dict(USAGE))


def called(*calls: tuple[str, dict[str, Any], str]) -> AIMessage:
    return AIMessage(
        "",
        tool_calls=[{"name": name, "args": args, "id": call_id} for name, args, call_id in calls],
        usage_metadata=dict(USAGE),
    )


def prompts_of(messages: Sequence[BaseMessage]) -> list[str]:
    """The user's prompts in a history, in order."""
    return [str(message.text) for message in messages if isinstance(message, HumanMessage)]
