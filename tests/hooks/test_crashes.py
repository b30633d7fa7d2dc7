"""A worker dies around a hook: what the hook decided stands, and it is not asked again."""

from __future__ import annotations

import dataclasses
from itertools import product
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain_core.messages import AIMessage, BaseMessage
from redis.asyncio import Redis
from temporalio.testing import ActivityEnvironment

from laneway import Deny, Edit, Hooks, LangChainAdapter, Settings
from laneway.activities.agents import Agents
from laneway.activities.steps import Steps
from laneway.activities.wire import StepInput, StepOutcome
from laneway.history.cache import HistoryCache
from laneway.history.endings import Endings
from laneway.history.lanes import LaneKey
from laneway.history.open_turns import OpenTurns
from laneway.history.store import HistoryStore

from tests.editing.agents import Recorder, texts_of
from tests.langchain.graphs import ScriptedModel, called, said
from tests.support.stepped_lane import Died


class DyingStore(HistoryStore):
    """Dies once, before or after it did something."""

    def __init__(self, redis: Redis, *, prefix: str) -> None:
        super().__init__(redis, prefix=prefix)
        self.dies = ""
        self.turns, self.endings = DyingTurns(self), DyingEndings(self)

    def die(self, place: str) -> None:
        if self.dies == place:
            self.dies = ""
            raise Died


class DyingEndings(Endings):
    def __init__(self, store: DyingStore) -> None:
        super().__init__(store.link)
        self._die = store.die

    async def abort(self, *args: Any, **kwargs: Any) -> Any:
        self._die("before abort")
        record = await super().abort(*args, **kwargs)
        self._die("after abort")
        return record

    async def commit(self, *args: Any, **kwargs: Any) -> Any:
        record = await super().commit(*args, **kwargs)
        self._die("after commit")
        return record


class DyingTurns(OpenTurns):
    def __init__(self, store: DyingStore) -> None:
        super().__init__(store.link)
        self._die = store.die

    async def decide(self, fence: Any, name: str, *args: Any, **kwargs: Any) -> Any:
        hook = name.split(":")[1]
        self._die(f"before {hook}")
        held = await super().decide(fence, name, *args, **kwargs)
        self._die(f"after {hook}")
        return held

    async def stage(self, fence: Any, name: str, *args: Any, **kwargs: Any) -> Any:
        staged = await super().stage(fence, name, *args, **kwargs)
        self._die(f"after {name[0]}")
        self._die(f"after {name[:4]}")
        return staged

    async def note(self, fence: Any, *, fields: Any = (), events: Any = ()) -> Any:
        held = await super().note(fence, fields=fields, events=events)
        for name, _ in fields:
            self._die(f"after {name[0]}")
            self._die(f"after {name[:4]}")
        return held


class Graphs:
    """A LangChain agent that looks once, with the same words as `Recorder`'s."""

    def __init__(self) -> None:
        self.sent: list[int] = []

    def adapter(self, *, hooks: Hooks | None = None) -> LangChainAdapter:
        def answer(messages: list[BaseMessage]) -> AIMessage:
            self.sent.append(len(messages))
            return called(("look", {}, "call-1")) if len(messages) == 1 else said("done")

        def look() -> str:
            """Look."""
            return "seen"

        return LangChainAdapter(create_agent(ScriptedModel(answer=answer), [look]), hooks=hooks)


class Lane:
    """A lane whose steps are run here, each attempt by a worker of its own."""

    def __init__(
        self, redis: Redis, settings: Settings, conversation_id: str, hooks: Hooks, recorder: Any = None
    ) -> None:
        self.recorder = recorder or Recorder()
        self.store = DyingStore(redis, prefix=settings.redis_prefix)
        self._hooks = hooks
        self._conversation = conversation_id
        self.key: LaneKey = self._agents().lane(conversation_id, "agent")

    def _agents(self) -> Agents:
        return Agents({"agent": self.recorder.adapter(hooks=self._hooks)})

    async def attempt(self, request: StepInput, attempt: int) -> StepOutcome:
        environment = ActivityEnvironment()
        environment.info = dataclasses.replace(environment.info, attempt=attempt)
        agents = self._agents()
        steps = Steps(self.store, agents, cache=HistoryCache(0))
        try:
            return await environment.run(steps.step, request)
        finally:
            await agents.close()  # what they hold open would be torn down in the middle of another test

    async def run(self, prompt: str, dies: str) -> list[str]:
        """Take a turn whose worker dies once; how each activity ended, or `died`."""
        encoded = self.recorder.adapter().encode_prompt(prompt)
        await self.store.inputs.put(self.key, "turn", digest="d", prompt=encoded)
        self.store.dies = dies
        outcomes: list[str] = []
        request, attempt = StepInput(self.key.conversation, "agent", self.key.contract, "turn", "d"), 1
        while not outcomes or outcomes[-1] in ("next", "died"):
            try:
                outcome = await self.attempt(request, attempt)
                outcomes.append(outcome.s)
                request, attempt = dataclasses.replace(request, n=(outcome.n or request.n) + 1, f=outcome.f), 1
            except Died:
                outcomes.append("died")
                attempt += 1
            assert len(outcomes) < 10
        return outcomes


