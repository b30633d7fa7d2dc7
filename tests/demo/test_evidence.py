"""The counting itself: what the closing figures would find."""

from __future__ import annotations

from dataclasses import replace

import pytest
from temporalio.api.enums.v1 import EventType
from temporalio.api.history.v1 import HistoryEvent

from laneway.history.checkpoints import StoredEntry, encode_entries

from examples.demo.evidence import Chain, Tally, TurnCost, costs_by_turn, tally, texts_in, verify_chain
from examples.demo.figures import Measured, closing_figures
from examples.demo.ledger import Line, LineKind
from examples.demo.questions import Expected, holds


def lines(*kinds: LineKind) -> list[Line]:
    return [Line(kind, "turn-1", "1", 10 + index) for index, kind in enumerate(kinds)]


def test_a_request_that_was_cut_off_may_be_repeated_and_is_counted() -> None:
    counted = tally(
        lines(LineKind.MODEL_STARTED, LineKind.MODEL_STARTED, LineKind.MODEL_FINISHED, LineKind.MODEL_STAGED)
    )
    assert counted == Tally(model_calls=2, model_repeated=1, model_unfinished=1)


def test_a_request_that_is_repeated_after_its_answer_was_staged_is_found() -> None:
    counted = tally(
        lines(LineKind.MODEL_STARTED, LineKind.MODEL_FINISHED, LineKind.MODEL_STAGED, LineKind.MODEL_STARTED)
    )
    assert counted.model_repeated_after_staged == 1


def test_a_finished_tool_call_that_is_repeated_is_found_and_an_unfinished_one_is_not() -> None:
    assert tally(lines(LineKind.TOOL_STARTED, LineKind.TOOL_STARTED)).tools_finished_repeated == 0
    counted = tally(lines(LineKind.TOOL_STARTED, LineKind.TOOL_FINISHED, LineKind.TOOL_STARTED))
    assert (counted.tools_repeated, counted.tools_finished_repeated) == (1, 1)


@pytest.fixture
def chain() -> Chain:
    entries, digest = encode_entries([StoredEntry(b"%d" % n, {"n": n} if n % 2 else {}) for n in range(6)], after="")
    _, middle = encode_entries([StoredEntry(b"0", {}), StoredEntry(b"1", {"n": 1})], after="")
    return Chain(entries, 6, digest, 0, {"turn-1": f"0:2:{middle}", "turn-2": f"0:6:{digest}"})


def test_a_chain_as_it_was_written_is_verified_whole(chain: Chain) -> None:
    assert verify_chain(chain) == (9, [])


@pytest.mark.parametrize("index", range(6))
def test_an_altered_entry_is_found_wherever_it_is(chain: Chain, index: int) -> None:
    entries = list(chain.entries)
    entries[index] = entries[index][:-1] + b"x"
    verified, wrong = verify_chain(replace(chain, entries=entries))
    assert verified == index
    assert wrong == [f"entry {index} of 6 is not what its digest says"]


def test_lost_swapped_and_added_entries_are_found(chain: Chain) -> None:
    entries = list(chain.entries)
    swapped = [*entries[:2], entries[3], entries[2], *entries[4:]]
    added = [*entries, encode_entries([StoredEntry(b"more", {})], after=chain.digest)[0][0]]
    for altered in (entries[:-1], entries[1:], swapped, added):
        assert verify_chain(replace(chain, entries=altered))[1]


def test_a_checkpoint_that_is_not_on_the_chain_is_found(chain: Chain) -> None:
    verified, wrong = verify_chain(replace(chain, checkpoints={"turn-1": f"0:3:{chain.digest}"}))
    assert (verified, wrong) == (7, ["the checkpoint of turn turn-1 is not on the chain"])


def test_a_text_in_the_history_of_temporal_is_found() -> None:
    assert texts_in(b"...Which of the files...", ["Which of the files?", "short"]) == []
    assert texts_in(b"...Which of the files?...", ["“Which of the files?”"]) == ["“Which of the files?”"]


