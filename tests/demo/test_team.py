"""The team's example does what it says, on files that it has not seen."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import pytest

from tests.support.children import child

CHECKOUT = Path(__file__).resolve().parents[2]


@pytest.mark.long
@pytest.mark.timeout(300)
async def test_a_team_reads_a_folder_and_writes_one_report_over_two_kills(tmp_path: Path):
    for number, text in enumerate(("a heron\n", "two herons\nand a crane\n", "nothing\n", "heron heron\n")):
        (tmp_path / f"file-{number}.txt").write_text(text)
    (tmp_path / "picture.png").write_bytes(b"\x89PNG")
    async with child(
        *(sys.executable, "-m", "examples.team", "--yes", "--dir", str(tmp_path)),
        *("--question", "Where is the 'heron'?"),
        cwd=CHECKOUT,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
    ) as process:
        out, _ = await process.communicate()
    said = out.decode()
    assert process.returncode == 0, said
    assert "- `file-1.txt`: 1 lines with 'heron', the first: two herons" in said
    assert "- `file-2.txt`: 0 lines with 'heron'" in said
    assert "picture.png" not in said
    assert "4 children, each committed once: True; 4 files read" in said
    assert "the report was written 1×" in said
