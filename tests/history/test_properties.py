"""Random histories and random edits: the verdicts are those of a naive oracle, and what is accepted can be sent."""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise

from hypothesis import event, given, settings
from hypothesis import strategies as st
from pydantic_ai.messages import ModelMessage, ModelMessagesTypeAdapter

from laneway.errors import HistoryProcessingValidationError
from laneway.history.editing import EditOutcome, EditRequest
from laneway.history.groups import HistoryGroup, find_groups
from laneway.history.rules import EditRule
from laneway.history.views import view_of

from tests.history.edits import DIALECT, Context, edit, entries_of, request_for, says
from tests.history.histories import MadeHistory, Token, changed, edits, histories, new_message
from tests.history.oracle import is_allowed, why_unsendable

Outcome = EditOutcome[ModelMessage]


def returned(ctx: Context, tokens: Sequence[Token], form: str) -> list[ModelMessage]:
    """What a processor would return: the copies it was given, deep copies of them, or messages decoded from JSON."""
    messages: list[ModelMessage] = []
    for number, token in enumerate(tokens):
        if token.old is None:
            messages.append(new_message(token.kind, number))
            continue
        message = changed(ctx.messages[token.old]) if token.kind == "changed" else ctx.messages[token.old]
        if form == "deep copy":
            message = copy.deepcopy(message)
        elif form == "json":
            encoded = ModelMessagesTypeAdapter.dump_json([message])
            message = ModelMessagesTypeAdapter.validate_json(encoded)[0]
        messages.append(message)
    return messages


def run(request: EditRequest[ModelMessage], processor: Callable[[Context], list[ModelMessage]]) -> Outcome:
    """One pass with an async processor, on a loop of its own: hypothesis calls tests from sync code."""

    async def process(ctx: Context) -> list[ModelMessage]:
        return processor(ctx)

    with asyncio.Runner() as runner:
        return runner.run(edit(request, process))


def judged(made: MadeHistory, tokens: Sequence[Token], form: str) -> Outcome | EditRule:
    request = request_for(made.native, request_index=made.request_index)
    try:
        return run(request, lambda ctx: returned(ctx, tokens, form))
    except HistoryProcessingValidationError as refused:
        return EditRule(refused.rule)


@given(histories())
def test_groups_are_the_cycles_that_the_history_was_made_of(made: MadeHistory) -> None:
    view = view_of(DIALECT, made.native, entries_of(made.native), request_index=made.request_index)
    groups = find_groups(DIALECT, view)
    assert [says(message) for message in view.messages] == [says(message) for message in made.pieces]
    assert [len(group) for group in groups] == [len(group.messages) for group in made.groups]
    assert [group.protected for group in groups] == [group.protected for group in made.groups]
    assert groups[0].entry_start == 0
    assert all(before.entry_end == after.entry_start for before, after in pairwise(groups))
    assert len({group.group_id for group in groups}) == len(groups)
    assert [group.protected_reasons.count("current") for group in groups] == [0] * (len(groups) - 1) + [1]


@settings(max_examples=200)
@given(st.data())
def test_an_edit_is_judged_as_the_oracle_judges_it(data: st.DataObject) -> None:
    made = data.draw(histories())
    tokens = data.draw(edits(made))
    form = data.draw(st.sampled_from(["given", "deep copy", "json"]))
    before = [says(message) for message in made.native]

    verdict = judged(made, tokens, form)

    is_identity = [token.old for token in tokens] == list(range(len(made.pieces))) and not any(t.kind for t in tokens)
    if isinstance(verdict, EditRule):
        event(verdict.value)
        assert not is_allowed(made, tokens), f"{verdict.value}: {tokens}"
    else:
        event(verdict.verdict)
        assert is_allowed(made, tokens), tokens
        assert (verdict.verdict == "no-op") == is_identity
        assert why_unsendable(verdict.messages) is None
        assert [m for m, _ in DIALECT.settle(verdict.messages)] == list(verdict.messages), "not in normal form"
        assert len(verdict.entries) == len(verdict.messages)
    assert [says(message) for message in made.native] == before, "the stored messages were touched"


@given(histories(), st.integers(0, 5))
def test_keeping_recent_groups_is_always_valid_and_keeps_no_more(made: MadeHistory, n: int) -> None:
    request = request_for(made.native, request_index=made.request_index)
    kept: list[ModelMessage] = []

    def processor(ctx: Context) -> list[ModelMessage]:
        kept.extend(ctx.keep_recent_groups(n))
        return kept

    outcome = run(request, processor)
    free = [number for number, group in enumerate(made.groups) if not group.protected]
    gone = set(free[: max(len(free) - n, 0)])
    assert (outcome.verdict == "no-op") == (not gone)
    expected = [m for number, group in enumerate(made.groups) if number not in gone for m in group.messages]
    assert [says(message) for message in kept] == [says(message) for message in expected]


def named(groups: Iterable[HistoryGroup]) -> dict[str, object]:
    """The origins of groups by id, but for system messages: neighbours become one in Pydantic AI's normal form."""
    return {group.group_id: group.origins for group in groups if group.protected_reasons != ("system",)}


@given(st.data())
def test_a_kept_group_keeps_its_id_and_origins_whatever_goes_around_it(data: st.DataObject) -> None:
    made = data.draw(histories())
    request = request_for(made.native, entries_of(made.native, "run-1"), request_index=made.request_index)
    n = data.draw(st.integers(0, 3))
    seen: dict[str, object] = {}

    def processor(ctx: Context) -> list[ModelMessage]:
        dropped = [group for group in ctx.groups if group.closed and not group.protected][n:]
        seen.update(named(group for group in ctx.groups if group not in dropped))
        return [
            message
            for group in ctx.groups
            if group not in dropped
            for message in ctx.messages[group.entry_start : group.entry_end]
        ]

    outcome = run(request, processor)
    view = view_of(DIALECT, outcome.messages, outcome.entries, request_index=made.request_index)
    assert named(find_groups(DIALECT, view)) == seen
