"""An agent on a lane is the agent itself: the uninterrupted run is the oracle, and workers forget all between steps."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from uuid import uuid4

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from pydantic_ai.messages import repair_messages
from redis.asyncio import Redis

from laneway import Settings
from laneway.activities.pydantic_run import as_loaded
from laneway.connect import connect_redis

from tests.adapters.scripted import Log, Plan, plain_form, plans
from tests.adapters.two_ways import Ended, Lane, run_plainly, run_through_temporal

_BOUNDED = settings(
    deadline=None,
    derandomize=True,
    phases=(Phase.explicit, Phase.generate),  # plans are read as they are: shrinking takes minutes
    database=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow, HealthCheck.data_too_large],
)


def _by_place(log: Log) -> Log:
    """A log in an order that does not depend on which of several parallel calls was started first."""
    return sorted(log, key=repr)


def _without_repeats(log: Log) -> Log:
    kept: dict[str, tuple] = {}
    for seen in log:
        kept.setdefault(repr(seen), seen)
    return _by_place(list(kept.values()))


def assert_same(plain: list[Ended], stepped: list[Ended], *, repeats: bool = False) -> None:
    """Compare two ways of running a plan, turn by turn."""
    for number, (one, other) in enumerate(zip(plain, stepped, strict=True)):
        assert other.error == one.error, f"error of turn {number}"
        assert (other.output, other.kind) == (one.output, one.kind), f"output of turn {number}"
        assert other.usage == one.usage, f"usage of turn {number}"
        # Neighbouring requests are stored as they were made; the framework sends them as one.
        assert plain_form(repair_messages(other.messages)) == plain_form(repair_messages(one.messages)), (
            f"messages after turn {number}"
        )
        # What prepares a tool is asked again by the worker that runs it, and must be told the same.
        for kind in ("model", "prepare", "rest"):
            ours, theirs = _of_kind(other, kind), _of_kind(one, kind)
            if kind == "prepare" or repeats:
                assert _without_repeats(ours) == _without_repeats(theirs), f"{kind} in turn {number}"
            else:
                assert _by_place(ours) == _by_place(theirs), f"{kind} in turn {number}"


def _of_kind(ended: Ended, kind: str) -> Log:
    log = [seen for seen in ended.log if (seen[0] if seen[0] in ("model", "prepare") else "rest") == kind]
    # Where a call fails, it is a matter of luck whether a thread beside it was begun.
    return log if ended.error is None else [seen for seen in log if seen[0] != "thread"]


@pytest.fixture
def lanes(settings: Settings) -> Iterator[Lanes]:
    with asyncio.Runner() as runner:
        redis = runner.run(connect_redis(settings))
        yield Lanes(runner, redis, settings)
        runner.run(redis.aclose())


class Lanes:
    """Runs plans both ways, from tests that are not coroutines."""

    def __init__(self, runner: asyncio.Runner, redis: Redis, settings: Settings) -> None:
        self.runner, self.redis, self.prefix = runner, redis, settings.redis_prefix
        self._settings = settings

    def plainly(self, plan: Plan) -> list[Ended]:
        return self.runner.run(run_plainly(plan))

    def stepped(self, plan: Plan, deaths: list[tuple[int, bool] | None] | None = None) -> list[Ended]:
        return self.runner.run(Lane(self.redis, self.prefix, plan, deaths=list(deaths or [])).run())

    def on_temporal(self, plan: Plan) -> list[Ended]:
        return self.runner.run(run_through_temporal(plan, self._settings, uuid4().hex))


@given(plan=plans())
@settings(_BOUNDED, max_examples=50)
def test_a_stepped_run_is_the_uninterrupted_one(lanes: Lanes, plan: Plan):
    """Messages, outputs, usage, errors, and all that tools, validators, instructions and the model are given."""
    assert_same(lanes.plainly(plan), lanes.stepped(plan))


_DEATHS = st.lists(st.one_of(st.none(), st.tuples(st.integers(0, 3), st.booleans())), min_size=1, max_size=12)


@given(plan=plans(max_turns=2), deaths=_DEATHS)
@settings(_BOUNDED, max_examples=40)
def test_a_run_whose_workers_die_is_the_uninterrupted_one(lanes: Lanes, plan: Plan, deaths: list):
    """As above, where attempts end before or after a write: what was staged or journaled is not done again."""
    assert_same(lanes.plainly(plan), lanes.stepped(plan, deaths), repeats=True)


@given(plan=plans(max_turns=2))
@settings(_BOUNDED, max_examples=8)
def test_a_turn_on_temporal_is_the_uninterrupted_run(lanes: Lanes, plan: Plan):
    """The same once more from the client, through the lane's workflow and its activities."""
    assert_same(lanes.plainly(plan), lanes.on_temporal(plan))


@given(plan=plans())
@settings(_BOUNDED, max_examples=25)
def test_a_stored_history_is_loaded_unchanged(lanes: Lanes, plan: Plan):
    """Earlier entries are rewritten for a changed system prompt only, and loading a history changes nothing."""
    lane = Lane(lanes.redis, lanes.prefix, plan)
    before: list[bytes] = []
    for number in range(len(plan.turns)):
        lanes.runner.run(lane.turn(number))
        head = lanes.runner.run(lane.store.head(lane.key))
        entries = [entry.payload for entry in lanes.runner.run(lane.store.history(lane.key, head.checkpoint))]
        adapter = lane.adapter()
        assert [adapter.encode(adapter.decode(entry)) for entry in entries] == entries
        loaded = as_loaded([adapter.decode(entry) for entry in entries], len(entries))
        assert as_loaded(loaded, len(loaded)) == loaded
        if plan.system_prompt != "dynamic":
            assert entries[: len(before)] == before
            assert head.checkpoint.epoch == 0
        before = entries
