"""One core, two frameworks: on equivalent histories groups, verdicts and what is kept are the same."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from hypothesis import assume, event, given, settings
from hypothesis import strategies as st

from laneway.errors import HistoryProcessingValidationError
from laneway.history.editing import EditOutcome
from laneway.history.groups import find_groups
from laneway.history.views import view_of

from tests.history.edits import FRAMES, LANGCHAIN, Frame, edit, entries_of, request_for
from tests.history.histories import MadeHistory, edits, histories
from tests.history.oracle import is_allowed
from tests.history.test_properties import returned as returned_pieces
from tests.history.twins import has_feedback, lines_of, pieces_of, places, returned, twins


def without_feedback(made: MadeHistory) -> bool:
    return not has_feedback(made.pieces)


made_histories = histories().filter(without_feedback)


def reasons(frame: Frame, messages: Sequence[Any], request_index: int) -> list[tuple[int, int, bool, Any]]:
    view = view_of(frame.dialect, messages, entries_of(messages, frame=frame), request_index=request_index)
    return [
        (group.entry_start, group.entry_end, group.closed, group.protected_reasons)
        for group in find_groups(frame.dialect, view)
    ]


@given(made_histories)
def test_groups_are_the_same(made: MadeHistory) -> None:
    starts = places(made.pieces)
    expected = [
        (starts[start], starts[end], closed, why)
        for start, end, closed, why in reasons(FRAMES[0], made.native, made.request_index)
    ]
    assert reasons(LANGCHAIN, twins(made.pieces), made.request_index) == expected


def judged(frame: Frame, messages: Sequence[Any], made: MadeHistory, processor: Any) -> EditOutcome[Any] | str:
    async def process(ctx: Any) -> Any:
        return processor(ctx)

    request = request_for(messages, request_index=made.request_index, frame=frame)
    with asyncio.Runner() as runner:
        try:
            return runner.run(edit(request, process, frame=frame))
        except HistoryProcessingValidationError as refused:
            return str(refused.rule)


@settings(max_examples=150)
@given(st.data())
def test_an_edit_is_judged_the_same_and_leaves_the_same(data: st.DataObject) -> None:
    made = data.draw(made_histories)
    tokens = data.draw(edits(made))
    assume(tokens)
    messages = twins(made.pieces)
    before = [LANGCHAIN.dialect.content(message) for message in messages]

    one = judged(FRAMES[0], made.native, made, lambda ctx: returned_pieces(ctx, tokens, "given"))
    other = judged(LANGCHAIN, messages, made, lambda ctx: returned(ctx.messages, made.pieces, tokens))

    if isinstance(one, str) or isinstance(other, str):
        event(f"{one if isinstance(one, str) else one.verdict}")
        assert isinstance(one, str), other
        assert isinstance(other, str), one
        assert not is_allowed(made, tokens)
    else:
        event(one.verdict)
        assert other.verdict == one.verdict
        assert lines_of(other.messages) == lines_of(twins(pieces_of(one.messages)))
        stored = {id(message) for message in messages}
        kept = [message for message in other.messages if LANGCHAIN.dialect.content(message) in before]
        assert all(id(message) in stored for message in kept), "a kept message is not the stored one"
    assert [LANGCHAIN.dialect.content(message) for message in messages] == before, "the stored messages were touched"


@given(made_histories, st.integers(0, 4))
def test_keeping_recent_groups_keeps_the_same(made: MadeHistory, n: int) -> None:
    one = judged(FRAMES[0], made.native, made, lambda ctx: ctx.keep_recent_groups(n))
    other = judged(LANGCHAIN, twins(made.pieces), made, lambda ctx: ctx.keep_recent_groups(n))
    assert not isinstance(one, str)
    assert not isinstance(other, str)
    assert lines_of(other.messages) == lines_of(twins(pieces_of(one.messages)))
    assert other.verdict == one.verdict
