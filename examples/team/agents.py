"""The team: a lead that splits a question over files, readers that read one each. Plain Pydantic AI agents.

With `LANEWAY_DEMO_MODEL=openai:…` or `anthropic:…` a real model leads and reads; without it scripts do, which look for
the word that the question has in quotation marks.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
from pathlib import Path

from pydantic_ai import Agent, ModelRetry
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart, ToolReturnPart, UserPromptPart
from pydantic_ai.models import Model, infer_model
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.usage import RequestUsage

from laneway import Delegation, Laneway, PydanticAdapter, RequestBudget

__all__ = ["MAX_FILES", "MODEL_VARIABLE", "build_app", "noted"]

MODEL_VARIABLE = "LANEWAY_DEMO_MODEL"
MAX_FILES = 12
_MAX_BYTES = 200_000
_SUFFIXES = (".md", ".py", ".rst", ".toml", ".txt")
_SECONDS_A_FILE = 0.4
_USAGE = RequestUsage(input_tokens=1, output_tokens=1)


def build_app(folder: Path, scratch: Path) -> Laneway:
    """The application, the same in the worker and in the client.

    Args:
        folder: whose files the team reads.
        scratch: where it notes what it did, and writes its report.
    """
    name = os.environ.get(MODEL_VARIABLE)
    leading: Model = infer_model(name) if name else FunctionModel(_lead, model_name="lead")
    reading: Model = infer_model(name) if name else FunctionModel(_read, model_name="reader")
    lead = Agent(
        leading,
        instructions="Split the question over the files: hand each to a reader, all in one response. Then write one "
        "report of what they found with write_report, and answer in one sentence.",
    )
    reader = Agent(reading, instructions="Read the file that you are given, and say what in it answers the question.")

    @lead.tool_plain
    def list_files() -> list[str]:
        """The text files of the folder."""
        return _files(folder)

    @lead.tool_plain(requires_approval=True, metadata={"retry": "never"})
    def write_report(text: str) -> str:
        """Write the report."""
        _note(scratch, "report written")
        (scratch / "report.md").write_text(text)
        return f"{len(text)} characters written"

    @reader.tool_plain
    async def read_file(path: str) -> str:
        """The text of a file."""
        if path not in _files(folder):
            raise ModelRetry(f"there is no file {path!r}: take one that list_files names")
        await asyncio.sleep(_SECONDS_A_FILE)
        _note(scratch, f"read {path}")
        return (folder / path).read_text(errors="replace")

    delegates = {
        "reader": Delegation(
            "reader",
            "Reads one file. The brief names its path and the question.",
            max_concurrency=3,
            budget=RequestBudget(request_limit=5),
        )
    }
    return Laneway(
        agents={
            "lead": PydanticAdapter(lead, delegates=delegates, budget=RequestBudget(request_limit=80)),
            "reader": PydanticAdapter(reader),
        }
    )


def noted(scratch: Path) -> list[str]:
    """What the tools have done, in all workers."""
    notes = scratch / "notes"
    return notes.read_text().splitlines() if notes.exists() else []


def _note(scratch: Path, line: str) -> None:
    descriptor = os.open(scratch / "notes", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        os.write(descriptor, f"{line}\n".encode())
        os.fsync(descriptor)  # no kill takes it back
    finally:
        os.close(descriptor)


def _files(folder: Path) -> list[str]:
    found = (
        path
        for path in sorted(folder.iterdir())
        if path.suffix in _SUFFIXES and path.is_file() and path.stat().st_size <= _MAX_BYTES
    )
    return [path.name for path in found][:MAX_FILES]


# The scripts ----------------------------------------------------------------------------------------------------------


def _lead(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    results = [part for part in messages[-1].parts if isinstance(part, ToolReturnPart)]
    if not results:
        return ModelResponse([ToolCallPart("list_files", {}, "files")], usage=_USAGE)
    match results[0].tool_name:
        case "list_files":
            question = _prompt(messages)
            briefs = [json.dumps({"path": path, "question": question}) for path in json.loads(_text(results[0]))]
            calls = [
                ToolCallPart("delegate_to_reader", {"brief": brief}, f"reader-{number}")
                for number, brief in enumerate(briefs)
            ]
            return ModelResponse(calls or [TextPart("There are no text files in the folder.")], usage=_USAGE)
        case "delegate_to_reader":
            found = [f"- {_text(one)}" if one.outcome == "success" else f"- not read: {_text(one)}" for one in results]
            report = "\n".join((f"# {_prompt(messages)}", "", *found, ""))
            return ModelResponse([ToolCallPart("write_report", {"text": report}, "report")], usage=_USAGE)
        case _:
            said = "The report is written." if results[0].outcome == "success" else "There is no report: "
            reason = "" if results[0].outcome == "success" else _text(results[0])
            return ModelResponse([TextPart(said + reason)], usage=_USAGE)


def _read(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    brief = json.loads(_prompt(messages))
    results = [part for part in messages[-1].parts if isinstance(part, ToolReturnPart)]
    if not results:
        return ModelResponse([ToolCallPart("read_file", {"path": brief["path"]}, "file")], usage=_USAGE)
    quoted = re.search(r"[\"'“](.+?)[\"'”]", brief["question"])
    word = quoted[1] if quoted else brief["question"].split()[-1].strip("?.")
    lines = [line.strip() for line in _text(results[0]).splitlines() if word in line]
    said = f"`{brief['path']}`: {len(lines)} lines with {word!r}" + (f", the first: {lines[0][:100]}" if lines else "")
    return ModelResponse([TextPart(said)], usage=_USAGE)


def _prompt(messages: list[ModelMessage]) -> str:
    prompts = [part for message in messages for part in message.parts if isinstance(part, UserPromptPart)]
    return str(prompts[-1].content)


def _text(part: ToolReturnPart) -> str:
    return part.model_response_str(wrap_if_error=False)
