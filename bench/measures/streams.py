"""How soon the client sees the provider's text, and how long `import laneway` takes."""

from __future__ import annotations

import asyncio
import sys

from bench.arms.base import LANEWAY
from bench.crew import ROOT
from bench.measures.setting import Setting, new_lane
from bench.report import Section, Table, Target, median_ms, spread_ms

__all__ = ["first_delta", "imports"]

_IMPORT = """
import sys, time
begun = time.perf_counter()
import laneway
took = time.perf_counter() - begun
heavy = {"pydantic_ai", "langchain_core", "langgraph", "temporalio", "redis", "openai", "anthropic"} & set(sys.modules)
print(took, ",".join(sorted(heavy)))
"""


async def first_delta(setting: Setting) -> Section:
    section = Section("streams", "Text as it comes")
    lane = new_lane()
    found: list[float] = []
    for number in range(setting.sizes.deltas + 2):
        seconds = await setting.ask(LANEWAY, "first_delta", lane=lane)
        if seconds is None:
            return section
        if number >= 2:
            found.append(seconds)
    section.raw = {"seconds": found}
    rows = [["first text delta", median_ms(found), spread_ms(found)]]
    note = f"From the provider's first text to the client's first `text.delta`, {len(found)} turns."
    section.tables.append(Table("First text delta", ["", "p50 ms", "p10 to p90 ms"], rows, note))
    limit = Target.at_most("first text delta after the provider sent it, p50", 10, median_ms(found), unit=" ms")
    section.targets.append(limit)
    return section


async def imports(setting: Setting) -> Section:
    section = Section("imports", "Import")
    found: list[float] = []
    loaded = ""
    for number in range(setting.sizes.imports + 1):
        child = await asyncio.create_subprocess_exec(
            sys.executable, "-c", _IMPORT, cwd=ROOT, stdout=asyncio.subprocess.PIPE
        )
        out, _ = await child.communicate()
        seconds, _, loaded = out.decode().strip().partition(" ")
        if number:  # the first one writes bytecode
            found.append(float(seconds))
    section.raw = {"seconds": found}
    rows = [["import laneway", median_ms(found), spread_ms(found)]]
    section.tables.append(Table("Import", ["", "median ms", "p10 to p90 ms"], rows, f"{len(found)} new processes."))
    section.targets += [
        Target.at_most("import laneway", 150, median_ms(found), unit=" ms"),
        Target("frameworks are imported when used", "none at import", loaded or "none", not loaded),
    ]
    return section
