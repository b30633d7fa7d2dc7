"""The script that every arm plays: the same prompts, the same replies of 2 KB, and models that answer at once.

A reply is text of made-up words, the frequent ones short, so that it deflates about as prose does. Each answer reports
its usage: Pydantic AI's `FunctionModel` would count the words of the whole history where it is absent.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any
from uuid import uuid4

__all__ = [
    "PROMPT",
    "REPLY_BYTES",
    "TOOLS",
    "answer",
    "answer_with_calls",
    "answer_with_tools",
    "graph_builder",
    "long_conversation",
    "replies",
    "stream_answer",
]

REPLY_BYTES = 2048
PROMPT = "Say what you know of this.".ljust(40, ".")
TOOLS = ("look_up", "measure")

_VOCABULARY_SIZE = 4000
_KEPT_REPLIES = 32
_TOKENS: Any = {"input_tokens": 500, "output_tokens": 500}


def replies(size_bytes: int = REPLY_BYTES) -> Iterator[str]:
    """Replies without end. They are made beforehand: writing one takes a millisecond, which is not to be measured."""
    chance = random.Random(7)
    letters = "etaoinshrdlucmfw"
    vocabulary = ["".join(chance.choices(letters, k=2 + at // 500)) for at in range(_VOCABULARY_SIZE)]
    weights = list(itertools.accumulate(1 / (at + 10) for at in range(_VOCABULARY_SIZE)))

    def words() -> str:
        return " ".join(chance.choices(vocabulary, cum_weights=weights, k=size_bytes // 3))[:size_bytes]

    return itertools.cycle([words() for _ in range(_KEPT_REPLIES)])


# Pydantic AI --------------------------------------------------------------------------------------------------------


def answer() -> Callable[..., Any]:
    """A `FunctionModel`'s function that answers with the next reply. One that is not async would run in a thread."""
    from pydantic_ai.messages import ModelResponse, TextPart
    from pydantic_ai.usage import RequestUsage

    texts = replies()

    async def respond(messages: list[Any], info: Any) -> Any:
        return ModelResponse([TextPart(next(texts))], usage=RequestUsage(**_TOKENS))

    return respond


def answer_with_tools() -> Callable[..., Any]:
    """One that asks for two tools at once, and then answers."""
    from pydantic_ai.messages import ModelResponse, TextPart, ToolCallPart, UserPromptPart
    from pydantic_ai.usage import RequestUsage

    texts = replies()

    async def respond(messages: list[Any], info: Any) -> Any:
        usage = RequestUsage(**_TOKENS)
        if any(isinstance(part, UserPromptPart) for part in messages[-1].parts):
            turn = uuid4().hex[:8]
            calls = [ToolCallPart(tool, {"what": "this"}, f"{tool}-{turn}") for tool in TOOLS]
            return ModelResponse(calls, usage=usage)
        return ModelResponse([TextPart(next(texts))], usage=usage)

    return respond


def answer_with_calls(tool: str, argument: str) -> Callable[..., Any]:
    """One that makes as many calls of a tool at once as the prompt says, and then answers."""
    from pydantic_ai.messages import ModelResponse, TextPart, ToolCallPart, UserPromptPart
    from pydantic_ai.usage import RequestUsage

    texts = replies()

    async def respond(messages: list[Any], info: Any) -> Any:
        usage = RequestUsage(**_TOKENS)
        last = messages[-1].parts[-1]
        count = int(str(last.content)) if isinstance(last, UserPromptPart) else 0
        if not count:
            return ModelResponse([TextPart(next(texts))], usage=usage)
        turn = uuid4().hex[:8]
        return ModelResponse([ToolCallPart(tool, {argument: PROMPT}, f"{turn}-{n}") for n in range(count)], usage=usage)

    return respond


def stream_answer(sent: Callable[[], None]) -> Callable[..., Any]:
    """A stream function that says when it has sent the first of its four pieces."""
    texts = replies(256)

    async def respond(messages: list[Any], info: Any) -> AsyncIterator[str]:
        sent()
        for _ in range(4):
            yield next(texts)

    return respond


def long_conversation(messages: int, size_bytes: int) -> list[Any]:
    """A conversation of so many messages with so many bytes altogether, of prompts and answers in turn."""
    from pydantic_ai.messages import ModelRequest, ModelResponse, TextPart, UserPromptPart
    from pydantic_ai.usage import RequestUsage

    texts = replies(max(size_bytes // messages - 200, 20))
    exchange = (
        lambda: ModelRequest([UserPromptPart(next(texts))]),
        lambda: ModelResponse([TextPart(next(texts))], usage=RequestUsage(**_TOKENS)),
    )
    return [exchange[at % 2]() for at in range(messages)]


# LangGraph ----------------------------------------------------------------------------------------------------------


def graph_builder() -> Any:
    """A graph of one node, whose model answers with the next reply."""
    from langchain_core.messages import AIMessage
    from langgraph.graph import START, MessagesState, StateGraph

    texts = replies()

    async def model(state: MessagesState) -> dict[str, list[AIMessage]]:
        return {"messages": [AIMessage(next(texts), id=f"lc_run--{uuid4()}")]}

    builder: Any = StateGraph(MessagesState)
    builder.add_node("model", model)
    builder.add_edge(START, "model")
    return builder
