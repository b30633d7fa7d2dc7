"""What an adapter's author runs to prove the adapter: each promise that Laneway builds on, without a server.

    async def test_my_adapter_conforms() -> None:
        report = await check_adapter(AdapterCase(make, text_prompt="Hello", tool_prompt="Add", asked=lambda: calls))
        report.raise_for_failures()

Every attempt at a step is given to an adapter that was made anew, and everything between two steps goes through the
stored form, as if another worker went on. Turns are stopped at each of their writes, and must then come out the same.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar, get_args

from laneway.activities.adapter import IMPORT_MARK, Adapter, digest_of
from laneway.activities.capabilities import CAPABILITIES
from laneway.activities.hooks import Deny, Hooks
from laneway.activities.scope_in_force import ScopeInForce
from laneway.activities.turn_hooks import TurnHooks
from laneway.errors import HistoryProcessingError, InvalidInput, LanewayError, TurnDenied
from laneway.history.context import HistoryProcessorContext
from laneway.history.origins import EntryMetadata, OriginKind
from laneway.history.scopes import HistoryProcessingSettings
from laneway.testing_lane import MemoryLane

__all__ = ["AdapterCase", "CheckFailed", "CheckResult", "ConformanceReport", "check_adapter"]

M = TypeVar("M")


@dataclass(frozen=True)
class AdapterCase(Generic[M]):
    """An adapter to check.

    Attributes:
        make: makes the adapter anew, its agent scripted: the same messages, the same answer.
        text_prompt: a prompt that the agent answers with text at once.
        tool_prompt: a prompt that leads it to call tools before it answers, one at a time where the framework runs
            several at once; None for an agent without tools.
        asked: how often the agents that `make` made have asked their model.
        ran: how often they have run a tool.
    """

    make: Callable[[], Adapter[M]]
    text_prompt: object
    asked: Callable[[], int]
    tool_prompt: object = None
    ran: Callable[[], int] = lambda: 0


class CheckFailed(AssertionError):
    """A promise that an adapter does not keep."""


@dataclass(frozen=True)
class CheckResult:
    """One check.

    Attributes:
        name: what was checked.
        passed: whether the adapter keeps it.
        message: what was found, where it does not.
    """

    name: str
    passed: bool
    message: str = ""


@dataclass(frozen=True)
class ConformanceReport:
    """What all checks found."""

    results: Sequence[CheckResult]

    @property
    def failures(self) -> Sequence[CheckResult]:
        """The promises that are not kept."""
        return [result for result in self.results if not result.passed]

    def raise_for_failures(self) -> None:
        """Raise CheckFailed with everything that was found, if anything was."""
        if self.failures:
            raise CheckFailed("\n".join(f"{one.name}: {one.message}" for one in self.failures))


async def check_adapter(case: AdapterCase[Any]) -> ConformanceReport:
    """Check an adapter against every promise. What a check raises is that check's finding."""
    results: list[CheckResult] = []
    for name, check in _CHECKS.items():
        try:
            await check(case)
            results.append(CheckResult(name, passed=True))
        except Exception as error:
            found = str(error) if isinstance(error, CheckFailed) else f"{type(error).__name__}: {error}"
            results.append(CheckResult(name, passed=False, message=found))
    return ConformanceReport(results)


def _expect(holds: bool, message: str) -> None:
    if not holds:
        raise CheckFailed(message)


# What it says of itself -----------------------------------------------------------------------------------------------


async def _names(case: AdapterCase[Any]) -> None:
    adapter = case.make()
    name = adapter.shortname
    _expect(bool(name) and name.replace("_", "").isalnum() and name.islower(), f"shortname is {name!r}")
    unknown = set(adapter.capabilities) - CAPABILITIES
    _expect(not unknown, f"it declares capabilities that are none: {sorted(unknown)}")


async def _contract(case: AdapterCase[Any]) -> None:
    one, two = case.make().contract(), case.make().contract()
    _expect(digest_of(one) == digest_of(two), f"two adapters made alike have two contracts: {one!r}, {two!r}")
    _expect(json.loads(json.dumps(one)) == one, f"the contract is not what its JSON says: {one!r}")


async def _prompts(case: AdapterCase[Any]) -> None:
    adapter = case.make()
    blob = adapter.encode_prompt(case.text_prompt)
    _expect(blob == case.make().encode_prompt(case.text_prompt), "a prompt encodes in two ways")
    _expect(not blob.startswith(IMPORT_MARK), "a prompt looks like an import")
    again = adapter.encode_prompt(adapter.decode_prompt(blob))
    _expect(again == blob, f"a prompt that was decoded encodes as another one: {again!r}, {blob!r}")
    for bad in ("", " ", None, object()):
        try:
            adapter.encode_prompt(bad)
        except InvalidInput:
            continue
        raise CheckFailed(f"{bad!r} is taken for a prompt: raise InvalidInput")


