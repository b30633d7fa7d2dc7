"""The same agent written with LangChain: `create_agent` with three tools."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import Any, Literal, TypeVar, cast
from uuid import UUID

from langchain.agents import create_agent
from langchain.chat_models import init_chat_model
from langchain.tools import ToolRuntime
from langchain_core.callbacks import AsyncCallbackHandler
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage, HumanMessage, ToolMessage
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult
from langchain_core.runnables import Runnable, RunnableConfig
from langchain_core.tools import BaseTool, ToolException, tool
from langgraph.config import get_config
from pydantic import PrivateAttr
from pydantic_core import from_json, to_json

from laneway import LangChainAdapter

from examples.demo.folder import Excerpt, Found, Listing, Refused
from examples.demo.guide import INSTRUCTIONS, Guide, check_model_name
from examples.demo.ledger import Gate, Gates, Ledger, LineKind
from examples.demo.scratch import AGENT, MODEL_VARIABLE, DemoError, Scratch
from examples.demo.script import Call, Conversation, reply_to, spoken

__all__ = ["langchain_adapter"]

_T = TypeVar("_T")


def langchain_adapter(root: Path, scratch: Scratch, model_name: str | None) -> LangChainAdapter:
    """The agent. Arguments and errors are those of `build_app`."""
    model = _Scripted.at(scratch.gates) if model_name is None else _real_model(model_name)
    agent: Any = create_agent(model, _tools(Guide(root, scratch)), name=AGENT, system_prompt=INSTRUCTIONS)
    # The scripted model comes to its gate by itself, in mid-sentence.
    watch = _Watch(scratch.ledger, scratch.gates if model_name else None)
    return LangChainAdapter(agent, config={"callbacks": [watch]})


def _real_model(name: str) -> BaseChatModel:
    check_model_name(name)
    try:
        return cast("BaseChatModel", init_chat_model(name))
    except Exception as error:  # whatever an integration raises for a missing key
        reason = next((line for line in str(error).splitlines() if line.strip()), type(error).__name__)
        raise DemoError(f"{MODEL_VARIABLE}={name!r} cannot be used: {reason}") from None


def _tools(guide: Guide) -> Sequence[BaseTool]:
    folder = guide.folder

    def run(runtime: ToolRuntime[Any, Any], name: str, call: Callable[[], _T], **arguments: object) -> _T:
        try:
            return guide.run(call, turn=_turn_of(runtime.config), call_id=runtime.tool_call_id, tool=name, **arguments)
        except Refused as error:
            raise ToolException(str(error)) from None

    @tool
    def list_files(
        runtime: ToolRuntime[Any, Any], ending: str = "", order: Literal["path", "largest"] = "path"
    ) -> Listing:
        """List the files whose names end in `ending` (all for an empty one): how many, and the first 50."""
        return run(runtime, "list_files", lambda: folder.list_files(ending, order), ending=ending, order=order)

    @tool
    def search_word(runtime: ToolRuntime[Any, Any], word: str) -> Found:
        """Find the text files that have a whole word: how many, the first 50, and the first line that has it."""
        return run(runtime, "search_word", lambda: folder.search_word(word), word=word)

    @tool
    def read_lines(runtime: ToolRuntime[Any, Any], path: str, first_line: int = 1, count: int = 20) -> Excerpt:
        """Read up to 40 lines of a text file, and how many lines it has. Line numbers count from 1."""
        chosen = {"path": path, "first_line": first_line, "count": count}
        return run(runtime, "read_lines", lambda: folder.read_lines(path, first_line, count), **chosen)

    tools: Sequence[BaseTool] = [list_files, search_word, read_lines]
    for one in tools:
        one.handle_tool_error = True  # what is refused is told to the model
    return tools


def _conversation_of(messages: Sequence[BaseMessage]) -> Conversation:
    """What a model is sent, as the script reads it."""
    conversation = Conversation()
    for message in messages:
        match message:
            case HumanMessage():
                conversation.asked(message.text)
            case AIMessage():
                for call in message.tool_calls:
                    conversation.called(str(call["id"]), call["name"], call["args"])
                conversation.answered(message.text)
            case ToolMessage():
                is_told = message.status == "error"
                conversation.returned(message.tool_call_id, message.text if is_told else from_json(message.text))
            case _:
                pass
    return conversation


class _Scripted(BaseChatModel):
    """The offline model."""

    _gates: Gates = PrivateAttr()

    @classmethod
    def at(cls, gates: Gates) -> _Scripted:
        """The model, which comes to one of these gates."""
        made = cls()
        made._gates = gates
        return made

    @property
    def _llm_type(self) -> str:
        return "scripted"

    def bind_tools(self, tools: Sequence[Any], **kwargs: Any) -> Runnable[Any, AIMessage]:
        return self.bind(tools=[getattr(one, "name", str(one)) for one in tools])

    def _generate(self, messages: list[BaseMessage], *args: Any, **kwargs: Any) -> ChatResult:
        reply = reply_to(_conversation_of(messages))
        answer = AIMessage(reply) if isinstance(reply, str) else AIMessage("", tool_calls=_calls(reply, messages))
        return ChatResult(generations=[ChatGeneration(message=answer)])

    async def _astream(
        self, messages: list[BaseMessage], *args: Any, **kwargs: Any
    ) -> AsyncIterator[ChatGenerationChunk]:
        reply = reply_to(_conversation_of(messages))
        if isinstance(reply, str):
            async for piece in spoken(reply, self._gates):
                yield ChatGenerationChunk(message=AIMessageChunk(content=piece))
            return
        chunks = [
            {"name": call["name"], "args": to_json(call["args"]).decode(), "id": call["id"], "index": index}
            for index, call in enumerate(_calls(reply, messages))
        ]
        yield ChatGenerationChunk(message=AIMessageChunk(content="", tool_call_chunks=cast("Any", chunks)))


def _calls(reply: Sequence[Call], messages: Sequence[BaseMessage]) -> list[Any]:
    return [
        {"name": call.tool, "args": dict(call.arguments), "id": f"call-{len(messages)}-{index + 1}"}
        for index, call in enumerate(reply)
    ]


class _Watch(AsyncCallbackHandler):
    """Writes a line when a request to any model begins, and when its answer is whole."""

    run_inline = True

    def __init__(self, ledger: Ledger, gates: Gates | None) -> None:
        super().__init__()
        self._ledger = ledger
        self._gates = gates
        self._running: dict[UUID, tuple[str, str]] = {}

    async def on_chat_model_start(
        self,
        serialized: dict[str, Any],
        messages: list[list[BaseMessage]],
        *,
        run_id: UUID,
        **kwargs: Any,
    ) -> None:
        turn, call = _turn_of(get_config()), str(_request_number(messages[0]))
        self._running[run_id] = turn, call
        self._ledger.write(LineKind.MODEL_STARTED, turn=turn, call=call)

    async def on_llm_new_token(self, token: Any, *, run_id: UUID, **kwargs: Any) -> None:
        if self._gates is not None:
            # A real model has begun to answer here.
            await self._gates.hold(Gate.REQUEST)

    async def on_llm_end(self, response: Any, *, run_id: UUID, **kwargs: Any) -> None:
        turn, call = self._running.pop(run_id)
        self._ledger.write(LineKind.MODEL_FINISHED, turn=turn, call=call)


def _turn_of(config: RunnableConfig) -> str:
    return str((config.get("configurable") or {}).get("turn_id"))


def _request_number(messages: Sequence[BaseMessage]) -> int:
    """Which model request of its turn it is that sends these messages, from 1."""
    last = max(place for place, message in enumerate(messages) if isinstance(message, HumanMessage))
    return 1 + sum(isinstance(message, AIMessage) for message in messages[last:])
