"""LangChain's models against the strict provider: what validation accepts is taken, what it rejects is not sent."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage

from laneway.activities.langchain_request import request_form
from laneway.errors import HistoryProcessingValidationError

from tests.editing.langchain_steps import ask, converse, openai_model, stock
from tests.editing.wire import (
    STEADY,
    Wire,
    has_later_system,
    knows_all_records,
    open_wire,
    signed_in_graphs_by,
    thoughtful,
)
from tests.history.histories import edits, histories
from tests.history.oracle import is_allowed
from tests.history.twins import has_feedback, places, returned, twins
from tests.support.provider import ProviderServer

FEW = settings(STEADY, max_examples=25)


@pytest.fixture(scope="module")
def wire() -> Iterator[Wire]:
    with open_wire(thoughtful) as opened:
        yield opened


wire_histories = histories().filter(lambda made: not has_feedback(made.pieces) and knows_all_records(made))


@pytest.mark.parametrize("api", ["chat", "responses", "messages"])
def test_an_accepted_edit_of_any_history_is_taken_and_a_rejected_one_is_not_sent(wire: Wire, api: str) -> None:
    @FEW
    @given(st.data())
    def check(data: st.DataObject) -> None:
        made = data.draw(wire_histories)
        # LangChain itself sends Anthropic's models no system text after the first message.
        assume(api != "messages" or not has_later_system(made))
        tokens = data.draw(edits(made))
        messages = signed_in_graphs_by(wire.server, twins(made.pieces))
        first = len(wire.server.requests)
        sending = ask(
            wire.langchain[api],
            messages,
            lambda ctx: returned(ctx.messages, made.pieces, tokens),
            current=places(made.pieces)[-len(made.groups[-1].messages) - 1],
            request_index=made.request_index,
        )
        try:
            asked = wire.runner.run(sending)
        except HistoryProcessingValidationError:
            assert not is_allowed(made, tokens)
            assert wire.sent_since(first) == []
        else:
            assert is_allowed(made, tokens)
            assert [record.refusal for record in wire.sent_since(first)] == [None]
            ids = [message.id for message in asked.outcome.messages if message.id]
            assert len(ids) == len(set(ids))

    check()


# What LangChain would send, and no provider takes ---------------------------------------------------------------------

APIS = ["chat", "responses", "messages"]


async def _taken(model: BaseChatModel, server: ProviderServer, messages: list[BaseMessage]) -> tuple[bool, bool]:
    """Whether a history is taken as LangChain sends it, and as a lane has it sent."""
    taken: list[bool] = []
    for form in (messages, request_form(messages).messages):
        first = len(server.requests)
        try:
            await model.bind_tools([stock]).ainvoke(form)
        except Exception:  # whatever the integration raises for a refusal; the provider knows whether there was one
            assert server.requests[first:], "nothing was sent"
        taken.append([record.refusal for record in server.requests[first:]] == [None])
    return taken[0], taken[1]


def asked_twice(first: str, second: str) -> list[BaseMessage]:
    """Two exchanges with one call each."""
    return [
        HumanMessage("one"),
        calling(first),
        ToolMessage("4", tool_call_id=first, name="stock"),
        AIMessage("four"),
        HumanMessage("two"),
        calling(second),
        ToolMessage("5", tool_call_id=second, name="stock"),
        AIMessage("five"),
        HumanMessage("three"),
    ]


def calling(*ids: str, invalid: bool = False) -> AIMessage:
    if invalid:
        made: list[Any] = [{"id": one, "name": "stock", "args": "{", "error": "unreadable"} for one in ids]
        return AIMessage("", invalid_tool_calls=made)
    return AIMessage("", tool_calls=[{"id": one, "name": "stock", "args": {"q": one}} for one in ids])


@pytest.mark.parametrize("model_name", ["messages", "bound"])
@pytest.mark.parametrize("block", [{"type": "thinking", "thinking": "hm"}, {"type": "redacted_thinking"}])
def test_unsigned_thinking_is_refused_and_a_lane_leaves_it_out(wire: Wire, model_name: str, block: Any) -> None:
    messages = [HumanMessage("one"), AIMessage([block, {"type": "text", "text": "two"}]), HumanMessage("three")]
    alone = [HumanMessage("one"), AIMessage([block]), HumanMessage("three")]
    assert wire.runner.run(_taken(wire.langchain[model_name], wire.server, messages)) == (False, True)
    assert wire.runner.run(_taken(wire.langchain[model_name], wire.server, alone)) == (False, True)


@pytest.mark.parametrize("api", ["responses", "messages"])
def test_a_reused_call_id_breaks_a_history_and_a_lane_tells_the_calls_apart(wire: Wire, api: str) -> None:
    """Across exchanges: Anthropic refuses it, and to OpenAI's Responses LangChain does not send the second call."""
    assert wire.runner.run(_taken(wire.langchain[api], wire.server, asked_twice("x", "x"))) == (False, True)
    assert wire.runner.run(_taken(wire.langchain[api], wire.server, asked_twice("x", "y"))) == (True, True)


@pytest.mark.parametrize("api", APIS)
def test_two_calls_of_one_id_in_one_answer_are_both_sent_with_their_results(wire: Wire, api: str) -> None:
    results = [ToolMessage(f"{n} left", tool_call_id="x", name="stock") for n in (4, 5)]
    messages = [HumanMessage("both"), calling("x", "x"), *results]
    assert wire.runner.run(_taken(wire.langchain[api], wire.server, messages))[1]
    sent = str(wire.server.requests[-1].body)
    assert "4 left" in sent
    assert "5 left" in sent
    assert "x-2" in sent


