"""Archival against a provider that refuses what providers refuse: every request of a long tool loop is taken."""

from __future__ import annotations

import re
from typing import Any

import pytest
from langchain.agents import create_agent

from laneway import HistoryArchiveSettings, LangChainAdapter, PydanticAdapter

from tests.support.bench import Bench
from tests.support.provider import call
from tests.wire.providers import FRAMEWORKS, Api, Framework, Wire, wire

SETTINGS = HistoryArchiveSettings(threshold_tokens=1_500, preserve_recent_tokens=300, minimum_reduction_tokens=300)
PAGES = 9


def read(n: int) -> str:
    """Read a page."""
    return f"PAGE-{n} " + "word " * 200


def reading(request: Any) -> Any:
    """The model: two pages at a time, then what the first archive holds. All by what the request says."""
    said = "\n".join(entry.text for entry in request.transcript)
    if "read returned: PAGE-" in said:
        return "done"
    page = max(map(int, re.findall(r"PAGE-(\d+) ", said)), default=1)
    if page < PAGES:
        return [call("read", {"n": page + 1}), call("read", {"n": page + 2})]
    found = re.search(r"ar-[0-9a-f]{16}", said)
    assert found is not None
    return call("read_archived", {"reference": found[0]})


def adapter(provider: Wire, api: Api, framework: Framework) -> Any:
    if framework == "langchain":
        graph = create_agent(provider.langchain_model(api), [read, *LangChainAdapter.archive_tools()])
        return LangChainAdapter(graph, history_archive=SETTINGS, stream=False)
    agent = provider.agent(api)
    agent.tool_plain(read)
    return PydanticAdapter(agent, history_archive=SETTINGS, stream=False)


@pytest.mark.parametrize("framework", FRAMEWORKS)
@pytest.mark.parametrize("api", ["chat", "messages"])
async def test_every_request_of_a_loop_that_is_archived_is_taken(
    bench: Bench, conversation_id: str, api: Api, framework: Framework
):
    """Parallel calls go with all of their results; what is read back is what was said, and the next turn goes on."""
    async with wire(reading) as provider:
        client = await bench.serve({"agent": adapter(provider, api, framework)})
        conversation = client.conversation(conversation_id)
        record = await (await conversation.submit("agent", "read it all")).committed()
        assert record.tally.edits
        assert [one.refusal for one in provider.server.requests if one.refusal] == []
        asked, told = provider.server.requests[-2:]
        assert len(str(asked.body)) < 0.7 * (PAGES - 1) * len(read(0)), "what the model is sent stays small"
        back = told.request.results[-1].text
        assert f"read returned: {read(2)}" in back
        assert f"read returned: {read(3)}" in back
        assert (await conversation.ask("agent", "and now?")).output == "done"
        assert "[Archive ar-" in str(provider.server.requests[-1].body)
