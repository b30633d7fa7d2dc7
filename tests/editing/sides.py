"""One request of either framework to a provider, from a history that is written down in Pydantic AI's messages."""

from __future__ import annotations

import copy
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, Protocol

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage
from pydantic_ai.messages import ModelMessage, ModelRequest, ThinkingPart, UserPromptPart
from pydantic_ai.models.anthropic import AnthropicModel
from pydantic_ai.models.openai import OpenAIResponsesModel
from pydantic_ai.providers.anthropic import AnthropicProvider
from pydantic_ai.providers.openai import OpenAIProvider

from laneway import HistoryProcessorContext

from tests.editing import langchain_steps
from tests.editing.langchain_steps import anthropic_model, converse, openai_model
from tests.editing.steps import agent_of, ask
from tests.history.edits import entries_of
from tests.history.twins import twins
from tests.support.clients import anthropic_client, openai_client
from tests.support.provider import ProviderServer

AnyEdit = Callable[[HistoryProcessorContext[Any]], list[Any]]


class Side(Protocol):
    """A framework.

    Attributes:
        models: its models of the server, by provider: `claude` and `gpt`.
    """

    models: dict[str, Any]

    def user(self, text: str) -> Any:
        """A user's message."""
        ...

    def native(self, history: Sequence[ModelMessage]) -> list[Any]:
        """A history in the framework's own messages."""
        ...

    async def talk(self, model: str, *prompts: str) -> list[Any]:
        """A conversation with a model, and one more prompt."""
        ...

    async def send(
        self, model: str, history: list[Any], edit: AnyEdit, *, request_index: int = 1, current: int = -1
    ) -> None:
        """Send a history through an edit; the turn's own messages begin at `current`."""
        ...

    def without_part(self, message: Any, part: int) -> Any:
        """A copy of an answer without one of its parts."""
        ...

    def signature(self, message: Any) -> str:
        """What an answer's first part is signed or encrypted with."""
        ...

    def forge(self, message: Any) -> None:
        """Alter that."""
        ...


class PydanticSide:
    """Pydantic AI's agents."""

    def __init__(self, models: dict[str, Any]) -> None:
        self.models = models

    def user(self, text: str) -> Any:
        return ModelRequest([UserPromptPart(text)])

    def native(self, history: Sequence[ModelMessage]) -> list[Any]:
        return list(history)

    async def talk(self, model: str, *prompts: str) -> list[Any]:
        agent, history = agent_of(self.models[model]), list[ModelMessage]()
        for prompt in prompts:
            history = (await agent.run(prompt, message_history=history)).all_messages()
        return [*history, self.user("now")]

    async def send(
        self, model: str, history: list[Any], edit: AnyEdit, *, request_index: int = 1, current: int = -1
    ) -> None:
        entries = entries_of(history, "earlier")
        await ask(agent_of(self.models[model]), history, entries, edit, request_index=request_index)

    def without_part(self, message: Any, part: int) -> Any:
        message = copy.copy(message)
        message.parts = [one for at, one in enumerate(message.parts) if at != part]
        return message

    def signature(self, message: Any) -> str:
        return str(message.parts[0].signature)

    def forge(self, message: Any) -> None:
        part = message.parts[0]
        assert isinstance(part, ThinkingPart)
        part.signature = "forged"


class LangChainSide:
    """LangChain's models, before a model node of a lane's graph."""

    def __init__(self, models: dict[str, Any]) -> None:
        self.models = models

    def user(self, text: str) -> Any:
        return HumanMessage(text)

    def native(self, history: Sequence[ModelMessage]) -> list[Any]:
        return list(twins(history))

    async def talk(self, model: str, *prompts: str) -> list[Any]:
        return [*await converse(self.models[model], prompts), self.user("now")]

    async def send(
        self, model: str, history: list[Any], edit: AnyEdit, *, request_index: int = 1, current: int = -1
    ) -> None:
        place = range(len(history))[current]
        await langchain_steps.ask(self.models[model], history, edit, current=place, request_index=request_index)

    def without_part(self, message: BaseMessage, part: int) -> Any:
        content = [block for at, block in enumerate(message.content) if at != part]
        changes: dict[str, Any] = {"content": content}
        if isinstance(message, AIMessage) and len(message.content) == part:
            changes = {"tool_calls": []}
        return message.model_copy(update=changes)

    def signature(self, message: BaseMessage) -> str:
        block: Any = message.content[0]
        return str(block.get("signature") or block["data"])

    def forge(self, message: BaseMessage) -> None:
        block: Any = message.content[0]
        block["signature" if "signature" in block else "data"] = "forged"


SIDES = ("pydantic_ai", "langchain")


@asynccontextmanager
async def side_of(framework: str, server: ProviderServer) -> AsyncIterator[Side]:
    """A framework, with its models of a server."""
    if framework == "langchain":
        yield LangChainSide({"claude": anthropic_model(server), "gpt": openai_model(server, use_responses_api=True)})
        return
    async with AsyncExitStack() as stack:
        anthropic = AnthropicProvider(anthropic_client=await stack.enter_async_context(anthropic_client(server)))
        openai = OpenAIProvider(openai_client=await stack.enter_async_context(openai_client(server)))
        yield PydanticSide(
            {
                "claude": AnthropicModel("claude-opus-5", provider=anthropic),
                "gpt": OpenAIResponsesModel("gpt-5.2", provider=openai),
            }
        )
