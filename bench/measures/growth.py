"""Conversations that go on and on: how a turn's time and a conversation's storage grow with its length."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from bench.arms.base import ARMS, LANEWAY, LANEWAY_GRAPH, label
from bench.measures.setting import Setting, Turns, new_lane
from bench.report import Section, Table, Target, median, median_ms, milliseconds

__all__ = ["SLOPE_NOTE", "graph_growth", "pydantic_growth", "slope"]

_BLOCK = 10
_SHORT_TURNS = 160
_MARKS = (1, 50, 150, 500, 1000)
_STORED_AT = (50, 150, 500)
_SLOWEST_TURN_SECONDS = 2.0
_PAIRS = 61
# The young conversation goes on from there, by a turn for each pair.
_EARLY = 10
# In the first turns event ids take fewer bytes.
_STEADY_TURNS = 50
SLOPE_NOTE = (
    "Medians. A turn that begins before the workflow task of the one before has ended shares it, and has 8 events, not "
    "11. So the growth is the least squares' over turns with as many events."
)
Beside = dict[int, list[tuple[float, float]]]
"""The seconds of turns, each with those of a run without Laneway, by how many turns their conversation has."""
# What is kept back for what comes after: of the whole time, and for writing results.
_SHARE_OF_SAVERS, _RESERVE_SECONDS = 0.2, 20.0


@dataclass
class Course:
    """One arm's conversation.

    Attributes:
        seconds: how long each of its turns took, the first one first.
        ended: why it ended early.
        stored: after how many turns what was stored: its messages' own bytes, and all.
    """

    name: str
    limit: int
    lane: str = field(default_factory=new_lane)
    seconds: list[float] = field(default_factory=list[float])
    ended: str | None = None
    stored: dict[int, dict[str, int]] = field(default_factory=dict[int, dict[str, int]])
    held_before: int = 0

    @property
    def goes_on(self) -> bool:
        return self.ended is None and len(self.seconds) < self.limit

    def around(self, turn: int) -> float:
        """The median of the turns around one; not a number where it did not get there."""
        first = max(turn - 1 - _BLOCK // 2, 0)
        return median(self.seconds[first : first + _BLOCK]) if len(self.seconds) >= turn else float("nan")


async def pydantic_growth(setting: Setting) -> Section:
    """Pydantic AI, in several runs; the first goes to the end, the others as far as `TemporalDurability` gets."""
    names = [name for name in setting.sizes.growth_turns if ARMS[name].kind == "pydantic"]
    section = Section("growth", "Long conversations, Pydantic AI")
    runs: list[dict[str, Course]] = []
    beside: Beside = {}
    ends_at = setting.clock.seconds * (1 - _SHARE_OF_SAVERS)
    for run in range(setting.sizes.growth_runs):
        # The others first: they are short, and the long one may take all the time there is.
        is_long = run == setting.sizes.growth_runs - 1
        if setting.clock.elapsed > ends_at:
            setting.clock.has(setting.clock.seconds, f"run {run + 1} of {section.title}")
            break
        limits = {
            name: turns if is_long else min(turns, _SHORT_TURNS)
            for name, turns in setting.sizes.growth_turns.items()
            if name in names and (is_long or name in (LANEWAY, "durability"))
        }
        runs.append(await _grown(setting, limits, ends_at))
    if not runs:
        return section
    long = runs[-1]
    if LANEWAY in long:
        await _play_to_last_mark(setting, long[LANEWAY])
        # After that: the turns that this takes would be counted with what is stored.
        beside = await _beside(setting, long[LANEWAY])
    section.tables += [_times_table(long, f"The last of {len(runs)} runs, the arms in blocks of {_BLOCK} turns.")]
    section.tables += _endings(long)
    section.raw = {**_raw(runs), "beside_framework": beside}
    section.targets += _flatness(beside)
    section.targets += _against(runs, long)
    if LANEWAY in long:
        section.targets += await _temporal(setting, long[LANEWAY], section)
        section.tables.append(await _redis(setting, long[LANEWAY]))
        section.targets += _storage_targets(long[LANEWAY], 1.15)
    return section


async def graph_growth(setting: Setting) -> Section:
    """LangGraph with its savers, and on lanes."""
    section = Section("savers", "Long conversations, LangGraph")
    names = {name: turns for name, turns in setting.sizes.growth_turns.items() if ARMS[name].kind == "langgraph"}
    if not setting.clock.has(5, section.title):
        return section
    courses = await _grown(setting, names, setting.clock.seconds - _RESERVE_SECONDS)
    note = f"One run, the arms in blocks of {_BLOCK} turns; a graph of one node."
    section.tables += [_times_table(courses, note), _stored_table(courses), *_endings(courses)]
    section.raw = _raw([courses])
    for name in (LANEWAY_GRAPH, "saver-laneway"):
        if name in courses:
            section.targets += _storage_targets(courses[name], 1.5)
    return section


async def _grown(setting: Setting, limits: Mapping[str, int], ends_at: float) -> dict[str, Course]:
    """Play conversations until they are long enough, or the time is over.

    Args:
        setting: with what.
        limits: how many turns of each arm.
        ends_at: when the time is over, on the bench's clock.
    """
    courses = {name: Course(name, limit) for name, limit in limits.items() if name in setting.crew}
    for course in courses.values():
        if await setting.ask(course.name, "offers", what="held"):
            course.held_before = await setting.ask(course.name, "held") or 0
    while going := [course for course in courses.values() if course.goes_on and course.name in setting.crew]:
        if setting.clock.elapsed > ends_at:
            lengths = ", ".join(f"{label(course.name)} after turn {len(course.seconds)}" for course in going)
            setting.clock.has(setting.clock.seconds, f"the rest of long conversations: {lengths}")
            break
        for course in going:
            await _block(setting, course)
        if max(len(course.seconds) for course in going) % 100 == 0:
            longest = ", ".join(f"{label(course.name)} {len(course.seconds)}" for course in going)
            print(f"  turns: {longest}", flush=True)
    return courses


async def _play_to_last_mark(setting: Setting, course: Course) -> None:
    """Where the time of all arms was over before a conversation was as long as its storage is judged at, play it on."""
    while course.goes_on and len(course.seconds) < min(_STORED_AT[-1], course.limit):
        await _block(setting, course)


async def _beside(setting: Setting, course: Course) -> Beside:
    """The long conversation and one at its beginning, in turn, each beside the framework's own time."""
    young = new_lane()
    await setting.ask(LANEWAY, "turns", lane=young, count=_EARLY)
    pairs = await setting.ask(LANEWAY, "beside_framework", lanes=[young, course.lane], count=_PAIRS)
    if not pairs or len(course.seconds) <= _EARLY:
        return {}
    return {_EARLY: pairs[0], len(course.seconds): pairs[1]}


