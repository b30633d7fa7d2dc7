"""What the stock processors leave, sent by real SDKs: the strict local provider takes it, whatever the history was."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import assume, given, settings

from tests.editing import langchain_steps, steps
from tests.editing.wire import (
    STEADY,
    Wire,
    has_later_system,
    knows_all_records,
    open_wire,
    signed_by,
    signed_in_graphs_by,
)
from tests.history.edits import entries_of
from tests.history.histories import MadeHistory, histories
from tests.history.twins import has_feedback, places, twins
from tests.processors.generated import processors
from tests.support.provider import always
from tests.wire.providers import APIS, Api

FEW = settings(STEADY, max_examples=20)


@pytest.fixture(scope="module")
def wire() -> Iterator[Wire]:
    with open_wire(always("fine")) as opened:
        yield opened


def _taken(wire: Wire, send: Callable[[], Any]) -> int:
    """How many of the requests of a step were made; none of them is refused."""
    first = len(wire.server.requests)
    wire.runner.run(send())
    sent = wire.sent_since(first)
    assert [record.refusal for record in sent] == [None] * len(sent)
    return len(sent)


@pytest.mark.parametrize("api", APIS)
def test_no_provider_refuses_what_a_processor_leaves(wire: Wire, api: Api) -> None:
    @FEW
    @given(histories(max_cycles=5), processors())
    def check(made: MadeHistory, processor: Any) -> None:
        messages = [signed_by(wire.server, message) for message in made.native]
        agent, entries, index = steps.agent_of(wire.models[api]), entries_of(messages), made.request_index
        assert _taken(wire, lambda: steps.ask(agent, messages, entries, processor, request_index=index)) == 1

    check()


@pytest.mark.parametrize("api", APIS)
def test_no_provider_refuses_what_a_processor_leaves_of_a_graphs_messages(wire: Wire, api: Api) -> None:
    @FEW
    @given(histories(max_cycles=5), processors())
    def check(made: MadeHistory, processor: Any) -> None:
        # A compaction or a search is of one provider only, and LangChain itself sends Anthropic's models no system text
        # after the first message.
        assume(not has_feedback(made.pieces) and knows_all_records(made))
        assume(api != "messages" or not has_later_system(made))
        messages = signed_in_graphs_by(wire.server, twins(made.pieces))
        current = places(made.pieces)[-len(made.groups[-1].messages) - 1]
        model, index = wire.langchain[api], made.request_index
        sending = lambda: langchain_steps.ask(model, messages, processor, current=current, request_index=index)  # noqa: E731
        assert _taken(wire, sending) == 1

    check()
