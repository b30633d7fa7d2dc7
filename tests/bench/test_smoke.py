"""The bench runs: two arms, each thing once. That it measures well is seen by reading what it writes."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.long
@pytest.mark.timeout(300)
def test_a_small_run_writes_figures_tables_and_plots(tmp_path: Path):
    measures = ["imports", "latency", "delegation", "streams", "growth"]
    arms = ["--arms", "floor", "laneway", "team-floor", "team"]
    command = [sys.executable, "-m", "bench", *measures, *arms, "--smoke", "--results", str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=280)
    assert done.returncode == 0, done.stdout + done.stderr
    results = json.loads((tmp_path / "results.json").read_text())
    sections = {section["name"]: section for section in results["sections"]}
    assert list(sections) == measures
    assert set(sections["latency"]["raw"]["seconds"]) == {"floor", "laneway"}
    assert all(sections["latency"]["raw"]["seconds"].values())
    handed_on = sections["delegation"]["raw"]
    assert (handed_on["fan-out team"]["children"], handed_on["events"]["team"]["child"]) == (18, 13)
    assert handed_on["fan-out team"]["most"] <= 4
    assert sections["growth"]["raw"]["runs"][0]["laneway"]["stored"]
    assert {path.name for path in tmp_path.glob("*.png")} == {"growth.png", "latency.png"}
    assert "## Targets" in (tmp_path / "results.md").read_text()