async def _block(setting: Setting, course: Course) -> None:
    count = min(_BLOCK, course.limit - len(course.seconds))
    limit = _BLOCK * _SLOWEST_TURN_SECONDS
    played = Turns.of(
        await setting.ask(course.name, "turns", lane=course.lane, count=count, limit_seconds=limit, within=90)
    )
    course.seconds += played.seconds
    if played.failure is not None:
        course.ended = f"after turn {len(course.seconds)}: {played.failure}"
    elif len(played.seconds) < count:
        course.ended = f"stopped after turn {len(course.seconds)}, as a turn took over {_SLOWEST_TURN_SECONDS:g} s"
    if course.ended is not None:
        print(f"  {label(course.name)} ended {course.ended}", flush=True)
        return
    marks = {mark for mark in _STORED_AT if mark <= course.limit} or {course.limit}
    if len(course.seconds) in marks and await setting.ask(course.name, "offers", what="stored"):
        stored = await setting.ask(course.name, "stored", lane=course.lane)
        if stored is not None:
            course.stored[len(course.seconds)] = stored | {"all": stored["all"] - course.held_before}


# Tables -------------------------------------------------------------------------------------------------------------


def _times_table(courses: Mapping[str, Course], note: str) -> Table:
    longest = max(len(course.seconds) for course in courses.values())
    marks = [mark for mark in _MARKS if mark <= longest]
    rows = [
        [label(name), *(milliseconds(course.around(mark)) for mark in marks), len(course.seconds)]
        for name, course in courses.items()
    ]
    columns = ["", *(f"turn {mark}, ms" for mark in marks), "turns played"]
    return Table("How a turn's time grows", columns, rows, f"{note} The median of the {_BLOCK} turns around each.")


def _endings(courses: Mapping[str, Course]) -> list[Table]:
    rows = [[label(course.name), course.ended] for course in courses.values() if course.ended is not None]
    return [Table("Conversations that ended early", ["", "when, and why"], rows)] if rows else []


def _stored_table(courses: Mapping[str, Course]) -> Table:
    rows: list[list[object]] = []
    for name, course in courses.items():
        for turns, sizes in course.stored.items():
            rows.append([label(name), turns, sizes["own"], sizes["all"], f"×{sizes['all'] / sizes['own']:.2f}"])
    note = (
        "Own is every message once, as LangGraph's serializer writes it. In Valkey, all memory of the keys, the "
        "server's overhead included; for `InMemorySaver` its encoded values, for sqlite its file."
    )
    return Table("What a conversation takes in storage", ["", "turns", "own bytes", "stored", ""], rows, note)


async def _redis(setting: Setting, course: Course) -> Table:
    rows: list[list[object]] = []
    for turns, sizes in course.stored.items():
        rows += [[f"{kind}, {turns} turns", size, f"×{size / sizes['own']:.3f}"] for kind, size in sizes.items()]
    note = (
        "Memory of the lane's keys, the server's overhead included. Own is every message once, as Pydantic AI's JSON. "
        "The stream of events is bounded, and turn records expire with the conversation only."
    )
    return Table("What a lane leaves in Redis", ["", "bytes", "of the messages' own"], rows, note)


