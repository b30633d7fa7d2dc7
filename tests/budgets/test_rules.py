"""How budgets nest, and what they say when they forbid."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from laneway import RequestBudget
from laneway.errors import ConfigurationError
from laneway.history.budget import BudgetScope, Headroom, Spent, headroom_of, scopes_from_json, scopes_to_json
from laneway.history.options import TurnOptions

LIMIT = st.none() | st.integers(0, 10**9)
BUDGETS = st.builds(RequestBudget, LIMIT, LIMIT, LIMIT, LIMIT)
NAMES = ("max_request_tokens", "max_total_input_tokens", "request_limit", "tool_call_limit")


@given(BUDGETS, BUDGETS, BUDGETS)
def test_an_inner_budget_narrows_and_never_raises(outer: RequestBudget, inner: RequestBudget, last: RequestBudget):
    both = outer.narrowed(inner)
    for name in NAMES:
        limits = [limit for one in (outer, inner) if (limit := getattr(one, name)) is not None]
        assert getattr(both, name) == (min(limits) if limits else None)
    assert both == inner.narrowed(outer)
    assert both.narrowed(last) == outer.narrowed(inner.narrowed(last))
    assert both.narrowed(None) == both.narrowed(RequestBudget()) == both


@given(BUDGETS, BUDGETS, st.integers(0, 5), st.booleans())
def test_what_a_turn_goes_by_is_stored_and_read_as_it_was(
    budget: RequestBudget, conversation: RequestBudget, depth: int, is_brief: bool
):
    options = TurnOptions(budget, conversation, depth, is_brief)
    assert TurnOptions.from_json(options.to_json()) == options
    scopes = (BudgetScope("turn", budget, depth), BudgetScope("conversation", conversation))
    assert scopes_from_json(scopes_to_json(scopes)) == scopes


def test_nothing_is_stored_of_a_turn_without_options():
    assert TurnOptions().to_json() == ""
    assert TurnOptions.from_json(None) == TurnOptions()


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("value", [-1, True, 1.5, "10"])
def test_a_limit_that_is_none_is_refused_by_name(name: str, value: Any):
    with pytest.raises(ConfigurationError, match=f"{name} is {value!r}"):
        RequestBudget(**{name: value})


def test_headroom_is_of_what_is_counted_and_never_negative():
    scope = BudgetScope("conversation", RequestBudget(1_000, 500, 3, None))
    left = headroom_of(scope, Spent(requests=2, tool_calls=9, input_tokens=700))
    assert left == [
        Headroom("conversation", "request_limit", 3, 2),
        Headroom("conversation", "max_total_input_tokens", 500, 700),
    ]
    assert [one.remaining for one in left] == [1, 0]
