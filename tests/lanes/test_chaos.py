"""A minute of chaos: see `tests/chaos` and `docs/chaos.md`."""

from __future__ import annotations

import asyncio
import json
import random
import sys
from pathlib import Path

import pytest

from tests.support.children import child

ROOT = Path(__file__).parents[2]
_SECONDS = 60


@pytest.mark.long
@pytest.mark.timeout(600)
async def test_a_minute_of_chaos_breaks_no_promise(tmp_path: Path):
    seed = random.randrange(10**6)
    print(f"seed {seed}")
    argv = ["-m", "tests.chaos", "--seconds", str(_SECONDS), "--seed", str(seed), "--folder", str(tmp_path), "--json"]
    pipe = asyncio.subprocess.PIPE
    async with child(sys.executable, *argv, cwd=ROOT, stdout=pipe, stderr=pipe) as process:
        output, progress = await process.communicate()
    assert output, progress.decode()[-4000:]
    report = json.loads(output)
    assert report["violations"] == [], f"seed {seed}; what the run left is in {tmp_path}"
    assert process.returncode == 0
    assert report["turns"]["committed"] > 0
    assert sum(report["faults"].values()) >= 5