# Turns ----------------------------------------------------------------------------------------------------------------


async def _text_turn(case: AdapterCase[Any]) -> None:
    lane = MemoryLane(case.make)
    before = case.asked()
    turn = await lane.turn(case.text_prompt, "turn-1")
    _expect(case.asked() - before == 1, f"{case.asked() - before} model requests were made for a plain answer")
    _expect(turn.usage.requests == 1, f"the usage says {turn.usage.requests} requests")
    _expect(
        len(lane.entries) >= 2, f"the history has {len(lane.entries)} messages: the prompt and the answer belong there"
    )
    await lane.turn(case.text_prompt, "turn-2")
    _expect(lane.kept_prefix, "the second turn changed what the first had committed, without an edit")


async def _stored_form(case: AdapterCase[Any]) -> None:
    lane, adapter = MemoryLane(case.make), case.make()
    for number, prompt in enumerate(_prompts_of(case)):
        await lane.turn(prompt, f"turn-{number}")
    for index, entry in enumerate(lane.entries):
        again = adapter.encode(adapter.decode(entry.payload))
        _expect(
            again == entry.payload, f"message {index} changes when it is stored again: {entry.payload!r}, {again!r}"
        )


async def _descriptions(case: AdapterCase[Any]) -> None:
    lane = MemoryLane(case.make)
    await lane.turn(_prompts_of(case)[-1], "the-turn")
    kinds: set[str] = set()
    for index, entry in enumerate(lane.entries):
        known = EntryMetadata.from_stored(entry.metadata)
        kinds.update(origin.kind for origin in known.origins)
        _expect(bool(known.origins), f"message {index} has no origin")
        _expect(all(origin.run_id == "the-turn" for origin in known.origins), f"message {index} is not of its turn")
        _expect(bool(known.estimated_tokens), f"message {index} has no estimate of its tokens")
    _expect({"user", "model"} <= kinds <= set(get_args(OriginKind)), f"the origins are {sorted(kinds)}")


async def _nothing_is_changed(case: AdapterCase[Any]) -> None:
    lane = MemoryLane(case.make)
    for number, prompt in enumerate(_prompts_of(case)):
        await lane.turn(prompt, f"turn-{number}")
    _expect(not lane.changed_in_place, "a step changed the messages that it was given, in place")


async def _resumption(case: AdapterCase[Any]) -> None:
    for prompt in _prompts_of(case):
        whole = MemoryLane(case.make)
        await whole.turn(case.text_prompt, "before")
        asked, ran = case.asked(), case.ran()
        writes = whole.writes
        expected = await whole.turn(prompt, "turn")
        asked, ran = case.asked() - asked, case.ran() - ran
        for stop in range(1, whole.writes - writes + 1):
            lane = MemoryLane(case.make)
            await lane.turn(case.text_prompt, "before")
            asked_before, ran_before = case.asked(), case.ran()
            found = await lane.turn(prompt, "turn", stop_at=lane.writes + stop)
            _expect(found.output == expected.output, f"stopped at write {stop}, the output is {found.output!r}")
            _expect(found.usage == expected.usage, f"stopped at write {stop}, the usage is {found.usage!r}")
            _expect(_comparable(lane) == _comparable(whole), f"stopped at write {stop}, the history is another one")
            made = case.asked() - asked_before
            _expect(made == asked, f"stopped at write {stop}, {made} model requests were made where {asked} are enough")
            made = case.ran() - ran_before
            _expect(made == ran, f"stopped at write {stop}, tools ran {made} times where {ran} are enough")


async def _imports(case: AdapterCase[Any]) -> None:
    lane, adapter = MemoryLane(case.make), case.make()
    await lane.turn(_prompts_of(case)[-1], "turn")
    messages = [adapter.decode(entry.payload) for entry in lane.entries]
    blob = adapter.encode_import(messages, repair=False)
    _expect(blob.startswith(IMPORT_MARK), f"an import begins with {blob[:20]!r}, not with {IMPORT_MARK!r}")
    again, known = case.make().decode_import(blob, "import")
    _expect(
        [adapter.encode(m) for m in again] == [entry.payload for entry in lane.entries],
        "an import is not what was given",
    )
    _expect(len(known) == len(again), "not every imported message is described")
    _expect(not adapter.repairs_of(blob), "a sound history was repaired")
    opened = MemoryLane(case.make)
    opened.open(again, known)
    await opened.turn(case.text_prompt, "next")
    try:
        adapter.encode_import(object(), repair=False)
    except LanewayError:
        return
    raise CheckFailed("anything is taken for a history: raise HistoryProcessingValidationError")


