"""What history editing costs before one model request, on a history of 10,000 messages.

Measured is the adapter's own pass between the framework's steps, and the whole step with it. The baseline is what an
edit of a plain list costs that checks nothing: a walk over the messages that finds the prompts, and a slice.
"""

from __future__ import annotations

import gc
import time
import tracemalloc
import warnings
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, cast

from pydantic_ai import Agent
from pydantic_ai.messages import (
    ModelMessage,
    ModelRequest,
    ModelResponse,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.usage import RequestUsage

from laneway import HistoryProcessorContext, PydanticAdapter
from laneway.activities.adapter import StepWork
from laneway.activities.journal import ToolJournal
from laneway.activities.pydantic_editing import Continuity, describe
from laneway.activities.pydantic_growth import Growth
from laneway.activities.pydantic_step import RunStep
from laneway.history.checkpoints import CheckpointRef
from laneway.history.origins import EntryMetadata

from bench.measures.setting import Setting
from bench.report import Section, Table, median_ms, spread_ms

KEPT_GROUPS = 100
_USAGE = RequestUsage(input_tokens=100, output_tokens=20)
_TEXT = "The quick brown fox jumps over the lazy dog, and then it does so once more. " * 3

Context = HistoryProcessorContext[ModelMessage]
Pass = Callable[[], Awaitable[object]]


@dataclass(frozen=True)
class Stored:
    """A history as a worker holds it."""

    messages: tuple[ModelMessage, ...]
    entries: tuple[EntryMetadata, ...]
    request: ModelRequest


def history(count: int) -> Stored:
    """Exchanges of a prompt and an answer, each third with a tool call before the answer."""
    messages: list[ModelMessage] = []
    turn = 0
    while len(messages) < count:
        turn += 1
        messages.append(ModelRequest([UserPromptPart(f"{turn}: {_TEXT}")]))
        if turn % 3 == 0:
            messages.append(ModelResponse([ToolCallPart("look", {"at": turn}, f"c{turn}")], usage=_USAGE))
            messages.append(ModelRequest([ToolReturnPart("look", {"seen": _TEXT}, f"c{turn}")]))
        messages.append(ModelResponse([TextPart(_TEXT)], usage=_USAGE))
    entries = tuple(describe(message, "earlier") for message in messages)
    return Stored(tuple(messages), entries, ModelRequest([UserPromptPart("now")]))


def adapter(processor: Any = None, condition: Any = None) -> PydanticAdapter[None, str]:
    async def answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        return ModelResponse([TextPart("done")], usage=_USAGE)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        return PydanticAdapter(
            Agent(FunctionModel(answer, model_name="bench")),
            history_processor=processor,
            history_processor_condition=condition,
        )


def keep(ctx: Context) -> list[ModelMessage]:
    return ctx.keep_recent_groups(KEPT_GROUPS)


def unchanged(ctx: Context) -> list[ModelMessage]:
    return ctx.messages


VARIANTS: dict[str, Callable[[], PydanticAdapter[None, str]]] = {
    "no processor": adapter,
    "condition answers False": lambda: adapter(keep, lambda state: False),
    "processor, no change": lambda: adapter(unchanged),
    f"edit that keeps {KEPT_GROUPS} groups": lambda: adapter(keep),
}


async def _unused(*_: Any) -> None:
    return None


def work_of(stored: Stored) -> StepWork[ModelMessage]:
    return StepWork(
        conversation="c",
        turn_id="t",
        step=0,
        attempt=1,
        prompt=b'"now"',
        history=stored.messages,
        entries=stored.entries,
        base_length=len(stored.messages),
        checkpoint=CheckpointRef(0, len(stored.messages), "0" * 32),
        extras={},
        lane_id="lane",
        state=None,
        journal=ToolJournal({}, _unused),
        stage=_unused,
        emit=lambda kind, data: None,
    )


def plain_pass(stored: Stored) -> Pass:
    """A list edited by hand: the last prompts are found by walking, and the list is cut there."""

    async def run() -> object:
        prompts = [at for at, message in enumerate(stored.messages) if isinstance(message.parts[0], UserPromptPart)]
        return [*stored.messages[prompts[-min(KEPT_GROUPS, len(prompts))] :], stored.request]

    return run


def lane_pass(stored: Stored, adapter: PydanticAdapter[None, str]) -> Pass:
    """The adapter's own pass, as it is made between the framework's steps."""
    deps = SimpleNamespace(model=adapter.agent.model)

    async def run() -> object:
        work = work_of(stored)
        growth = Growth(work, stored.messages, len(stored.messages), Continuity("lane:0"))
        state = SimpleNamespace(message_history=list(stored.messages), run_step=0)
        running = SimpleNamespace(ctx=SimpleNamespace(state=state, deps=deps))
        await RunStep(adapter._lane, work).edit_request(
            cast("Any", running), SimpleNamespace(request=stored.request), growth
        )
        return state

    return run


def plain_step(stored: Stored) -> Pass:
    agent = adapter().agent

    async def run() -> object:
        return await agent.run("now", message_history=list(stored.messages))

    return run


def lane_step(stored: Stored, adapter: PydanticAdapter[None, str]) -> Pass:
    async def run() -> object:
        return await adapter.step(work_of(stored))

    return run


async def timed(passes: dict[str, Pass], runs: int) -> dict[str, list[float]]:
    """Run each in turn, `runs` times after once unmeasured, so that a busy moment meets all alike."""
    taken: dict[str, list[float]] = {name: [] for name in passes}
    for number in range(runs + 1):
        for name, run in passes.items():
            gc.collect()
            begun = time.perf_counter()
            await run()
            if number:
                taken[name].append(time.perf_counter() - begun)
    return taken


async def peak_bytes(run: Pass) -> int:
    """What one run has allocated at most at one time."""
    gc.collect()
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        await run()
        return tracemalloc.get_traced_memory()[1] - before
    finally:
        tracemalloc.stop()


async def table(title: str, passes: dict[str, Pass], runs: int, note: str) -> Table:
    taken = await timed(passes, runs)
    base = next(iter(taken.values()))
    rows: list[Sequence[object]] = [
        [
            name,
            median_ms(seconds),
            spread_ms(seconds),
            f"×{median_ms(seconds) / (median_ms(base) or 1):.1f}",
            await peak_bytes(passes[name]),
        ]
        for name, seconds in taken.items()
    ]
    return Table(title, ["", "median ms", "10 % to 90 % ms", "of the first", "peak bytes allocated"], rows, note)


async def editing(setting: Setting) -> Section:
    """The pass before a request, and the whole step, with and without an edit."""
    stored, runs = history(setting.sizes.editing_messages), setting.sizes.editing_runs
    adapters = {name: make() for name, make in VARIANTS.items()}
    passes = {"a plain list, cut by hand": plain_pass(stored)}
    passes |= {name: lane_pass(stored, one) for name, one in adapters.items()}
    steps = {"agent.run, without Laneway": plain_step(stored)}
    steps |= {name: lane_step(stored, one) for name, one in adapters.items()}
    count = f"{len(stored.messages):,} messages; {runs} runs, in turn."
    section = Section("editing", "What an edit of history costs")
    section.tables.append(await table("The pass before a request", passes, runs, count))
    if setting.clock.has(20, "the whole step with an edit"):
        note = f"{count} Storage apart."
        section.tables.append(await table("The whole step, with a model that answers at once", steps, runs, note))
    return section
