"""What is planted in answers and in messages that steer."""

from __future__ import annotations

from typing import Any

from tests.chaos.evidence import Evidence, LaneLeft
from tests.chaos.planting import TEAM, Plants, change, line_of

__all__ = ["plants"]

plants = Plants()


def _given(evidence: Evidence, said: str) -> dict[str, Any]:
    return next(line for line in evidence.answers if line.get("said") == said)


@plants("two answers counted")
def _(evidence: Evidence, lane: LaneLeft) -> None:
    _given(evidence, "already")["said"] = "ok"


@plants("answer that did not count")
def _(evidence: Evidence, lane: LaneLeft) -> None:
    _given(evidence, "already")["said"] = "ok"
    _given(evidence, "ok")["said"] = "already"


@plants("wrong answer accepted")
def _(evidence: Evidence, lane: LaneLeft) -> None:
    _given(evidence, "unknown")["said"] = "ok"


@plants("right answer refused")
def _(evidence: Evidence, lane: LaneLeft) -> None:
    _given(evidence, "already")["said"] = "invalid"


@plants("refused though it was first")
def _(evidence: Evidence, lane: LaneLeft) -> None:
    evidence.answers = [line for line in evidence.answers if line["give"] == 3]


@plants("result from nowhere")
def _(evidence: Evidence, lane: LaneLeft) -> None:
    evidence.answers = []


@plants("undocumented error")
def _(evidence: Evidence, lane: LaneLeft) -> None:
    _given(evidence, "already")["said"] = "RuntimeError: event loop is closed"


@plants("told in two ways")
def _(evidence: Evidence, lane: LaneLeft) -> None:
    asked = [line for line in evidence.workers["w"] if line["k"] == "model" and line["turn"] == "u1"]
    asked[1]["outside"] = {"results": {"u1.0.2": ["denied", "no"]}, "steered": {}}


@plants("steered out of order")
def _(evidence: Evidence, lane: LaneLeft) -> None:
    accepted = evidence.lanes[TEAM].accepted
    accepted[-1], accepted[-2] = accepted[-2], accepted[-1]


@plants("steered otherwise than its record says")
def _(evidence: Evidence, lane: LaneLeft) -> None:
    change(evidence.lanes[TEAM], "u4", taken=evidence.lanes[TEAM].records["u4"].taken[:1])


@plants("steered not one turn")
def _(evidence: Evidence, lane: LaneLeft) -> None:
    """Taken in, and a turn of its own as well."""
    change(evidence.lanes[TEAM], "s1", into=None)


@plants("steered not one turn")
def _(evidence: Evidence, lane: LaneLeft) -> None:
    del evidence.lanes[TEAM].records["s2"]


@plants("steered what came to nothing")
def _(evidence: Evidence, lane: LaneLeft) -> None:
    change(evidence.lanes[TEAM], "u3", taken=evidence.lanes[TEAM].records["u4"].taken)


@plants("steered twice")
def _(evidence: Evidence, lane: LaneLeft) -> None:
    line = [one for one in evidence.workers["w"] if one["k"] == "model" and one["turn"] == "u4"][-1]
    line["outside"]["steered"]["1"] *= 2


@plants("steered by what was not to")
def _(evidence: Evidence, lane: LaneLeft) -> None:
    line_of(evidence, "submit", "s1")["busy"] = "enqueue"


@plants("record's checkpoint")
def _(evidence: Evidence, lane: LaneLeft) -> None:
    change(evidence.lanes[TEAM], "s1", checkpoint=(0, 2, "00" * 16))
