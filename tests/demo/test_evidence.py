"""The counting itself: what the closing figures would find."""

from __future__ import annotations

from dataclasses import replace

import pytest

from laneway.history.checkpoints import StoredEntry, encode_entries

from examples.demo.evidence import Chain, Tally, tally, texts_in, verify_chain
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
