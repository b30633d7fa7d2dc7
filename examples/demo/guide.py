"""The guide apart from its framework: what it is told, and its tools, whose calls leave lines in the ledger."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from examples.demo.folder import Folder
from examples.demo.ledger import Gate, LineKind
from examples.demo.scratch import MODEL_VARIABLE, DemoError, Scratch

__all__ = ["INSTRUCTIONS", "Guide", "check_model_name"]

INSTRUCTIONS = """\
You answer questions about the files of one folder. Look with the tools, and call several at once where that helps; do
not ask again for what earlier answers hold. Give exact numbers, name each file by its path as the tools give it, and
quote lines word for word. "Largest" is by bytes; words are whole words, upper and lower case told apart. What a tool
refuses you cannot see: then say "refused" and its reason. Answer in one to three sentences, and give whole paths.
"""

_T = TypeVar("_T")


class Guide:
    """What the tools of both agents do.

    Args:
        root: the folder that is asked about.
        scratch: where ledger and gates are.

    Attributes:
        folder: the folder as tools may see it.
    """

    def __init__(self, root: Path, scratch: Scratch) -> None:
        self.folder = Folder(root)
        self._ledger = scratch.ledger
        self._gates = scratch.gates

    def run(self, call: Callable[[], _T], *, turn: str, call_id: str | None, tool: str, **arguments: object) -> _T:
        """Make a call of a tool, with a line before it and one when it is done.

        Raises:
            Refused: the tool does not do what it was asked.
        """
        name = json.dumps([call_id, tool, arguments])
        self._ledger.write(LineKind.TOOL_STARTED, turn=turn, call=name)
        self._gates.hold_thread(Gate.TOOLS)
        try:
            return call()
        finally:
            self._ledger.write(LineKind.TOOL_FINISHED, turn=turn, call=name)


def check_model_name(name: str) -> None:
    """Make sure that a real model is named as both frameworks name it.

    Raises:
        DemoError: it is not.
    """
    provider, _, model = name.partition(":")
    if provider not in ("openai", "anthropic") or not model:
        raise DemoError(f"{MODEL_VARIABLE}={name!r} is refused: give openai:NAME or anthropic:NAME, or unset it")