@pytest.mark.parametrize("api", APIS)
def test_a_call_that_could_not_be_read_breaks_a_history_and_a_lane_answers_it(wire: Wire, api: str) -> None:
    """A graph with a tool node ends its turn there; LangChain then sends the call without an answer for ever."""
    messages = [HumanMessage("one"), calling("x", invalid=True), HumanMessage("well?")]
    assert wire.runner.run(_taken(wire.langchain[api], wire.server, messages)) == (False, True)


# Response ids ---------------------------------------------------------------------------------------------------------


def test_a_response_is_continued_until_history_is_rewritten_and_from_the_next_answer_on(wire: Wire) -> None:
    model = openai_model(wire.server, use_responses_api=True, use_previous_response_id=True)

    async def converse() -> list[dict[str, Any]]:
        history: list[BaseMessage] = []
        live = 0
        first = len(wire.server.requests)
        for prompt, processor in [
            ("call one", None),
            ("two", None),
            ("three", lambda ctx: ctx.keep_recent_groups(1)),
            ("four", None),
            ("five", lambda ctx: ctx.messages),
        ]:
            history.append(HumanMessage(prompt, id=prompt))
            index = 1
            while True:
                asked = await ask(model, history, processor, request_index=index, live=live)
                history = asked.history
                live = len(history) - 1 if asked.outcome.verdict == "accepted" else live
                if not asked.answer.tool_calls:
                    break
                index += 1
                history += [ToolMessage("4", tool_call_id=str(c["id"])) for c in asked.answer.tool_calls]
        return [record.body for record in wire.server.requests[first:]]

    bodies = wire.runner.run(converse())
    assert [record.refusal for record in wire.server.requests[-len(bodies) :]] == [None] * len(bodies)
    continued = ["previous_response_id" in body for body in bodies]
    #            one, its results, two, three (rewritten), four, five (a no-op)
    assert continued == [False, True, True, False, True, True]
    assert [len(body["input"]) for body in bodies] == [1, 2, 1, 3, 1, 1]


def test_without_a_lane_a_rewritten_history_is_ignored(wire: Wire) -> None:
    """What this is about: LangChain sends only what follows the newest response id, whatever was edited before it."""
    model = openai_model(wire.server, use_responses_api=True, use_previous_response_id=True)

    async def ask_once() -> dict[str, Any]:
        said = await model.ainvoke([HumanMessage("secret")])
        await model.ainvoke([HumanMessage("(removed)"), said, HumanMessage("well?")])
        return dict(wire.server.requests[-1].body)

    body = wire.runner.run(ask_once())
    assert "previous_response_id" in body
    assert "(removed)" not in str(body["input"])


# Real conversations ---------------------------------------------------------------------------------------------------

PROMPTS = ["think one", "two", "call three", "think, call four", "think six"]


@st.composite
def plans(draw: st.DrawFn) -> list[tuple[str, int]]:
    """What to do to which group, and a cut inside one now and then."""
    kinds = st.sampled_from(["drop", "drop", "note", "summary", "swap", "cut"])
    return draw(st.lists(st.tuples(kinds, st.integers(0, len(PROMPTS) - 1)), min_size=1, max_size=3))


def edited(ctx: Any, plan: list[tuple[str, int]]) -> list[BaseMessage]:
    pieces = [ctx.messages[group.entry_start : group.entry_end] for group in ctx.groups]
    order = list(range(len(pieces)))
    for kind, at in plan:
        match kind:
            case "drop":
                pieces[at] = []
            case "note":
                pieces[at] = [HumanMessage(f"note {at}"), *pieces[at]]
            case "summary":
                pieces[at] = [HumanMessage(f"what was {at}?"), AIMessage(f"it was {at}")]
            case "swap":
                order[at], order[max(at - 1, 0)] = order[max(at - 1, 0)], order[at]
            case _:
                pieces[at] = pieces[at][1:]
    return [message for at in order for message in pieces[at]]


@pytest.mark.parametrize("api", ["chat", "responses", "messages", "bound"])
def test_an_edit_of_a_real_conversation_with_reasoning_is_taken_or_not_sent(wire: Wire, api: str) -> None:
    """Reasoning items keep their followers, signatures their text; bound blocks are released where they must be."""
    history = [*wire.runner.run(converse(wire.langchain[api], PROMPTS)), HumanMessage("now think")]
    verdicts: list[str] = []

    @FEW
    @given(plans())
    def check(plan: list[tuple[str, int]]) -> None:
        first = len(wire.server.requests)
        try:
            asked = wire.runner.run(ask(wire.langchain[api], history, lambda ctx: edited(ctx, plan)))
        except HistoryProcessingValidationError:
            verdicts.append("rejected")
            assert wire.sent_since(first) == []
        else:
            receipt = asked.outcome.receipt
            verdicts.append("released" if receipt is not None and receipt.released_reasoning else "taken")
            assert [record.refusal for record in wire.sent_since(first)] == [None]

    check()
    assert {"rejected", "taken" if api != "bound" else "released"} <= set(verdicts)
    assert ("released" in verdicts) == (api == "bound")
