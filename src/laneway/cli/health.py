"""`laneway doctor`: whether the servers can carry conversations without losing any."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from laneway.cli.output import console, note, safe, write, write_json
from laneway.cli.places import locate

if TYPE_CHECKING:
    from laneway.diagnosis import Report

__all__ = ["examine"]

_MARKS = {"ok": ("✓", "green"), "warn": ("!", "yellow"), "fail": ("✗", "red")}


async def examine(*, data_dir: Path, as_json: bool) -> int:
    """Write what was found.

    Returns:
        1 where Laneway cannot work like that, 0 where it can, warnings or not.
    """
    from laneway.doctor import diagnose

    place = await locate(data_dir)
    report = await diagnose(place.settings)
    if as_json:
        write_json({**report.to_json(), "dev": place.dev})
    else:
        note(f"looking at the `laneway dev` of {data_dir}" if place.dev else "looking where the settings say")
        _write(report)
    return 1 if report.status == "fail" else 0


def _write(report: Report) -> None:
    from rich.text import Text

    screen = console()
    for check in report.checks:
        mark, style = _MARKS[check.status]
        screen.print(Text.assemble((f"{mark} ", style), (f"{check.name:20} ", "bold"), safe(check.detail)))
        if check.advice is not None:
            screen.print(Text(f"  {'':20} → {safe(check.advice)}"))
    write(
        "\n"
        + {"ok": "all is well", "warn": "it works, with warnings", "fail": "it cannot work like this"}[report.status]
        + "\n"
    )
