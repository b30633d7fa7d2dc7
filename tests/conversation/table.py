"""The table in docs/processors.md: rows as they are measured, and as they stand there."""

from __future__ import annotations

from pathlib import Path

from tests.conversation import script
from tests.conversation.arms import Arm
from tests.conversation.talk import Figures

PAGE = Path(__file__).parents[2] / "docs" / "processors.md"
HEAD = (
    "| history kept small by | turns | requests | summaries among them | rewrites | largest request | input tokens | "
    "from cache | facts known at the end |"
)
RULE = "| --- |" + " --: |" * 8
_BEGIN, _END = "<!-- conversation: begin -->\n", "<!-- conversation: end -->\n"


def row(arm: Arm, figures: Figures) -> str:
    """One row."""
    planted = len(script.planted(0, figures.turns)) + arm.reads
    cells: list[object] = [
        arm.name if arm.framework == "Pydantic AI" else f"{arm.name}, LangGraph",
        figures.turns,
        figures.requests,
        figures.summaries,
        figures.rewrites,
        f"{figures.largest_tokens:,}",
        f"{figures.input_tokens:,}",
        f"{figures.cached_share:.0%}",
        f"{figures.known} of {planted}",
    ]
    return f"| {' | '.join(map(str, cells))} |"


def rows_on_page() -> list[str]:
    """The rows that the page has."""
    _, _, rest = PAGE.read_text().partition(_BEGIN)
    body, _, _ = rest.partition(_END)
    return body.splitlines()[2:]


def write(rows: list[str]) -> None:
    """Put rows on the page in place of those that are there."""
    before, _, rest = PAGE.read_text().partition(_BEGIN)
    _, _, after = rest.partition(_END)
    PAGE.write_text("".join([before, _BEGIN, *(f"{line}\n" for line in (HEAD, RULE, *rows)), _END, after]))
