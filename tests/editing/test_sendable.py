"""Random edits on the wire: what validation accepts no provider refuses, what it rejects reaches none.

The messages are mapped by the framework's own models and sent by the real SDKs to the strict local provider.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st
from pydantic_ai.messages import ModelMessage, ModelRequest, ModelResponse, TextPart, UserPromptPart
from pydantic_ai.models import Model

from laneway.errors import HistoryProcessingValidationError

from tests.editing.steps import agent_of, ask
from tests.editing.wire import MODELS, STEADY, Wire, open_wire, signed_by, thoughtful
from tests.history.edits import Context, entries_of
from tests.history.histories import MadeHistory, edits, histories
from tests.history.oracle import is_allowed
from tests.history.test_properties import returned

FEW = settings(STEADY, max_examples=40)


@pytest.fixture(scope="module")
def wire() -> Iterator[Wire]:
    with open_wire(thoughtful) as opened:
        yield opened


@pytest.mark.parametrize("api", ["chat", "responses", "messages"])
def test_an_accepted_edit_of_any_history_is_taken_and_a_rejected_one_is_not_sent(wire: Wire, api: str) -> None:
    @FEW
    @given(st.data())
    def check(data: st.DataObject) -> None:
        made = data.draw(histories())
        tokens = data.draw(edits(made))
        made = MadeHistory(
            [replace(group, messages=[signed_by(wire.server, m) for m in group.messages]) for group in made.groups],
            made.request_index,
            [signed_by(wire.server, message) for message in made.native],
        )
        form = data.draw(st.sampled_from(["given", "deep copy", "json"]))
        first = len(wire.server.requests)
        sending = ask(
            agent_of(wire.models[api]),
            made.native,
            entries_of(made.native),
            lambda ctx: returned(ctx, tokens, form),
            request_index=made.request_index,
        )
        try:
            wire.runner.run(sending)
        except HistoryProcessingValidationError as refused:
            event(str(refused.rule))
            assert not is_allowed(made, tokens)
            assert wire.sent_since(first) == []
        else:
            assert is_allowed(made, tokens)
            assert [record.refusal for record in wire.sent_since(first)] == [None]

    check()


PROMPTS = ["think one", "two", "call three", "think, call four", "five", "think six", "call seven"]


async def _conversation(model: Model) -> list[ModelMessage]:
    agent, history = agent_of(model), list[ModelMessage]()
    for prompt in PROMPTS:
        history = (await agent.run(prompt, message_history=history)).all_messages()
    return [*history, ModelRequest([UserPromptPart("now think")])]


@st.composite
def plans(draw: st.DrawFn) -> list[tuple[str, int]]:
    """What to do to which group, and a cut inside one now and then."""
    kinds = st.sampled_from(["drop", "drop", "note", "summary", "swap", "cut"])
    return draw(st.lists(st.tuples(kinds, st.integers(0, len(PROMPTS) - 1)), min_size=1, max_size=4))


def edited(ctx: Context, plan: list[tuple[str, int]]) -> list[ModelMessage]:
    pieces = [ctx.messages[group.entry_start : group.entry_end] for group in ctx.groups]
    order = list(range(len(pieces)))
    for kind, at in plan:
        match kind:
            case "drop":
                pieces[at] = []
            case "note":
                pieces[at] = [ModelRequest([UserPromptPart(f"note {at}")]), *pieces[at]]
            case "summary":
                summary = ModelResponse([TextPart(f"it was {at}")])
                pieces[at] = [ModelRequest([UserPromptPart(f"what was {at}?")]), summary]
            case "swap":
                order[at], order[max(at - 1, 0)] = order[max(at - 1, 0)], order[at]
            case _:
                pieces[at] = pieces[at][1:]
    return [message for at in order for message in pieces[at]]


@pytest.mark.parametrize("api", list(MODELS))
def test_an_edit_of_a_real_conversation_with_reasoning_is_taken_or_not_sent(wire: Wire, api: str) -> None:
    """Reasoning items keep their followers, signatures their text; bound blocks are released where they must be."""
    history = wire.runner.run(_conversation(wire.models[api]))
    verdicts: list[str] = []

    @FEW
    @given(plans())
    def check(plan: list[tuple[str, int]]) -> None:
        first = len(wire.server.requests)
        sending = ask(
            agent_of(wire.models[api]), history, entries_of(history, "earlier"), lambda ctx: edited(ctx, plan)
        )
        try:
            result = wire.runner.run(sending)
        except HistoryProcessingValidationError:
            verdicts.append("rejected")
            assert wire.sent_since(first) == []
        else:
            released = any(receipt.released_reasoning for receipt in result.edits)
            verdicts.append("released" if released else "taken")
            assert [record.refusal for record in wire.sent_since(first)] == [None]

    check()
    assert set(verdicts) >= {"rejected", "taken"}
    assert ("released" in verdicts) == (api == "bound")
