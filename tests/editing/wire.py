"""The strict provider, and models of both frameworks that ask it through the real SDKs, for tests of hypothesis."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import Any

from hypothesis import HealthCheck, settings
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage
from pydantic_ai.messages import ModelMessage, ModelResponse, ThinkingPart
from pydantic_ai.models import Model
from pydantic_ai.models.anthropic import AnthropicModel
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
from pydantic_ai.providers.anthropic import AnthropicProvider
from pydantic_ai.providers.openai import OpenAIProvider

from tests.editing import langchain_steps
from tests.history.histories import MadeHistory
from tests.support.clients import anthropic_client, openai_client
from tests.support.provider import ProviderRequest, ProviderServer, RequestRecord, answer, call, thinking
from tests.support.provider.signatures import digest

__all__ = [
    "MODELS",
    "STEADY",
    "Wire",
    "has_later_system",
    "knows_all_records",
    "open_wire",
    "signed_by",
    "signed_in_graphs_by",
    "thoughtful",
]

STEADY = settings(
    derandomize=True,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
MODELS = {"chat": "gpt-5", "responses": "gpt-5.2", "messages": "claude-opus-5", "bound": "claude-sonnet-5-5"}


@dataclass
class Wire:
    """A provider and its models, on a loop of their own: hypothesis calls tests from sync code.

    Attributes:
        runner: runs what asks them.
        server: the provider.
        models: Pydantic AI's models, by the API that they ask.
        langchain: LangChain's.
    """

    runner: asyncio.Runner
    server: ProviderServer
    models: dict[str, Model]
    langchain: dict[str, BaseChatModel]

    def sent_since(self, first: int) -> list[RequestRecord]:
        return self.server.requests[first:]


@contextmanager
def open_wire(answers: Callable[[ProviderRequest], Any]) -> Iterator[Wire]:
    """A wire to a provider that answers so."""

    async def open_all() -> tuple[ProviderServer, dict[str, Model]]:
        server = await stack.enter_async_context(ProviderServer(answers))
        openai, anthropic = openai_client(server), anthropic_client(server)
        stack.push_async_callback(openai.close)
        stack.push_async_callback(anthropic.close)
        by_openai = OpenAIProvider(openai_client=openai)
        by_anthropic = AnthropicProvider(anthropic_client=anthropic)
        return server, {
            "chat": OpenAIChatModel(MODELS["chat"], provider=by_openai),
            "responses": OpenAIResponsesModel(MODELS["responses"], provider=by_openai),
            "messages": AnthropicModel(MODELS["messages"], provider=by_anthropic),
            "bound": AnthropicModel(MODELS["bound"], provider=by_anthropic),
        }

    stack = AsyncExitStack()
    with asyncio.Runner() as runner:
        server, models = runner.run(open_all())
        yield Wire(runner, server, models, langchain_steps.models(server))
        runner.run(stack.aclose())


def thoughtful(request: ProviderRequest) -> Any:
    """Thinks, and calls the tool, where the prompt says so."""
    parts: list[Any] = [thinking("hm")] if "think" in request.prompt else []
    if "call" in request.prompt and request.step == 0:
        return answer(*parts, call("stock", {"q": "a"}), call("stock", {"q": "b"}))
    return answer(*parts, f"re: {request.prompt}")


def signed_by(server: ProviderServer, message: ModelMessage) -> ModelMessage:
    """The message with signatures that the provider has made."""
    if not isinstance(message, ModelResponse):
        return message
    parts = [
        replace(part, signature=server.apis.signer.issue({"id": "t", "model": "m", "text": digest(part.content)}))
        if isinstance(part, ThinkingPart) and part.signature
        else part
        for part in message.parts
    ]
    return replace(message, parts=parts)


def signed_in_graphs_by(server: ProviderServer, messages: list[BaseMessage]) -> list[BaseMessage]:
    """The messages with signatures that the provider has made."""
    signed: list[BaseMessage] = []
    for message in messages:
        if isinstance(message, AIMessage) and isinstance(message.content, list):
            content: list[Any] = []
            for block in message.content:
                if isinstance(block, dict) and block.get("signature"):
                    made = {"id": "t", "model": "m", "text": digest(block["thinking"])}
                    content.append({**block, "signature": server.apis.signer.issue(made)})
                else:
                    content.append(block)
            signed.append(message.model_copy(update={"content": content}))
        else:
            signed.append(message)
    return signed


def knows_all_records(made: MadeHistory) -> bool:
    """Whether every API takes the records in a history: a compaction or a search is of one provider only."""
    records = {"compaction", "builtin-tool-call"}
    return not any(
        part.part_kind in records for piece in made.pieces if isinstance(piece, ModelResponse) for part in piece.parts
    )


def has_later_system(made: MadeHistory) -> bool:
    return any(piece.parts[0].part_kind == "system-prompt" for piece in made.pieces[1:])
