"""The demo's agent: a plain Pydantic AI agent with three tools, every call of which leaves its lines in the ledger."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeVar

from pydantic_ai import Agent, ModelRetry, RunContext
from pydantic_ai.exceptions import UserError
from pydantic_ai.messages import ModelMessage, ModelResponse, UserPromptPart
from pydantic_ai.models import Model, ModelRequestParameters, StreamedResponse, infer_model
from pydantic_ai.models.wrapper import WrapperModel
from pydantic_ai.settings import ModelSettings

from laneway import Laneway, PydanticAdapter

from examples.demo.folder import Excerpt, Folder, Found, Listing, Refused
from examples.demo.ledger import Gate, Gates, Ledger, LineKind
from examples.demo.script import scripted_model

__all__ = ["AGENT", "MODEL_VARIABLE", "DemoError", "Scratch", "build_app", "request_number"]

AGENT = "guide"
MODEL_VARIABLE = "LANEWAY_DEMO_MODEL"

_INSTRUCTIONS = """\
You answer questions about the files of one folder. Look with the tools, and call several at once where that helps; do
not ask again for what earlier answers hold. Give exact numbers, name each file by its path as the tools give it, and
quote lines word for word. "Largest" is by bytes; words are whole words, upper and lower case told apart. What a tool
refuses you cannot see: then say "refused" and its reason. Answer in one to three sentences, and give whole paths.
"""

_T = TypeVar("_T")


class DemoError(Exception):
    """The demo cannot be given; the message is one line that says what to do."""


@dataclass(frozen=True)
class Scratch:
    """The folder with the demo's own files, which its processes share."""

    folder: Path

    @property
    def ledger(self) -> Ledger:
        return Ledger(self.folder / "ledger.jsonl")

    @property
    def gates(self) -> Gates:
        return Gates(self.folder / "gates")

    @property
    def data_dir(self) -> Path:
        """Where the servers keep their data."""
        return self.folder / "data"


def build_app(root: Path, scratch: Scratch, model_name: str | None) -> Laneway:
    """The application, the same in the worker and in the client.

    Args:
        root: the folder that is asked about.
        scratch: where ledger and gates are.
        model_name: `openai:…` or `anthropic:…`; None for the scripted model.

    Raises:
        DemoError: there is no such model, or its key is missing.
    """
    ledger, gates = scratch.ledger, scratch.gates
    model = _LedgerModel(_model(model_name, gates), ledger, gates if model_name else None)
    agent = Agent(model, name=AGENT, instructions=_INSTRUCTIONS, retries=2)
    _add_tools(agent, Folder(root), ledger, gates)
    return Laneway(agents={AGENT: PydanticAdapter(agent)})


def _model(name: str | None, gates: Gates) -> Model:
    if name is None:
        return scripted_model(gates)
    if name.partition(":")[0] not in ("openai", "anthropic") or not name.partition(":")[2]:
        raise DemoError(f"{MODEL_VARIABLE}={name!r} is refused: give openai:NAME or anthropic:NAME, or unset it")
    try:
        return infer_model(name)
    except UserError as error:
        raise DemoError(f"{MODEL_VARIABLE}={name!r} cannot be used: {str(error).splitlines()[0]}") from None


def _add_tools(agent: Agent[None, str], folder: Folder, ledger: Ledger, gates: Gates) -> None:
    def run(ctx: RunContext[None], call: Callable[[], _T], **arguments: object) -> _T:
        name = json.dumps([ctx.tool_call_id, ctx.tool_name, arguments])
        turn = str(ctx.run_id)
        ledger.write(LineKind.TOOL_STARTED, turn=turn, call=name)
        gates.hold_thread(Gate.TOOLS)
        try:
            result = call()
        except Refused as error:
            ledger.write(LineKind.TOOL_FINISHED, turn=turn, call=name)
            raise ModelRetry(str(error)) from None
        ledger.write(LineKind.TOOL_FINISHED, turn=turn, call=name)
        return result

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


def request_number(messages: list[ModelMessage]) -> int:
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
        turn, call = str(run_context.run_id if run_context else None), str(request_number(messages))
        self._ledger.write(LineKind.MODEL_STARTED, turn=turn, call=call)
        opened = super().request_stream(messages, model_settings, model_request_parameters, run_context)
        async with opened as response:
            if self._gates is not None:
                # A real model has begun to answer here; the scripted one comes to the gate in mid-sentence.
                await self._gates.hold(Gate.REQUEST)
            yield response
        self._ledger.write(LineKind.MODEL_FINISHED, turn=turn, call=call)
