"""Every combination of omitted, None and a value, in two scopes around a call and in the adapter."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from itertools import product
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain_core.messages import AIMessage

from laneway import LangChainAdapter
from laneway.activities.adapter import Adapter
from laneway.activities.agents import Agents
from laneway.activities.turn_scope import TurnScope, check_scope, processing_of
from laneway.errors import ConfigurationError, UnsupportedCapability
from laneway.history.options import TurnOptions
from laneway.history.scopes import (
    INHERIT,
    CompactionInForce,
    CompactionSettings,
    HistoryProcessingSettings,
    combined_compaction,
    in_force,
)
from laneway.scopes import ScopeSettings, scope_in_force

from examples.plain_adapter import PlainAdapter
from tests.editing.agents import Recorder
from tests.langchain.graphs import ScriptedModel
from tests.scopes import named

ADAPTERS: list[dict[str, Any]] = [
    {},
    {"processor": named.own},
    {"processor": named.own, "history_processor_condition": named.own_condition},
]


def expected(
    own: dict[str, Any], outer: tuple[object, object], inner: tuple[object, object]
) -> tuple[object, object] | None:
    """The rules, in words: None where they end in an error.

    A processor: the innermost that says one, or None, counts; else the adapter's. A condition: likewise, but one that
    stands outside of the scope which says the processor is not about it.
    """
    processor: object = own.get("processor")
    conditions: list[object] = [own.get("history_processor_condition")]
    for said, condition in (outer, inner):
        if said is not INHERIT:
            processor, conditions = said, [None]
        conditions.append(condition)
    condition = next(one for one in reversed(conditions) if one is not INHERIT)
    if condition is not None and processor is None:
        return None
    return processor, condition


def pydantic(own: dict[str, Any]) -> Adapter[Any]:
    return Recorder().adapter(own.get("processor"), **{k: v for k, v in own.items() if k != "processor"})


def langchain(own: dict[str, Any]) -> Adapter[Any]:
    names = {"processor": "history_processor"}
    graph = create_agent(ScriptedModel(answer=lambda messages: AIMessage("fine")), [])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        return LangChainAdapter(graph, **{names.get(key, key): value for key, value in own.items()})


@pytest.mark.parametrize("adapter_of", [pydantic, langchain])
def test_every_combination_of_two_scopes_and_the_adapter(adapter_of: Callable[[dict[str, Any]], Adapter[Any]]):
    """243 of them, through what goes to the worker: settings, references, JSON, and back."""
    outers = list(product((INHERIT, None, named.outer), (INHERIT, None, named.outer_condition)))
    inners = list(product((INHERIT, None, named.inner), (INHERIT, None, named.inner_condition)))
    errors = 0
    adapters = [(own, adapter_of(own)) for own in ADAPTERS]
    for (own, adapter), outer, inner in product(adapters, outers, inners):
        agents = Agents({"agent": adapter})
        layers = [ScopeSettings(processing=HistoryProcessingSettings(*said)) for said in (outer, inner)]
        wanted = expected(own, outer, inner)
        scope = scope_in_force(layers)
        if wanted is None:
            errors += 1
            with pytest.raises(ConfigurationError, match="history_processor"):
                check_scope(adapter, scope, agent="agent")
            continue
        check_scope(adapter, scope, agent="agent")
        text = TurnOptions(scope=TurnScope.of(scope, agents.registry).to_data()).to_json()
        arrived = TurnScope.from_data(TurnOptions.from_json(text).scope).resolved(agents.registry)
        found = in_force([processing_of(adapter), arrived.processing])
        assert (found.processor, found.condition) == wanted, (own, outer, inner)
    assert errors == 43


def test_nothing_is_sent_for_a_scope_that_says_nothing():
    agents = Agents({})
    assert TurnOptions(scope=TurnScope.of(scope_in_force([ScopeSettings()]), agents.registry).to_data()).to_json() == ""


@pytest.mark.parametrize(
    ("scopes", "found"),
    [
        ([], None),
        ([("native", INHERIT)], CompactionInForce()),
        ([("native", 1000)], CompactionInForce(1000)),
        ([("native", 1000), (INHERIT, INHERIT)], CompactionInForce(1000)),
        ([("native", 1000), (INHERIT, 2000)], CompactionInForce(2000)),
        ([("native", 1000), (INHERIT, None)], CompactionInForce()),
        ([("native", 1000), ("native", INHERIT)], CompactionInForce()),
        ([("native", 1000), ("disabled", INHERIT)], None),
        ([("native", 1000), (None, INHERIT)], None),
        ([("disabled", INHERIT)], None),
    ],
)
def test_compaction_is_inherited_like_a_processor_and_its_condition(scopes: list[Any], found: object):
    assert combined_compaction(CompactionSettings(*one) for one in scopes) == found


@pytest.mark.parametrize(
    "scopes",
    [
        [("disabled", 1000)],
        [(None, 1000)],
        [(INHERIT, 1000)],
        [("native", 1000), ("disabled", 5)],
        [("native", 0)],
        [("native", True)],
        [("sometimes", INHERIT)],
    ],
)
def test_a_threshold_without_compaction_is_an_error(scopes: list[Any]):
    with pytest.raises(ConfigurationError, match="compaction"):
        combined_compaction(CompactionSettings(*one) for one in scopes)


def test_an_adapter_that_cannot_edit_refuses_by_name():
    """A scope that switches processing off asks nothing of it."""

    async def answer(messages: Any) -> Any:
        raise AssertionError("nothing is sent")

    adapter = PlainAdapter(answer, name="none")
    for processor, condition in ((named.inner, INHERIT), (INHERIT, named.inner_condition)):
        scope = scope_in_force([ScopeSettings(processing=HistoryProcessingSettings(processor, condition))])
        with pytest.raises(UnsupportedCapability, match="'history_processing', which agent 'plain' does not have"):
            check_scope(adapter, scope, agent="plain")
    check_scope(adapter, scope_in_force([ScopeSettings(processing=HistoryProcessingSettings(None))]), agent="plain")
    scope = scope_in_force([ScopeSettings(compaction=CompactionSettings("native"))])
    with pytest.raises(UnsupportedCapability, match="native_compaction"):
        check_scope(adapter, scope, agent="plain")
