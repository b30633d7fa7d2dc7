"""One model request as the LangChain adapter makes it: edited, put in the form that is sent, sent by LangChain."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from langchain_anthropic import ChatAnthropic
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI

from laneway.activities.langchain_compaction import let_models_compact
from laneway.activities.langchain_editing import NodeRequest, describe, edit
from laneway.activities.langchain_models import IN_LANE_REQUEST
from laneway.activities.langchain_request import RequestForm, request_form
from laneway.activities.langchain_traits import traits_of
from laneway.history.editing import EditOutcome
from laneway.history.origins import EntryMetadata
from laneway.history.scopes import HistoryProcessingInForce

from tests.support.clients import langchain_anthropic, langchain_openai
from tests.support.provider import ProviderServer

TURN = "turn-9"


@tool
def stock(q: str) -> str:
    """Count what is left."""
    return f"{q}: 4 left"


def openai_model(server: ProviderServer, name: str = "gpt-5.2", **options: Any) -> ChatOpenAI:
    return langchain_openai(server, name, max_retries=0, **options)


def anthropic_model(server: ProviderServer, name: str = "claude-opus-5", **options: Any) -> ChatAnthropic:
    return langchain_anthropic(server, name, max_retries=0, **options)


def models(server: ProviderServer) -> dict[str, BaseChatModel]:
    """A model for each API, and one that binds its thinking."""
    return {
        "chat": openai_model(server, "gpt-5", use_responses_api=False),
        "responses": openai_model(server, use_responses_api=True),
        "messages": anthropic_model(server),
        "bound": anthropic_model(server, "claude-sonnet-5-5"),
    }


@dataclass(frozen=True)
class Asked:
    """What came of a request."""

    answer: AIMessage
    outcome: EditOutcome[BaseMessage]
    form: RequestForm

    @property
    def history(self) -> list[BaseMessage]:
        """The history after it."""
        return [*self.outcome.messages, self.answer]


def entries_of(messages: Sequence[BaseMessage], current: int) -> list[EntryMetadata]:
    """What a lane knows of messages of which those from `current` on are of the turn that runs."""
    known = [describe(message, TURN) for message in messages]
    earlier = [
        replace(entry, origins=tuple(replace(origin, run_id=None) for origin in entry.origins))
        for entry in known[:current]
    ]
    return [*earlier, *known[current:]]


async def ask(
    model: BaseChatModel,
    messages: Sequence[BaseMessage],
    processor: Any = None,
    *,
    current: int | None = None,
    request_index: int = 1,
    live: int = 0,
) -> Asked:
    """Send a history that ends with a request; the turn's messages begin at `current`, where not with the last."""
    request = NodeRequest(
        messages=messages,
        entries=entries_of(messages, len(messages) - 1 if current is None else current),
        turn_id=TURN,
        request_index=request_index,
        cache_epoch=0,
        history_version="v1",
        live=live,
        model=traits_of([model]),
    )
    outcome = await edit(request, HistoryProcessingInForce(processor, None), owner="adapter")
    if outcome.verdict == "accepted":
        live = len(outcome.messages)
    form = request_form(outcome.messages, live=live)
    let_models_compact()
    in_lane = IN_LANE_REQUEST.set(True)
    try:
        answer = await model.bind_tools([stock]).ainvoke(form.messages)
    finally:
        IN_LANE_REQUEST.reset(in_lane)
    assert isinstance(answer, AIMessage)
    return Asked(answer, outcome, form)


async def converse(model: BaseChatModel, prompts: Iterable[str]) -> list[BaseMessage]:
    """A conversation as lanes have it: each prompt with its tool calls up to its answer."""
    history: list[BaseMessage] = []
    for prompt in prompts:
        start = len(history)
        history.append(HumanMessage(prompt, id=prompt))
        while True:
            history = (await ask(model, history, current=start, request_index=len(history) - start)).history
            answer = history[-1]
            assert isinstance(answer, AIMessage)
            if not answer.tool_calls:
                break
            history += [ToolMessage(stock.invoke(c["args"]), tool_call_id=str(c["id"])) for c in answer.tool_calls]
    return history
