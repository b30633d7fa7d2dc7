"""LangChain's models against the strict provider: what validation accepts is taken, what it rejects is not sent."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage
from pydantic_ai.messages import ModelResponse

from laneway.errors import HistoryProcessingValidationError

from tests.editing.langchain_steps import ask, models
from tests.history.histories import MadeHistory, edits, histories
from tests.history.oracle import is_allowed
from tests.history.twins import has_feedback, places, returned, twins
from tests.support.provider import ProviderRequest, ProviderServer, RequestRecord, answer, call, thinking
from tests.support.provider.signatures import digest

STEADY = settings(
    derandomize=True,
    deadline=None,
    max_examples=15,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)


@dataclass
class Wire:
    """A provider and LangChain's models of it, on a loop of their own: hypothesis calls tests from sync code."""

    runner: asyncio.Runner
    server: ProviderServer
    models: dict[str, BaseChatModel]

    def sent_since(self, first: int) -> list[RequestRecord]:
        return self.server.requests[first:]


def thoughtful(request: ProviderRequest) -> Any:
    """Thinks, and calls the tool, where the prompt says so."""
    parts: list[Any] = [thinking("hm")] if "think" in request.prompt else []
    if "call" in request.prompt and request.step == 0:
        return answer(*parts, call("stock", {"q": "a"}), call("stock", {"q": "b"}))
    return answer(*parts, f"re: {request.prompt}")


@pytest.fixture(scope="module")
def wire() -> Iterator[Wire]:
    stack = AsyncExitStack()
    with asyncio.Runner() as runner:
        server = runner.run(stack.enter_async_context(ProviderServer(thoughtful)))
        yield Wire(runner, server, models(server))
        runner.run(stack.aclose())


def signed_by(server: ProviderServer, messages: list[BaseMessage]) -> list[BaseMessage]:
    """The messages with signatures that the provider has made."""
    signed: list[BaseMessage] = []
    for message in messages:
        if isinstance(message, AIMessage) and isinstance(message.content, list):
            content: list[Any] = []
            for block in message.content:
                if isinstance(block, dict) and block.get("signature"):
                    made = {"id": "t", "model": "m", "text": digest(block["thinking"])}
                    content.append({**block, "signature": server.apis.signer.issue(made)})
                else:
                    content.append(block)
            signed.append(message.model_copy(update={"content": content}))
        else:
            signed.append(message)
    return signed


def knows_all_records(made: MadeHistory) -> bool:
    """Whether every API takes the records in a history: a compaction or a search is of one provider only."""
    records = {"compaction", "builtin-tool-call"}
    return not any(
        part.part_kind in records for piece in made.pieces if isinstance(piece, ModelResponse) for part in piece.parts
    )


def has_later_system(made: MadeHistory) -> bool:
    return any(piece.parts[0].part_kind == "system-prompt" for piece in made.pieces[1:])


wire_histories = histories().filter(lambda made: not has_feedback(made.pieces) and knows_all_records(made))


@pytest.mark.parametrize("api", ["chat", "responses", "messages"])
def test_an_accepted_edit_of_any_history_is_taken_and_a_rejected_one_is_not_sent(wire: Wire, api: str) -> None:
    @STEADY
    @given(st.data())
    def check(data: st.DataObject) -> None:
        made = data.draw(wire_histories)
        # LangChain itself sends Anthropic's models no system text after the first message.
        assume(api != "messages" or not has_later_system(made))
        tokens = data.draw(edits(made))
        messages = signed_by(wire.server, twins(made.pieces))
        first = len(wire.server.requests)
        sending = ask(
            wire.models[api],
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
