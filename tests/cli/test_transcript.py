"""What of a turn's events stands, and what is taken back."""

from __future__ import annotations

from laneway.cli.transcript import Called, Edited, Said, Transcript
from laneway.history.records import EventKind, LaneEvent


def delta(text: str, step: int = 0, attempt: int = 1) -> LaneEvent:
    return LaneEvent(EventKind.TEXT_DELTA, "t", step, attempt, {"text": text})


def called(call_id: str, step: int = 1, attempt: int = 1) -> LaneEvent:
    return LaneEvent(EventKind.TOOL_CALLED, "t", step, attempt, {"tool": "f", "call_id": call_id, "arguments": "{}"})


def finished(call_id: str, step: int = 1, attempt: int = 1, outcome: str = "returned") -> LaneEvent:
    return LaneEvent(EventKind.TOOL_FINISHED, "t", step, attempt, {"tool": "f", "call_id": call_id, "outcome": outcome})


def retried(step: int, attempt: int) -> LaneEvent:
    return LaneEvent(EventKind.STEP_RETRIED, "t", step, attempt)


def test_text_stands_once_a_later_step_begins():
    turn = Transcript()
    assert [*turn.take(delta("let ")), *turn.take(delta("me look"))] == []
    assert turn.open == [Said("let me look")]
    assert turn.take(called("a")) == [Said("let me look")]
    assert turn.open == [Called("a", "f", "{}")]


def test_text_stands_once_the_turn_has_ended():
    turn = Transcript()
    turn.take(delta("done"))
    assert turn.take(LaneEvent(EventKind.TURN_COMMITTED, "t")) == [Said("done")]


def test_a_retry_takes_back_text():
    turn = Transcript()
    turn.take(delta("wrong"))
    turn.take(retried(0, 2))
    assert turn.open == []
    turn.take(delta("right", attempt=2))
    assert turn.close() == [Said("right")]


def test_a_retry_is_noticed_by_its_attempt_where_the_event_is_lost():
    turn = Transcript()
    turn.take(delta("wrong"))
    turn.take(delta("right", attempt=2))
    assert turn.close() == [Said("right")]


def test_a_retry_keeps_finished_calls_and_takes_back_running_ones():
    """A finished call is not made again, so nobody would tell of it again."""
    turn = Transcript()
    turn.take(called("a"))
    turn.take(called("b"))
    turn.take(finished("a"))
    turn.take(retried(1, 2))
    turn.take(called("b", attempt=2))
    turn.take(finished("b", attempt=2, outcome="failed"))
    assert turn.close() == [Called("a", "f", "{}", "returned"), Called("b", "f", "{}", "failed")]


def test_an_edit_stands_before_what_its_step_said_and_goes_with_a_retry():
    """It is told once the step is done, and the next attempt tells it again."""
    rewritten = {"processor": "app:trim", "entries_before": 5, "entries_after": 3}
    turn = Transcript()
    for attempt in (1, 2):
        turn.take(delta("hello", attempt=attempt))
        turn.take(LaneEvent(EventKind.HISTORY_REWRITTEN, "t", 0, attempt, rewritten))
    edit, said = turn.close()
    assert isinstance(edit, Edited)
    assert edit.text.startswith("history edited by trim: 5 → 3 messages, ")
    assert said == Said("hello")


def test_events_of_an_attempt_that_was_replaced_are_not_shown():
    turn = Transcript()
    turn.take(retried(0, 2))
    assert turn.take(delta("late")) == ()
    turn.take(delta("next", step=1))
    assert turn.take(delta("later still", attempt=2)) == ()
    assert turn.close() == [Said("next")]


def test_an_output_that_was_shown_is_not_missing():
    turn = Transcript()
    turn.take(delta("the answer "))
    turn.close()
    assert turn.missing("the answer") == ""


def test_an_output_of_which_deltas_were_lost_is_missing_whole():
    turn = Transcript()
    turn.take(delta("answer"))
    turn.close()
    assert turn.missing("the answer") == "the answer"
