"""The fenced blocks of the documentation."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True)
class Fence:
    """A fenced block.

    Attributes:
        language: what is said after the opening fence; empty for nothing.
        source: what is inside.
    """

    language: str
    source: str


def fences(page: str) -> list[Fence]:
    """All fenced blocks of a page, in order. A page of `docs/` goes by its name alone."""
    path = ROOT / page if (ROOT / page).exists() else ROOT / "docs" / page
    found = re.findall(r"^```([^\n`]*)\n(.*?)^```$", path.read_text(), flags=re.MULTILINE | re.DOTALL)
    return [Fence(*one) for one in found]


def blocks(page: str, language: str = "python") -> list[str]:
    """The blocks of a page in a language, in order."""
    return [fence.source for fence in fences(page) if fence.language == language]
