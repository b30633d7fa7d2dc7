"""What the bench makes of figures: it judges them as they are, and says what it has not got."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from bench.arms.temporal_history import TurnWrites
from bench.measures.growth import Course, slope
from bench.operator import bill
from bench.plan import Clock
from bench.readme import splice, targets
from bench.report import Report, Section, Table, Target, median, spread_ms


def test_a_target_is_met_up_to_its_limit_and_not_beyond():
    assert Target.at_most("a", 1.25, 1.25).met
    assert not Target.at_most("a", 1.25, 1.2501).met
    assert Target.at_least("a", 0.8, 0.8).met
    assert not Target.at_least("a", 0.8, 0.79).met


def test_a_figure_that_could_not_be_measured_meets_nothing():
    assert not Target.at_most("a", 1, math.nan).met
    assert not Target.at_least("a", 1, median([])).met
    assert spread_ms([]) == "–"


def test_the_slope_is_that_of_turns_with_as_many_events():
    """Whether a turn shares a workflow task with the next one is no growth."""
    assert slope([(11, 5), (11, 5), (11, 5)]) == 0
    assert slope([(11, 1), (11, 3), (11, 5), (11, 7)]) == pytest.approx(2)
    assert slope([(8, 100), (8, 100), (8, 100), (11, 150), (11, 150)]) == 0
    assert slope([(8, 100), (11, 151), (8, 102), (11, 153)]) == pytest.approx(1)
    assert slope([(11, 9)]) == 0


def test_a_conversation_that_did_not_get_to_a_turn_has_no_time_there():
    course = Course("laneway", 100, seconds=[0.01] * 40 + [0.02] * 20)
    assert course.around(1) == 0.01
    assert course.around(50) == 0.02
    assert math.isnan(course.around(150))


def test_the_clock_says_what_was_left_out():
    clock = Clock(100)
    assert clock.has(10, "a measure")
    assert not clock.has(1000, "another")
    assert clock.skipped == ["another"]


def test_a_report_names_failures_and_what_was_left_out():
    report = Report(False, "make bench", failures=["DBOS: it fell"], skipped=["growth"])
    report.sections.append(Section("latency", "One turn", [Table("A turn", ["", "ms"], [["floor", 20.0]])]))
    report.sections[0].targets.append(Target.at_most("a turn", 1, 2))
    text = report.to_markdown()
    assert "- Failed: DBOS: it fell" in text
    assert "- Not measured for want of time: growth" in text
    assert "| a turn | ≤ 1 | 2 | **missed** |" in text
    assert "| floor | 20.0 |" in text


def test_the_table_goes_between_the_marks_and_nowhere_else(tmp_path: Path):
    document = tmp_path / "README.md"
    document.write_text("before\n<!-- bench: written by `make bench` -->\nold\n<!-- bench: end -->\nafter\n")
    report = Report(False, "make bench", [Section("a", "A", targets=[Target.at_most("a turn", 1, 0.5)])])
    splice(document, targets(report))
    splice(document, targets(report))
    text = document.read_text()
    assert text.startswith("before\n")
    assert text.endswith("after\n")
    assert "old" not in text
    assert text.count("| a turn | ≤ 1 | 0.5 | met |") == 1


def test_a_document_without_marks_is_refused_and_left_alone(tmp_path: Path):
    document = tmp_path / "README.md"
    document.write_text("nothing here\n")
    with pytest.raises(ValueError, match="has not got the marks"):
        splice(document, "a table")
    assert document.read_text() == "nothing here\n"


def test_the_bill_is_made_from_the_run_s_own_figures():
    each = {"scripts": 3.0, "commands": 1.0, "sent": 8000.0, "received": 4000.0}
    course = {"stored": {50: {"own": 1, "all": 1}, 500: {"own": 1_600_000, "all": 1_700_000}}}
    growth = Section("growth", "", raw={"runs": [{"laneway": course}], "temporal": [TurnWrites(11, 1500)] * 3})
    tools = Section("tools", "", targets=[Target.at_most("the same, Temporal history bytes", 4096, 2900, "2,900")])
    report = Report(False, "make bench", [Section("traffic", "", raw={"turn": each, "tool_turn": each}), growth, tools])
    text = bill(report)
    assert "| Temporal history, until its retention has passed | 1.5 GB | 2.9 GB |" in text
    assert "| Redis scripts | 3.0 million | 3.0 million |" in text
    assert "| memory kept in Redis, with replies of 2 KB | 3.4 GB | – |" in text
    assert "| turns of one model request | 20,000 |" in text


def test_without_figures_there_is_no_bill():
    assert bill(Report(False, "make bench")) == ""
