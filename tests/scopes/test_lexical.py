"""Scopes follow the text of a program, whatever its tasks do in between."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from laneway import AgentProfile, Hooks, LanewayClient, Settings
from laneway.activities.agents import Agents
from laneway.activities.turn_scope import TurnScope
from laneway.errors import ConfigurationError, InvalidInput
from laneway.history.scopes import INHERIT
from laneway.scopes import call_here, where

from tests.editing.agents import Recorder
from tests.hooks import told
from tests.scopes import named

_AGENTS = Agents({"agent": Recorder().adapter(named.own)})


def client_of(agents: Agents = _AGENTS) -> LanewayClient:
    """A client that is never connected: nothing here does any I/O."""
    nowhere: Any = None
    return LanewayClient(agents, Settings(), nowhere, nowhere, nowhere)


_CLIENT = client_of()


def in_force_here(client: LanewayClient) -> tuple[str | None, object, object, list[object], dict[str, object]]:
    """What a call made here would use: its conversation, and what goes with its turn."""
    arrived = TurnScope.from_data(call_here(client, client.agents, "agent").options.scope)
    scope = arrived.resolved(client.agents.registry)
    hooks = [hook for layer in scope.hooks for hook in layer.of("turn_committed")]
    return where(client), scope.processing.processor, scope.processing.condition, hooks, dict(scope.run.model_settings)


@dataclass(frozen=True)
class Block:
    """A scope of a drawn program, and what is inside."""

    enabled: Any
    processor: Any
    condition: Any
    conversation: str | None
    hook: Any
    model_settings: dict[str, object]
    spawned: bool
    inside: tuple[Block, ...]


def blocks(depth: int = 2) -> st.SearchStrategy[tuple[Block, ...]]:
    inside = st.just(()) if depth == 0 else blocks(depth - 1)
    block = st.builds(
        Block,
        st.sampled_from((INHERIT, INHERIT, True, False)),
        st.sampled_from((INHERIT, None, named.outer, named.inner, named.keep_none)),
        st.sampled_from((INHERIT, INHERIT, None, named.always)),
        st.sampled_from((None, None, "a", "b")),
        st.sampled_from((None, None, told.note, told.upper)),
        st.sampled_from(({}, {}, {"temperature": 0.0}, {"temperature": 1.0, "seed": 7})),
        st.booleans(),
        inside,
    )
    return st.lists(block, max_size=2).map(tuple)


@settings(max_examples=1000, deadline=None)
@given(programs=st.lists(blocks(), min_size=2, max_size=4), seed=st.integers(0, 2**32))
def test_concurrent_scopes_never_see_each_other(programs: Sequence[tuple[Block, ...]], seed: int):
    """A thousand interleavings of tasks that open, nest, leave and spawn: each sees what its own text says."""
    asyncio.run(_run(programs, Random(seed)))


async def _run(programs: Sequence[tuple[Block, ...]], order: Random) -> None:
    client = _CLIENT
    waiting: list[asyncio.Future[None]] = []
    failures: list[str] = []

    async def turn() -> None:
        """Let another task go on, as drawn."""
        mine: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        waiting.append(mine)
        await mine

    def check(
        enabled: bool | None,
        conversation: str | None,
        processor: Any,
        condition: Any,
        hooks: list[Any],
        model: dict[str, object],
    ) -> None:
        if condition not in (None, INHERIT) and processor is None:
            with pytest.raises(ConfigurationError):
                in_force_here(client)
            return
        found = in_force_here(client)
        if found != (conversation if enabled else None, processor, condition, hooks, model):
            failures.append(f"{found} where {(enabled, conversation, processor, condition, hooks, model)} holds")

    async def walk(
        program: tuple[Block, ...],
        enabled: bool | None,
        conversation: str | None,
        processor: Any,
        condition: Any,
        hooks: list[Any],
        model: dict[str, object],
    ) -> None:
        children: list[asyncio.Task[None]] = []
        for block in program:
            await turn()
            check(enabled, conversation, processor, condition, hooks, model)
            scope = client.history(
                block.conversation if block.conversation is not None else INHERIT,
                enabled=block.enabled,
                processor=block.processor,
                processor_condition=block.condition,
                hooks=None if block.hook is None else Hooks(turn_committed=block.hook),
                profile=AgentProfile(model_settings=block.model_settings) if block.model_settings else None,
            )
            async with scope:
                now = block.enabled
                if now is INHERIT:
                    now = True if block.conversation is not None or enabled is None else enabled
                inside = block.conversation or conversation
                if now and inside is None:
                    inside = where(client)  # a new one: nobody else may have it
                    assert inside is not None
                    assert inside not in fresh
                    fresh.add(inside)
                p, c = processor, condition
                if block.processor is not INHERIT:
                    p, c = block.processor, None
                if block.condition is not INHERIT:
                    c = block.condition
                h = hooks if block.hook is None else [*hooks, block.hook]
                m = {**model, **block.model_settings}
                check(now, inside, p, c, h, m)
                below = walk(block.inside, now, inside if now else None, p, c, h, m)
                if block.spawned:
                    # It goes on after the scope has been left, and is still inside by its text.
                    children.append(asyncio.create_task(below))
                else:
                    await below
                await turn()
                check(now, inside, p, c, h, m)
            check(enabled, conversation, processor, condition, hooks, model)
        await asyncio.gather(*children)

    fresh: set[str] = set()
    tasks = [asyncio.create_task(walk(program, None, None, INHERIT, INHERIT, [], {})) for program in programs]
    everything = asyncio.gather(*tasks)
    while not everything.done():
        await asyncio.sleep(0)
        if waiting:
            waiting.pop(order.randrange(len(waiting))).set_result(None)
    await everything
    assert not failures
    assert where(client) is None


async def test_a_decorated_function_is_a_scope_for_each_call():
    client = client_of()
    seen: list[str | None] = []

    @client.history(processor=named.inner)
    async def talk(n: int, *, twice: bool = False) -> int:
        """What it does."""
        seen.append(where(client))
        if twice:
            await talk(n)
        assert in_force_here(client)[1] is named.inner
        return n + 1

    assert await talk(1, twice=True) == 2
    assert await asyncio.gather(talk(1), talk(2)) == [2, 3]
    assert seen[0] == seen[1], "a call inside is inside the scope of the call around it"
    assert len(set(seen)) == 3
    assert (talk.__name__, talk.__doc__) == ("talk", "What it does.")
    assert where(client) is None
    with pytest.raises(ConfigurationError, match="no async function"):
        client.history()(lambda: None)  # type: ignore[arg-type, return-value]


async def test_a_scope_is_of_its_client():
    one, other = client_of(), client_of()
    async with one.history("mine"):
        assert (where(one), where(other)) == ("mine", None)
        async with other.history("theirs", enabled=False):
            assert (where(one), where(other)) == ("mine", None)


async def test_a_scope_is_left_when_an_error_leaves_it():
    client = client_of()
    with pytest.raises(ZeroDivisionError):
        async with client.history("a"), client.history(enabled=False):
            _ = 1 / 0
    assert where(client) is None


async def test_what_a_scope_gives_is_the_conversation():
    client = client_of()
    async with client.history("customer-42") as conversation:
        assert conversation.conversation_id == client.current.conversation_id == "customer-42"
        async with client.history(enabled=False) as nothing:
            with pytest.raises(InvalidInput, match="in no history scope"):
                await nothing.messages("agent")
            async with client.history("other") as other:
                assert other.conversation_id == "other"
        assert client.current.conversation_id == "customer-42"


@pytest.mark.parametrize("conversation", ["", " a", "laneway:once:x", 5])
async def test_a_conversation_that_cannot_be_one_is_refused(conversation: Any):
    with pytest.raises(InvalidInput):
        client_of().history(conversation)
    with pytest.raises(InvalidInput):
        client_of().conversation(conversation)