def events(*kinds: str) -> list[HistoryEvent]:
    """A history: `task` is three events, `accepted:turn-1` one, `completed:5` the end of what event 5 scheduled."""
    out: list[HistoryEvent] = []
    for kind in kinds:
        name, _, detail = kind.partition(":")
        match name:
            case "task":
                task = (
                    EventType.EVENT_TYPE_WORKFLOW_TASK_SCHEDULED,
                    EventType.EVENT_TYPE_WORKFLOW_TASK_STARTED,
                    EventType.EVENT_TYPE_WORKFLOW_TASK_COMPLETED,
                )
                out.extend(HistoryEvent(event_type=part) for part in task)
            case "accepted":
                event = HistoryEvent(event_type=EventType.EVENT_TYPE_WORKFLOW_EXECUTION_UPDATE_ACCEPTED)
                event.workflow_execution_update_accepted_event_attributes.accepted_request.meta.update_id = detail
                out.append(event)
            case "scheduled":
                out.append(HistoryEvent(event_type=EventType.EVENT_TYPE_ACTIVITY_TASK_SCHEDULED))
            case "completed":
                event = HistoryEvent(event_type=EventType.EVENT_TYPE_ACTIVITY_TASK_COMPLETED)
                event.activity_task_completed_event_attributes.scheduled_event_id = int(detail)
                out.append(event)
            case _:
                assert name == "timed_out"
                out.append(HistoryEvent(event_type=EventType.EVENT_TYPE_WORKFLOW_TASK_TIMED_OUT))
    for index, event in enumerate(out, 1):
        event.event_id = index
    return out


def shared_out(*kinds: str) -> list[tuple[str, int, bool]]:
    """Each turn, its events, and whether Temporal heard late of its worker."""
    costs: list[TurnCost] = costs_by_turn(events(*kinds))
    return [(cost.turn, cost.events, cost.late) for cost in costs]


def test_each_turn_has_the_events_from_the_workflow_task_that_accepted_it() -> None:
    one_after_the_other = ("task", "accepted:turn-1", "scheduled", "completed:5", "task")
    assert shared_out(*one_after_the_other, "task", "accepted:turn-2", "scheduled", "completed:14") == [
        ("turn-1", 9, False),
        ("turn-2", 6, False),
    ]


def test_a_turn_that_was_accepted_before_the_last_ones_activity_was_reported_is_late() -> None:
    first = ("task", "accepted:turn-1", "scheduled")
    assert shared_out(*first, "task", "accepted:turn-2", "completed:5", "task", "scheduled", "completed:14") == [
        ("turn-1", 5, False),
        ("turn-2", 10, True),
    ]


def test_a_turn_whose_workflow_task_timed_out_is_late() -> None:
    assert shared_out("task", "accepted:turn-1", "timed_out", "task", "scheduled") == [("turn-1", 9, True)]


@pytest.mark.parametrize(
    ("answer", "facts", "lacking"),
    [
        ("There are 12 files.", ["12"], []),
        ("There are 1,204 files.", ["1204"], []),
        ("There are 112 files, 1.12 each.", ["12"], ["12"]),
        ("It says:   def  f(): `x`", ["def f(): `x`"], []),
        ("It is `a/b.py`.", ["a/b.py", "7"], ["7"]),
    ],
)
def test_an_answer_is_right_when_it_holds_every_fact(answer: str, facts: list[str], lacking: list[str]) -> None:
    assert holds(answer, Expected(facts)) == lacking


@pytest.fixture
def measured() -> Measured:
    return Measured(
        turns=0,
        committed=0,
        kills=["a", "b", "c"],
        kills_planned=3,
        restarts=1,
        tally=Tally(model_calls=3, model_repeated=1, model_unfinished=1, tools_finished=1),
        costs=[],
        steps={},
        disturbed=frozenset(),
        texts=[],
        verified=3,
        tampered=[],
        wrong={},
        lenient=False,
    )


@pytest.mark.parametrize(
    ("figure", "change"),
    [
        ("turns_committed", {"committed": 1}),
        ("workers_killed", {"kills": ["a", "b"]}),
        ("stack_restarts", {"restarts": 0}),
        (
            "model_calls_repeated",
            {"tally": Tally(model_calls=3, model_repeated=2, model_unfinished=1, tools_finished=1)},
        ),
        ("texts_in_temporal", {"texts": ["x"]}),
        ("digests_verified", {"tampered": ["entry 1"]}),
        ("answers_right", {"wrong": {"turn-1": "lacks 3"}}),
    ],
)
def test_each_figure_that_is_off_is_said_to_be(measured: Measured, figure: str, change: dict[str, object]) -> None:
    before = {f.name: f.ok for f in closing_figures(measured)}
    after = {f.name: f.ok for f in closing_figures(replace(measured, **change))}  # type: ignore[arg-type]
    assert before[figure]
    assert not after[figure]
    assert {name for name in before if before[name] != after[name]} == {figure}


def test_with_a_real_model_a_wrong_answer_is_only_reported(measured: Measured) -> None:
    answers = closing_figures(replace(measured, wrong={"turn-1": "lacks 3"}, lenient=True))[-1]
    assert answers.ok
    assert "turn-1" in answers.why