@pytest.fixture
def asked() -> list[str]:
    return []


DECIDED = ("user_prompt_submit", "before_model_request", "after_model_request", "before_tool", "after_tool")


@pytest.mark.parametrize(
    ("framework", "dies"),
    [
        *product(("pydantic_ai", "langchain"), (f"after {hook}" for hook in DECIDED)),
        *(("pydantic_ai", place) for place in ("after m", "after s", "after j", "after commit")),
        # What tasks wrote is the first thing in the journal, what came of tools the second.
        *(("langchain", place) for place in ("after s", "after j", "after j1:h", "after j1:g", "after commit")),
    ],
)
async def test_no_hook_that_decided_is_asked_again(
    redis: Redis, settings: Settings, conversation_id: str, asked: list[str], dies: str, framework: str
):
    """The edit of the first attempt is the one that stands; each hook is asked, and told, once."""

    def hook(name: str) -> Any:
        def remember(event: Any) -> Any:
            asked.append(name)
            return Edit(f"look edit {len(asked)}") if name == "prompt" else None

        return remember

    names = {
        "user_prompt_submit": "prompt",
        "before_model_request": "before",
        "after_model_request": "after",
        "before_tool": "before tool",
        "after_tool": "after tool",
        "turn_committed": "committed",
    }
    hooks: dict[str, Any] = {name: hook(short) for name, short in names.items()}
    recorder = Recorder() if framework == "pydantic_ai" else Graphs()
    lane = Lane(redis, settings, conversation_id, Hooks(**hooks), recorder)
    outcomes = await lane.run("look", dies)
    assert outcomes.count("died") == 1
    assert outcomes[-1] == "committed"
    assert asked == ["prompt", "before", "after", "before tool", "after tool", "before", "after", "committed"]
    adapter = lane.recorder.adapter()
    history = await lane.store.history(lane.key, (await lane.store.head(lane.key)).checkpoint)
    first = adapter.decode(history[0].payload)
    assert (first.text if isinstance(first, BaseMessage) else texts_of([first])[0]) == "look edit 1"
    assert len(lane.recorder.sent) == 2
    assert await lane.store.endings.owed(lane.key, "turn") is None


@pytest.mark.parametrize("framework", ["pydantic_ai", "langchain"])
async def test_a_tool_s_denial_stands_after_a_crash(
    redis: Redis, settings: Settings, conversation_id: str, asked: list[str], framework: str
):
    """The hook would say yes the second time; the tool is not run, and the model is told the first word."""

    def once(event: Any) -> Deny | None:
        asked.append("asked")
        return Deny("first word") if len(asked) == 1 else None

    recorder = Recorder() if framework == "pydantic_ai" else Graphs()
    lane = Lane(redis, settings, conversation_id, Hooks(before_tool=once), recorder)
    assert await lane.run("look", "after before_tool") == ["next", "died", "committed"]
    assert asked == ["asked"]
    adapter = lane.recorder.adapter()
    entries = await lane.store.history(lane.key, (await lane.store.head(lane.key)).checkpoint)
    assert "first word" in str([adapter.decode(entry.payload) for entry in entries])


@pytest.mark.parametrize("dies", ["before abort", "after abort"])
async def test_a_denial_stands_after_a_crash(
    redis: Redis, settings: Settings, conversation_id: str, asked: list[str], dies: str
):
    """A hook that would say yes the second time is not asked it."""

    def once(event: Any) -> Deny | None:
        asked.append("asked")
        return Deny("first word") if len(asked) == 1 else None

    def told(event: Any) -> None:
        asked.append(event.error_message)

    lane = Lane(redis, settings, conversation_id, Hooks(user_prompt_submit=once, turn_failed=told))
    assert await lane.run("hello", dies) == ["died", "failed"]
    record = await lane.store.record(lane.key, "turn")
    assert record is not None
    assert (record.error_type, record.error_message) == ("TurnDenied", "first word")
    assert asked == ["asked", "first word"]
    assert lane.recorder.sent == []
