"""What a delegation costs beside a bare child workflow, and many of them at once on one worker."""

from __future__ import annotations

from bench.arms.base import TEAM, TEAM_FLOOR, label
from bench.arms.teams import AT_A_TIME
from bench.measures.setting import Setting, Turns, new_lane
from bench.report import Section, Table, Target, median, median_ms, spread_ms

__all__ = ["delegation"]

_WARM_UP = 2


async def delegation(setting: Setting) -> Section:
    section = Section("delegation", "Work handed to another agent")
    await _turns(setting, section)
    await _fan_out(setting, section)
    return section


async def _turns(setting: Setting, section: Section) -> None:
    sizes = setting.sizes
    names = setting.crew.present([TEAM_FLOOR, TEAM])
    taken: dict[str, list[float]] = {name: [] for name in names}
    medians: dict[str, list[float]] = {name: [] for name in names}
    async for name in setting.in_turn(names, sizes.tool_runs):
        count = sizes.tool_turns + _WARM_UP
        answer = await setting.ask(name, "turns", lane=new_lane(), count=count, kind="delegating_turn")
        played = Turns.of(answer)
        if played.failure is not None:
            if answer is not None:
                setting.crew.note(name, f"delegating_turn: {played.failure}")
            continue
        taken[name] += played.seconds[_WARM_UP:]
        medians[name].append(median(played.seconds[_WARM_UP:]))
    events = {name: await setting.ask(name, "delegation_events", lane=new_lane()) for name in names}
    section.raw |= {"seconds": taken, "events": events}
    rows = [
        [label(name), median_ms(taken[name]), spread_ms(taken[name]), found["child"], found["turn"]]
        for name, found in events.items()
        if found is not None
    ]
    note = (
        "A turn with a request, one delegation, which asks its model once, and a request. The floor is an update with "
        "an activity, a child workflow that runs one, and an activity. Some of the events are the child's, the others "
        "its parent's."
    )
    columns = ["", "p50 ms", "p10 to p90 ms", "events of the child", "events of both"]
    section.tables.append(Table("A turn that delegates once", columns, rows, note))
    ratios = [ours / floor for ours, floor in zip(medians.get(TEAM, []), medians.get(TEAM_FLOOR, []), strict=False)]
    if ratios:
        what = "turn that delegates once, p50, against a child workflow between two activities"
        section.targets.append(Target.at_most(what, 2, median(ratios)))
    if events.get(TEAM):
        section.targets.append(Target.at_most("a delegation, Temporal events of its child", 14, events[TEAM]["child"]))


async def _fan_out(setting: Setting, section: Section) -> None:
    sizes = setting.sizes
    wanted = sizes.fan_parents * sizes.fan_children
    rows: list[list[object]] = []
    for name in setting.crew.present([TEAM_FLOOR, TEAM]):
        found = await setting.ask(name, "fan_out", within=300, parents=sizes.fan_parents, children=sizes.fan_children)
        if found is None:
            continue
        section.raw[f"fan-out {name}"] = found
        rate = round(found["children"] / found["seconds"], 1)
        rows.append([label(name), round(found["seconds"], 1), rate, found.get("most", "–"), found.get("all", "–")])
        if name == TEAM:
            what = f"{wanted} delegations of {sizes.fan_parents} turns at once: a turn's that run at a time"
            section.targets += [
                Target.at_most(what, AT_A_TIME, found["most"]),
                Target("the same: all of them done", f"{wanted}", f"{found['children']}", found["children"] == wanted),
            ]
    note = (
        f"{sizes.fan_parents} turns at once, each of which hands out {sizes.fan_children} pieces of work in one "
        f"response, with max_concurrency={AT_A_TIME}, on one worker. How many ran at a time is told by the children's "
        "records."
    )
    columns = ["", "seconds", "children a second", "most of one turn at a time", "most of all at a time"]
    section.tables.append(Table("Many delegations at once", columns, rows, note))
