"""One conversation that never ends: what a turn costs after ten thousand."""

from __future__ import annotations

from bench.arms.base import LANEWAY
from bench.measures.growth import SLOPE_NOTE, slope
from bench.measures.setting import Setting, Turns, new_lane
from bench.report import Section, Table, Target, median, median_ms, milliseconds, spread_ms

__all__ = ["endless"]

_BLOCK = 100
_STEADY_TURNS = 50
_AGENT = "short"


async def endless(setting: Setting) -> Section:
    """A lane whose history a processor keeps short, so that only what Laneway itself accumulates can grow."""
    turns = setting.sizes.endless_turns
    section = Section("endless", "A conversation without end")
    lane = new_lane()
    seconds: list[float] = []
    stored: dict[int, int] = {}
    marks = [mark for mark in (_BLOCK, turns // 10, turns) if mark >= 1]
    while len(seconds) < turns:
        if not setting.clock.has(60, f"{turns - len(seconds):,} of {turns:,} turns of a conversation without end"):
            break
        count = min(_BLOCK, turns - len(seconds))
        played = Turns.of(await setting.ask(LANEWAY, "turns", lane=lane, count=count, kind="short_turn", within=300))
        seconds += played.seconds
        if played.failure is not None:
            section.failure = f"after turn {len(seconds)}: {played.failure}"
            return section
        if len(seconds) % (10 * _BLOCK) == 0:
            print(f"  turns: {len(seconds):,}", flush=True)
        if len(seconds) in marks:
            sizes = await setting.ask(LANEWAY, "stored", lane=lane, agent=_AGENT, within=120)
            stored[len(seconds)] = sizes["all"] if sizes else 0
    writes: list[tuple[int, int]] = await setting.ask(LANEWAY, "writes", lane=lane, agent=_AGENT, within=300) or []
    if len(writes) < 3:
        return section
    grows = slope(writes[_STEADY_TURNS:] or writes)
    early, late = seconds[:_BLOCK], seconds[-_BLOCK:]
    section.raw = {"seconds": seconds, "temporal": writes, "stored": stored}
    section.tables += [
        Table(
            "How a turn's time grows",
            ["turns", "p50 ms", "p10 to p90 ms"],
            [[f"1 to {len(early)}", median_ms(early), spread_ms(early)],
             [f"{len(seconds) - len(late) + 1:,} to {len(seconds):,}", milliseconds(median(late)), spread_ms(late)]],
            "A processor keeps the history between 20 and 40 messages.",
        ),
        Table(
            "What a turn writes to Temporal's history",
            ["events a turn", "bytes a turn", "bytes a turn more with each turn", "turns"],
            [[median([events for events, _ in writes]), median([size for _, size in writes]), f"{grows:+.5f}",
              len(writes)]],
            SLOPE_NOTE,
        ),
        Table(
            "What the lane takes in Redis",
            ["after turn", "bytes", "bytes a turn"],
            [[f"{mark:,}", size, round(size / mark)] for mark, size in stored.items()],
            "Old epochs are kept with the conversation, and so are turn records.",
        ),
    ]  # fmt: skip
    section.targets += [
        Target(
            f"Temporal history of a turn, slope over {len(writes):,} turns", "0", f"{grows:+.5f} bytes a turn",
            abs(grows) < 0.005 if len(writes) > 20 * _STEADY_TURNS else None,
        ),
        Target.at_most(
            f"turn {len(seconds):,} against turn {len(early)}, p50, with a history kept short", 1.1,
            median(late) / median(early),
        ),
    ]  # fmt: skip
    return section
