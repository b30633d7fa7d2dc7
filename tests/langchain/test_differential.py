"""A graph on a lane is the graph itself: LangGraph with its own saver is the oracle, and workers forget all between
steps."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from redis.asyncio import Redis

from laneway import Settings
from laneway.connect import connect_redis

from tests.langchain.plans import GraphPlan, Log, graph_plans, plain_form
from tests.langchain.two_ways import Ended, Lane, run_plainly

_BOUNDED = settings(
    deadline=None,
    derandomize=True,
    phases=(Phase.explicit, Phase.generate),
    database=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow, HealthCheck.data_too_large],
)


class Lanes:
    """Runs plans both ways, from tests that are not coroutines."""

    def __init__(self, runner: asyncio.Runner, redis: Redis, prefix: str) -> None:
        self.runner, self.redis, self.prefix = runner, redis, prefix

    def plainly(self, plan: GraphPlan) -> list[Ended]:
        return self.runner.run(run_plainly(plan))

    def stepped(self, plan: GraphPlan, deaths: list[tuple[int, bool] | None] | None = None) -> list[Ended]:
        return self.runner.run(Lane(self.redis, self.prefix, plan, deaths=list(deaths or [])).run())


@pytest.fixture
def lanes(settings: Settings) -> Iterator[Lanes]:
    with asyncio.Runner() as runner:
        redis = runner.run(connect_redis(settings))
        yield Lanes(runner, redis, settings.redis_prefix)
        runner.run(redis.aclose())


def assert_same(plain: list[Ended], stepped: list[Ended], *, repeats: bool = False) -> None:
    """Compare two ways of running a plan, turn by turn."""
    for number, (one, other) in enumerate(zip(plain, stepped, strict=True)):
        assert other.error == one.error, f"error of turn {number}"
        names: dict[str, str] = {}
        mine: dict[str, str] = {}
        assert plain_form(other.messages, mine) == plain_form(one.messages, names), f"messages after turn {number}"
        assert plain_form(other.state, mine) == plain_form(one.state, names), f"state after turn {number}"
        if one.error is None:
            assert _in_order(other.log, repeats) == _in_order(one.log, repeats), f"what nodes saw in turn {number}"


def _in_order(log: Log, repeats: bool) -> list[str]:
    """A log in an order that does not depend on which of several parallel nodes was first."""
    seen = [repr(plain_form(list(entry))) for entry in log]
    return sorted(set(seen) if repeats else seen)


@given(plan=graph_plans())
@settings(_BOUNDED, max_examples=30)
def test_a_stepped_graph_is_the_uninterrupted_one(lanes: Lanes, plan: GraphPlan):
    """Messages, state, errors, and all that nodes and subgraphs are given, over several turns."""
    assert_same(lanes.plainly(plan), lanes.stepped(plan))


_DEATHS = st.lists(st.one_of(st.none(), st.tuples(st.integers(0, 3), st.booleans())), min_size=1, max_size=12)


@given(plan=graph_plans(), deaths=_DEATHS)
@settings(_BOUNDED, max_examples=25)
def test_a_graph_whose_workers_die_is_the_uninterrupted_one(lanes: Lanes, plan: GraphPlan, deaths: list):
    """As above, where attempts end before or after a write: what was kept is not run again."""
    assert_same(lanes.plainly(plan), lanes.stepped(plan, deaths), repeats=True)
