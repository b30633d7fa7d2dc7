"""The ways of keeping a history small, each with what the model must still know under it."""

from __future__ import annotations

import warnings
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Any, Literal

from langchain.agents import create_agent
from langchain_openai import ChatOpenAI
from pydantic_ai import Agent
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider

from laneway import (
    ClearToolResultsProcessor,
    HistoryArchiveSettings,
    LangChainAdapter,
    LimitWarnerProcessor,
    PydanticAdapter,
    SlidingWindowProcessor,
    SummarizationProcessor,
    TextWindow,
)
from laneway.activities.adapter import Adapter

from tests.conversation import script
from tests.support.clients import langchain_openai, openai_client
from tests.support.provider import ProviderServer

Framework = Literal["Pydantic AI", "LangGraph"]


@dataclass(frozen=True)
class Models:
    """The models of one provider: the conversation's own, and another one."""

    own: Any
    other: Any


@dataclass(frozen=True)
class Arm:
    """One way.

    Attributes:
        name: as the table has it.
        framework: whose agent it is.
        options: the adapter's, made with the models.
        recent: how many of the last turns the model must know in each request, the running one included; all where
            None.
        first: whether it must know the first turn as well.
        exactly: whether it knows nothing but that.
        reads: whether a book is read in the conversation, whose fact must be known at the end.
    """

    name: str
    options: Callable[[Models], dict[str, Any]]
    framework: Framework = "Pydantic AI"
    recent: int | None = None
    first: bool = False
    exactly: bool = False
    reads: bool = False

    @property
    def key(self) -> str:
        """Names it among all."""
        return f"{self.framework}: {self.name}"

    def known_in(self, number: int, *, first: int) -> set[str]:
        """The facts that the request of a turn must hold, in a conversation that began with turn `first`."""
        start = first if self.recent is None else max(number + 1 - self.recent, first)
        return script.planted(start, number + 1) | (script.planted(first, first + 1) if self.first else set())


ARCHIVE = HistoryArchiveSettings(threshold_tokens=4_000, preserve_recent_tokens=1_000, minimum_reduction_tokens=1_000)
CUT: dict[str, Any] = {"trigger": ("tokens", 6_000), "keep": ("tokens", 2_000)}


def _window(**options: Any) -> SlidingWindowProcessor:
    return SlidingWindowProcessor(**CUT, **options)


def _summary(model: Any) -> SummarizationProcessor:
    return SummarizationProcessor(model, **CUT, trim_tokens_to_summarize=None)


def _processed(*made: Any) -> dict[str, Any]:
    return {"history_processor": [*made]}


ARMS: tuple[Arm, ...] = (
    Arm("nothing", lambda models: {}),
    Arm("sliding window", lambda models: _processed(_window()), recent=7),
    Arm("sliding window, `keep_head=2`", lambda models: _processed(_window(keep_head=2)), recent=7, first=True),
    Arm("summary, by another model", lambda models: _processed(_summary(models.other))),
    Arm("summary, by the conversation's own model", lambda models: _processed(_summary(models.own))),
    Arm(
        "tool results cleared, then a summary",
        lambda models: _processed(ClearToolResultsProcessor(("tokens", 4_000), 2), _summary(models.other)),
    ),
    Arm(
        "tool results cleared, then a window",
        lambda models: _processed(ClearToolResultsProcessor(("tokens", 4_000), 2), _window()),
        recent=7,
    ),
    Arm(
        "sliding window, then a warning at 0.7 of the limit",
        lambda models: _processed(_window(), LimitWarnerProcessor(max_context_tokens=script.LIMIT_TOKENS)),
        recent=7,
    ),
    Arm("`TextWindow(6)`", lambda models: {"history": TextWindow(6)}, recent=3, exactly=True),
    Arm(
        "exact archival and a sliding window, with a book read in one turn",
        lambda models: {"history_archive": ARCHIVE, **_processed(_window())},
        recent=7,
        reads=True,
    ),
    Arm("sliding window", lambda models: _processed(_window()), "LangGraph", recent=7),
    Arm("summary, by another model", lambda models: _processed(_summary(models.other)), "LangGraph"),
    Arm("`TextWindow(6)`", lambda models: {"history": TextWindow(6)}, "LangGraph", recent=3, exactly=True),
    Arm(
        "exact archival and a sliding window, with a book read in one turn",
        lambda models: {"history_archive": ARCHIVE, **_processed(_window())},
        "LangGraph",
        recent=7,
        reads=True,
    ),
)


@asynccontextmanager
async def serving(arm: Arm) -> AsyncIterator[tuple[Adapter[Any], ProviderServer]]:
    """An adapter of an arm and the provider that its models are of."""
    # The ids are the same in each run: an estimate counts their letters and digits apart.
    server = ProviderServer(script.model, context_limit_tokens=script.LIMIT_TOKENS, run="talk")
    async with server, AsyncExitStack() as stack:
        with warnings.catch_warnings():
            # That a processor costs cached prefixes, which is measured here.
            warnings.simplefilter("ignore", UserWarning)
            yield await _adapter(arm, server, stack), server


async def _adapter(arm: Arm, server: ProviderServer, stack: AsyncExitStack) -> Adapter[Any]:
    if arm.framework == "LangGraph":
        models = Models(*(_chat(server, name) for name in ("gpt-5", "gpt-5-mini")))
        options = arm.options(models)
        tools = [look_up, *(LangChainAdapter.archive_tools() if "history_archive" in options else ())]
        graph: Any = create_agent(models.own, tools, system_prompt=SYSTEM)
        return LangChainAdapter(graph, stream=False, **options)
    client = openai_client(server)
    stack.push_async_callback(client.close)
    provider = OpenAIProvider(openai_client=client)
    models = Models(*(OpenAIChatModel(name, provider=provider) for name in ("gpt-5", "gpt-5-mini")))
    agent = Agent(models.own, instructions=SYSTEM)
    agent.tool_plain(look_up)
    return PydanticAdapter(agent, stream=False, **arm.options(models))


def _chat(server: ProviderServer, name: str) -> ChatOpenAI:
    return langchain_openai(server, name, use_responses_api=False)


SYSTEM = "You read old books with the user. Answer from them alone, and say so where you know nothing."


def look_up(page: int) -> str:
    """Look up a page."""
    return script.page(page)
