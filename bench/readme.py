"""The table of targets in the README, between two marks."""

from __future__ import annotations

from pathlib import Path

from bench.report import Report, machine

__all__ = ["splice"]

_BEGIN = "<!-- bench: written by `make bench` -->"
_END = "<!-- bench: end -->"


def splice(readme: Path, report: Report) -> None:
    """Put a run's table in place of the one that is there.

    Raises:
        ValueError: the marks are not there.
    """
    text = readme.read_text()
    before, begin, rest = text.partition(_BEGIN)
    _, end, after = rest.partition(_END)
    if not begin or not end:
        raise ValueError(f"{readme} has not got the marks {_BEGIN} and {_END}, between which the table goes")
    about = f"`{report.command}` on {machine()}:"
    readme.write_text(f"{before}{_BEGIN}\n\n{about}\n\n{report.summary()}\n{_END}{after}")
