"""What a run puts into documents, between two marks."""

from __future__ import annotations

from pathlib import Path

from bench.report import Report, machine

__all__ = ["splice", "targets"]

_BEGIN = "<!-- bench: written by `make bench` -->"
_END = "<!-- bench: end -->"


def targets(report: Report) -> str:
    """The table of targets, and what it was measured with."""
    return f"`{report.command}` on {machine()}:\n\n{report.summary()}"


def splice(document: Path, text: str) -> None:
    """Put text in place of what is between the marks.

    Raises:
        ValueError: the marks are not there.
    """
    before, begin, rest = document.read_text().partition(_BEGIN)
    _, end, after = rest.partition(_END)
    if not begin or not end:
        raise ValueError(f"{document} has not got the marks {_BEGIN} and {_END}, between which the figures go")
    document.write_text(f"{before}{_BEGIN}\n\n{text.rstrip()}\n\n{_END}{after}")
