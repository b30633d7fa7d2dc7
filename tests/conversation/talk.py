"""One conversation from its first turn to its last: through the steps of a worker, over the wire, without Temporal.

The steps are those that Temporal would run, on the same store, one after the other; requests go through the real SDKs
to the strict local provider.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

from temporalio.testing import ActivityEnvironment

from laneway.activities.adapter import Adapter
from laneway.activities.agents import Agents
from laneway.activities.steps import Steps
from laneway.activities.wire import StepInput
from laneway.history.cache import HistoryCache
from laneway.history.store import HistoryStore

from tests.conversation import script
from tests.support.provider import ProviderServer, RequestRecord


@dataclass(frozen=True)
class Figures:
    """What came of a conversation.

    Attributes:
        turns: how many turns were committed: all of them, or those up to the one that the provider refused.
        requests: model requests, those for summaries included.
        summaries: requests for summaries.
        rewrites: how often the history was rewritten, by epochs.
        largest_tokens: the largest request, as the provider counts.
        input_tokens: of all requests together.
        cached_tokens: how many of them the provider had in its cache.
        known: how many facts the last request holds.
    """

    turns: int
    requests: int
    summaries: int
    rewrites: int
    largest_tokens: int
    input_tokens: int
    cached_tokens: int
    known: int

    @property
    def cached_share(self) -> float:
        """The part of the input that the provider had in its cache."""
        return self.cached_tokens / self.input_tokens


Watch = Callable[[int, Sequence[RequestRecord]], None]
"""Is shown the requests of each turn, by the turn's number."""


async def talk(
    adapter: Adapter[Any],
    server: ProviderServer,
    store: HistoryStore,
    *,
    turns: int = script.TURNS,
    reads: bool = False,
    watch: Watch = lambda number, requests: None,
) -> Figures:
    """Hold the conversation.

    Args:
        adapter: of the agent, whose model is the server's.
        server: a provider that runs the script.
        store: where the lane lives.
        turns: how many of the script's turns: the last ones, so that all end with the same question.
        reads: whether a book is read.
        watch: is shown what each turn has sent.
    """
    agents = Agents({"agent": adapter})
    key = agents.lane(uuid4().hex, "agent")
    steps = Steps(store, agents, cache=HistoryCache(10_000_000))
    committed = 0
    for number in range(script.TURNS - turns, script.TURNS):
        first = len(server.requests)
        prompt = adapter.encode_prompt(script.prompt_of(number, reads=reads))
        turn_id = f"turn-{number}"
        await store.inputs.put(key, turn_id, digest="d", prompt=prompt)
        step = 0
        while True:
            request = StepInput(key.conversation, key.agent, key.contract, turn_id, "d", step, committed)
            outcome = await ActivityEnvironment().run(steps.step, request)
            if outcome.s != "next":
                break
            step = (outcome.n or step) + 1
        record = await store.record(key, turn_id)
        assert record is not None
        if record.outcome != "committed":
            assert _is_over_context(server.requests[-1]), f"{record.error_type}: {record.error_message}"
            break
        watch(number, server.requests[first:])
        committed += 1
    await agents.close()
    head = await store.head(key)
    return _figures(server.requests, committed, head.checkpoint.epoch)


def _is_over_context(record: RequestRecord) -> bool:
    return "maximum context length" in (record.refusal or "")


def input_tokens(record: RequestRecord) -> int:
    """How large a request was, as the provider counted it."""
    return int(_usage(record)["prompt_tokens"])


def texts_of(record: RequestRecord) -> list[str]:
    """Everything that a request says."""
    return [entry.text for entry in record.request.transcript]


def is_summary(record: RequestRecord) -> bool:
    """Whether a request asks for a summary."""
    return "your summary will stand in its place" in record.request.prompt


def _usage(record: RequestRecord) -> Any:
    assert record.answer_body is not None
    return record.answer_body["usage"]


def _figures(requests: Sequence[RequestRecord], turns: int, epochs: int) -> Figures:
    answered = [record for record in requests if record.refusal is None]
    last = next(record for record in reversed(answered) if not is_summary(record))
    return Figures(
        turns=turns,
        requests=len(answered),
        summaries=sum(map(is_summary, answered)),
        rewrites=epochs,
        largest_tokens=max(map(input_tokens, answered)),
        input_tokens=sum(map(input_tokens, answered)),
        cached_tokens=sum(_usage(record)["prompt_tokens_details"]["cached_tokens"] for record in answered),
        known=len(script.facts_in(texts_of(last))),
    )
