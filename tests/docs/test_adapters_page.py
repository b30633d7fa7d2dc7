"""The page on writing an adapter shows pieces of one that runs: they are in it, word for word."""

import textwrap
from pathlib import Path

from tests.docs.pages import blocks

ROOT = Path(__file__).parents[2]


def test_the_pieces_on_the_page_are_in_the_example():
    sources = (ROOT / "examples/plain_adapter.py").read_text() + (
        ROOT / "tests/adapters/test_conformance.py"
    ).read_text()
    dedented = "\n".join(line.strip() for line in sources.splitlines())
    pieces = blocks("adapters.md")
    assert len(pieces) == 3
    for piece in pieces[:2]:
        assert "\n".join(line.strip() for line in textwrap.dedent(piece).splitlines()) in dedented
