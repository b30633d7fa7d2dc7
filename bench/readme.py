"""What a run puts into documents, between two marks."""

from __future__ import annotations

from pathlib import Path

from bench.report import Report, machine

__all__ = ["splice", "targets"]


def targets(report: Report) -> str:
    """The table of targets, and what it was measured with."""
    return f"`{report.command}` on {machine()}:\n\n{report.summary()}"


def splice(document: Path, text: str, *, mark: str = "bench") -> None:
    """Put text in place of what is between the two marks of that name.

    Raises:
        ValueError: the marks are not there.
    """
    begin, end = f"<!-- {mark}: written by `make {mark}` -->", f"<!-- {mark}: end -->"
    before, found, rest = document.read_text().partition(begin)
    _, found_end, after = rest.partition(end)
    if not found or not found_end:
        raise ValueError(f"{document} has not got the marks {begin} and {end}, between which the figures go")
    document.write_text(f"{before}{begin}\n\n{text.rstrip()}\n\n{end}{after}")