# What it declares -----------------------------------------------------------------------------------------------------


async def _history_processing(case: AdapterCase[Any]) -> None:
    if "history_processing" not in case.make().capabilities:
        return

    def forget(ctx: HistoryProcessorContext[Any]) -> list[Any]:
        return ctx.keep_recent_groups(0)

    def fails(ctx: HistoryProcessorContext[Any]) -> list[Any]:
        raise ValueError("no")

    lane = MemoryLane(case.make)
    await lane.turn(case.text_prompt, "turn-1")
    once = len(lane.entries)
    await lane.turn(case.text_prompt, "turn-2", scope=ScopeInForce(HistoryProcessingSettings(forget)))
    _expect(len(lane.entries) == once, f"{len(lane.entries)} messages are left where the processor kept one exchange")
    _expect(lane.epoch == 1, f"the rewrite led to cache epoch {lane.epoch}, not to 1")
    asked = case.asked()
    try:
        await lane.turn(case.text_prompt, "turn-3", scope=ScopeInForce(HistoryProcessingSettings(fails)))
    except HistoryProcessingError:
        _expect(case.asked() == asked, "the model was asked although the processor failed")
        return
    raise CheckFailed("a processor that failed did not fail the turn: raise HistoryProcessingError")


async def _hooks(case: AdapterCase[Any]) -> None:
    if "hooks" not in case.make().capabilities:
        return
    told: list[str] = []
    hooks = Hooks(
        before_model_request=lambda event: told.append("before"), after_model_request=lambda event: told.append("after")
    )
    await MemoryLane(case.make).turn(case.text_prompt, "turn", hooks=TurnHooks([hooks], turn_id="turn"))
    _expect(told == ["before", "after"], f"the hooks of a plain answer were called as {told}")
    asked = case.asked()
    deny = Hooks(before_model_request=lambda event: Deny("no"))
    try:
        await MemoryLane(case.make).turn(case.text_prompt, "turn", hooks=TurnHooks([deny], turn_id="turn"))
    except TurnDenied:
        _expect(case.asked() == asked, "the model was asked although a hook denied it")
        return
    raise CheckFailed("a model request that a hook denied did not end the turn")


async def _cancellation(case: AdapterCase[Any]) -> None:
    """A step that is cancelled ends, and a turn after it is as if it had not been."""
    lane = MemoryLane(case.make)
    for stop in (0, 1, 2):
        task = asyncio.create_task(lane.turn(_prompts_of(case)[-1], f"cancelled-{stop}"))
        for _ in range(stop):
            await asyncio.sleep(0)
        task.cancel()
        async with asyncio.timeout(10):
            await asyncio.gather(task, return_exceptions=True)
    lane = MemoryLane(case.make)
    await lane.turn(case.text_prompt, "turn")


def _prompts_of(case: AdapterCase[Any]) -> list[object]:
    return [case.text_prompt] if case.tool_prompt is None else [case.text_prompt, case.tool_prompt]


def _comparable(lane: MemoryLane[Any]) -> list[Sequence[tuple[str, str | None, str | None]]]:
    """A history without what differs by the time of day: where its messages come from."""
    known = [EntryMetadata.from_stored(entry.metadata) for entry in lane.entries]
    return [[(one.kind, one.tool_name, one.tool_call_id) for one in entry.origins] for entry in known]


_CHECKS: Mapping[str, Callable[[AdapterCase[Any]], Awaitable[None]]] = {
    "it has a short name, and declares capabilities that exist": _names,
    "its contract is JSON, and the same each time it is made": _contract,
    "a prompt has one stored form, and what is no prompt is refused": _prompts,
    "a plain answer takes one model request, and later turns only append": _text_turn,
    "a stored message is stored again as it was": _stored_form,
    "each message is described: its origins, its turn, its size": _descriptions,
    "what a step is given is not changed in place": _nothing_is_changed,
    "a turn that is stopped at any write goes on, repeats nothing and comes out the same": _resumption,
    "a history can be taken out and imported": _imports,
    "with `history_processing`, a processor's edit is stored, and its failure is the turn's": _history_processing,
    "with `hooks`, they are called around each model request, and can deny it": _hooks,
    "a step that is cancelled ends": _cancellation,
}
