"""One turn at the start of a conversation, and many at once, beside the floor."""

from __future__ import annotations

from bench.arms.base import FLOOR, LANEWAY, LANEWAY_GRAPH, label
from bench.measures.setting import Setting, Turns, new_lane
from bench.report import Section, Table, Target, median, median_ms, milliseconds, spread_ms

__all__ = ["latency", "throughput", "tool_turns"]

_WARM_UP = 2


async def latency(setting: Setting) -> Section:
    names = setting.crew.present([FLOOR, LANEWAY, LANEWAY_GRAPH, *_others(setting)])
    taken, runs = await _played(setting, names, setting.sizes.latency_runs, setting.sizes.latency_turns)
    floor = taken.get(FLOOR, [])
    rows = [
        [label(name), median_ms(seconds), spread_ms(seconds), milliseconds(max(seconds)), _times(runs, name)]
        for name, seconds in taken.items()
        if seconds
    ]
    note = (
        f"{setting.sizes.latency_runs} runs of {setting.sizes.latency_turns} turns on a new lane, the arms in turn; "
        "prompts of 40 bytes, replies of 2 KB. The ratio is the median of the runs' own ratios, and in brackets the "
        "least and the greatest of them."
    )
    section = Section("latency", "One turn", raw={"seconds": taken})
    section.tables.append(
        Table("A turn with one model request", ["", "p50 ms", "p10 to p90 ms", "longest ms", "× floor"], rows, note)
    )
    if floor:
        for name, aim in ((LANEWAY, 1.25), (LANEWAY_GRAPH, 1.25)):
            if ratios := _ratios(runs, name):
                middle = median(ratios)
                section.targets.append(
                    Target.at_most(f"one-step turn, p50, against the floor: {label(name)}", aim, middle)
                )
    return section


def _others(setting: Setting) -> list[str]:
    return [name for name in setting.sizes.growth_turns if name not in (LANEWAY, LANEWAY_GRAPH)]


async def _played(
    setting: Setting, names: list[str], runs: int, turns: int, kind: str = "turn"
) -> tuple[dict[str, list[float]], dict[str, list[float]]]:
    """The seconds of all turns by arm, and the medians of each run by arm."""
    taken: dict[str, list[float]] = {name: [] for name in names}
    medians: dict[str, list[float]] = {name: [] for name in names}
    async for name in setting.in_turn(names, runs):
        answer = await setting.ask(name, "turns", lane=new_lane(), count=turns + _WARM_UP, kind=kind)
        played = Turns.of(answer)
        if played.failure is not None:
            if answer is not None:
                setting.crew.note(name, f"{kind}: {played.failure}")
            continue
        taken[name] += played.seconds[_WARM_UP:]
        medians[name].append(median(played.seconds[_WARM_UP:]))
    return taken, medians


def _ratios(medians: dict[str, list[float]], name: str) -> list[float]:
    return [one / other for one, other in zip(medians.get(name, []), medians.get(FLOOR, []), strict=False)]


def _times(medians: dict[str, list[float]], name: str) -> str:
    ratios = _ratios(medians, name)
    return f"{median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})" if ratios else "–"


async def throughput(setting: Setting) -> Section:
    sizes = setting.sizes
    names = setting.crew.present([FLOOR, LANEWAY, LANEWAY_GRAPH, "durability", "dbos"])
    rates: dict[str, list[float]] = {name: [] for name in names}
    lanes = {name: [new_lane() for _ in range(sizes.crowd_lanes)] for name in names}
    for name in names:
        await setting.ask(name, "together", lanes=lanes[name], count=1)  # opens them
    async for name in setting.in_turn(names, sizes.crowd_runs):
        seconds = await setting.ask(name, "together", lanes=lanes[name], count=sizes.crowd_turns)
        if seconds is not None:
            rates[name].append(sizes.crowd_lanes * sizes.crowd_turns / seconds)
    rows = [
        [label(name), round(median(found), 1), f"{min(found):.1f} to {max(found):.1f}", _times(rates, name)]
        for name, found in rates.items()
        if found
    ]
    note = (
        f"{sizes.crowd_lanes} lanes at once, {sizes.crowd_turns} turns on each, {sizes.crowd_runs} times in turn. Each "
        "arm is one process with worker and client, beside both servers on the same machine."
    )
    section = Section("throughput", "Many lanes at once", raw={"turns_per_second": rates})
    section.tables.append(Table("Turns a second", ["", "median", "least to most", "× floor"], rows, note))
    for name in (LANEWAY, LANEWAY_GRAPH):
        if ratios := _ratios(rates, name):
            what = f"turns a second, {sizes.crowd_lanes} lanes at once, against the floor: {label(name)}"
            section.targets.append(Target.at_least(what, 0.8, median(ratios)))
    return section


async def tool_turns(setting: Setting) -> Section:
    sizes = setting.sizes
    names = setting.crew.present([FLOOR, LANEWAY])
    taken, runs = await _played(setting, names, sizes.tool_runs, sizes.tool_turns, "tool_turn")
    section = Section("tools", "A turn with two parallel tools", raw={"seconds": taken})
    rows = [
        [{FLOOR: "floor: an update with three activities"}.get(name, label(name)), median_ms(seconds),
         spread_ms(seconds), _times(runs, name)]
        for name, seconds in taken.items()
    ]  # fmt: skip
    section.tables.append(
        Table("A turn with one round of two parallel tools", ["", "p50 ms", "p10 to p90 ms", "× floor"], rows)
    )
    if ratios := _ratios(runs, LANEWAY):
        section.targets.append(
            Target.at_most("turn with two parallel tools, p50, against three activities", 1.3, median(ratios))
        )
    lane = new_lane()
    await setting.ask(LANEWAY, "turns", lane=lane, count=5, kind="tool_turn")
    writes = await setting.ask(LANEWAY, "writes", lane=lane, agent="tools")
    if writes:
        events, size = median([events for events, _ in writes]), median([size for _, size in writes])
        section.targets += [
            Target.at_most("the same, Temporal events", 24, events),
            Target.at_most("the same, Temporal history bytes", 4096, size, f"{size:,.0f}"),
        ]
    overlap = await setting.ask(LANEWAY, "overlap", lane=new_lane())
    if overlap is not None:
        section.targets.append(Target("the same, the tools overlap", "yes", "yes" if overlap else "no", overlap))
    return section