async def _temporal(setting: Setting, course: Course, section: Section) -> list[Target]:
    writes: list[tuple[int, int]] = await setting.ask(LANEWAY, "writes", lane=course.lane, within=180) or []
    if len(writes) < 3:
        return []
    sizes = [size for _, size in writes]
    grows = slope(writes[_STEADY_TURNS:] or writes)
    events, size = median([count for count, _ in writes]), median(sizes)
    section.raw["temporal"] = writes
    rows = [[events, size, f"{grows:+.4f}", len(writes)]]
    columns = ["events a turn", "bytes a turn", "bytes a turn more with each turn", "turns"]
    section.tables.append(
        Table(
            "What a turn writes to Temporal's history",
            columns,
            rows,
            SLOPE_NOTE,
        )
    )
    return [
        Target.at_most("one-step turn, Temporal events", 12, events, f"{events:g}"),
        Target.at_most("one-step turn, Temporal history bytes", 2048, size, f"{size:,.0f}"),
        Target(
            f"the same, slope over {len(writes):,} turns",
            "0",
            f"{grows:+.4f} bytes a turn",
            abs(grows) < 0.05 if len(writes) > 3 * _STEADY_TURNS else None,
        ),
    ]


def slope(writes: Sequence[tuple[int, int]]) -> float:
    """Least squares: how many bytes more each turn writes than the one before, among turns that wrote as many events.

    Args:
        writes: events and bytes of each turn, in order.
    """
    groups: dict[int, list[tuple[int, int]]] = defaultdict(list)
    for at, (events, size) in enumerate(writes):
        groups[events].append((at, size))
    shared = spread = 0.0
    for turns in groups.values():
        middle, mean = (sum(column) / len(turns) for column in zip(*turns, strict=True))
        shared += sum((at - middle) * (size - mean) for at, size in turns)
        spread += sum((at - middle) ** 2 for at, _ in turns)
    return shared / spread if spread else 0.0


# Targets ------------------------------------------------------------------------------------------------------------


def _flatness(beside: Beside) -> list[Target]:
    if len(beside) < 2:
        return []
    last = max(beside)
    early, late = (median([turn - alone for turn, alone in beside[at]]) for at in (min(beside), last))
    first_alone, last_alone = (median([alone for _, alone in beside[at]]) for at in (min(beside), last))
    text = (
        f"{late / early:.2f} ({early * 1000:.1f} → {late * 1000:.1f} ms; Pydantic AI itself "
        f"{first_alone * 1000:.1f} → {last_alone * 1000:.1f} ms)"
    )
    what = f"turn {last:,} against turn {_EARLY}, p50, without the framework's own time"
    return [Target.at_most(what, 1.1, late / early, text)]


def _against(runs: Sequence[Mapping[str, Course]], long: Mapping[str, Course]) -> list[Target]:
    found: list[Target] = []
    for turn, limit in ((1, 0.9), (50, 0.8), (150, 0.5)):
        pairs = [(run[LANEWAY], run["durability"]) for run in runs if {LANEWAY, "durability"} <= run.keys()]
        ratios = [lane.around(turn) / peer.around(turn) for lane, peer in pairs]
        ratios = [ratio for ratio in ratios if ratio == ratio]
        if ratios:
            what = f"against TemporalDurability, p50 at turn {turn}"
            found.append(Target.at_most(what, limit, median(ratios), f"{median(ratios):.2f} ({len(ratios)} runs)"))
    found += [
        Target(f"{label(name)} ends", "–", _short(ended), None)
        for name in ("durability", "durability-continued")
        if name in long and (ended := long[name].ended) is not None
    ]
    if {LANEWAY, "dbos"} <= long.keys() and long["dbos"].around(500) > 0:
        ratio = long[LANEWAY].around(500) / long["dbos"].around(500)
        found.append(Target.at_most("against Pydantic AI on DBOS, history by reference, p50 at turn 500", 1.0, ratio))
    return found


def _short(ended: str) -> str:
    return ended if len(ended) <= 90 else f"{ended[:87]}…"


def _storage_targets(course: Course, limit: float) -> list[Target]:
    if not course.stored:
        return []
    turns, sizes = max(course.stored.items())
    what = f"bytes in Redis against the messages' own, {turns} turns: {label(course.name)}"
    return [Target.at_most(what, limit, sizes["all"] / sizes["own"])]


def _raw(runs: Sequence[Mapping[str, Course]]) -> dict[str, Any]:
    return {
        "runs": [
            {
                name: {"seconds": course.seconds, "ended": course.ended, "stored": course.stored}
                for name, course in run.items()
            }
            for run in runs
        ]
    }


def block_medians_ms(seconds: Sequence[float]) -> list[float]:
    """One median for each block of turns, for plots."""
    return [median_ms(seconds[at : at + _BLOCK]) for at in range(0, len(seconds), _BLOCK)]
