"""Random edits on the wire: what validation accepts no provider refuses, what it rejects reaches none.

The messages are mapped by the framework's own models and sent by the real SDKs to the strict local provider.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from typing import Any

import pytest
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st
from pydantic_ai.messages import ModelMessage, ModelRequest, ModelResponse, TextPart, ThinkingPart, UserPromptPart
from pydantic_ai.models import Model
from pydantic_ai.models.anthropic import AnthropicModel
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
from pydantic_ai.providers.anthropic import AnthropicProvider
from pydantic_ai.providers.openai import OpenAIProvider

from laneway.errors import HistoryProcessingValidationError

from tests.editing.steps import agent_of, ask
from tests.history.edits import Context, entries_of
from tests.history.histories import MadeHistory, edits, histories
from tests.history.oracle import is_allowed
from tests.history.test_properties import returned
from tests.support.clients import anthropic_client, openai_client
from tests.support.provider import ProviderRequest, ProviderServer, RequestRecord, answer, call, thinking
from tests.support.provider.signatures import digest

STEADY = settings(
    derandomize=True,
    deadline=None,
    max_examples=40,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
MODELS = {"chat": "gpt-5", "responses": "gpt-5.2", "messages": "claude-opus-5", "bound": "claude-sonnet-5-5"}


@dataclass
class Wire:
    """A provider and its models, on a loop of their own: hypothesis calls tests from sync code."""

    runner: asyncio.Runner
    server: ProviderServer
    models: dict[str, Model]

    def sent_since(self, first: int) -> list[RequestRecord]:
        return self.server.requests[first:]


@pytest.fixture(scope="module")
def wire() -> Iterator[Wire]:
    async def open_all() -> tuple[ProviderServer, dict[str, Model]]:
        server = await stack.enter_async_context(ProviderServer(thoughtful))
        openai, anthropic = openai_client(server), anthropic_client(server)
        stack.push_async_callback(openai.close)
        stack.push_async_callback(anthropic.close)
        by_openai = OpenAIProvider(openai_client=openai)
        by_anthropic = AnthropicProvider(anthropic_client=anthropic)
        return server, {
            "chat": OpenAIChatModel(MODELS["chat"], provider=by_openai),
            "responses": OpenAIResponsesModel(MODELS["responses"], provider=by_openai),
            "messages": AnthropicModel(MODELS["messages"], provider=by_anthropic),
            "bound": AnthropicModel(MODELS["bound"], provider=by_anthropic),
        }

    stack = AsyncExitStack()
    with asyncio.Runner() as runner:
        server, models = runner.run(open_all())
        yield Wire(runner, server, models)
        runner.run(stack.aclose())


def thoughtful(request: ProviderRequest) -> Any:
    """Thinks, and calls the tool, where the prompt says so."""
    parts: list[Any] = [thinking("hm")] if "think" in request.prompt else []
    if "call" in request.prompt and request.step == 0:
        return answer(*parts, call("stock", {"q": "a"}), call("stock", {"q": "b"}))
    return answer(*parts, f"re: {request.prompt}")


def signed_by(server: ProviderServer, message: ModelMessage) -> ModelMessage:
    """The message with signatures that the provider has made."""
    if not isinstance(message, ModelResponse):
        return message
    parts = [
        replace(part, signature=server.apis.signer.issue({"id": "t", "model": "m", "text": digest(part.content)}))
        if isinstance(part, ThinkingPart) and part.signature
        else part
        for part in message.parts
    ]
    return replace(message, parts=parts)


@pytest.mark.parametrize("api", ["chat", "responses", "messages"])
def test_an_accepted_edit_of_any_history_is_taken_and_a_rejected_one_is_not_sent(wire: Wire, api: str) -> None:
    @STEADY
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

    @STEADY
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
