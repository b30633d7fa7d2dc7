"""Threads: what stores give of them, and how they read."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from redis.asyncio import Redis

from laneway import TextWindow
from laneway.errors import ConfigurationError
from laneway.history.lanes import LaneKey
from laneway.history.store import HistoryStore
from laneway.history.threads import ThreadMessage, as_text, opening_of

from tests.windows.conformance import check_thread_store

CASES = [json.loads(path.read_text()) for path in sorted((Path(__file__).parent / "cases").glob("*.json"))]
LANE = LaneKey("cases", "agent", "c0")


async def test_the_store_conforms(store: HistoryStore, redis: Redis):
    async def fill(lane: LaneKey, messages: Sequence[ThreadMessage]) -> None:
        await redis.rpush(store.names(lane).thread, *(message.to_json() for message in messages))  # type: ignore[misc]

    await check_thread_store(store, fill)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["id"])
async def test_a_window_selects_what_the_case_says(store: HistoryStore, redis: Redis, case: dict[str, Any]):
    stored = [ThreadMessage(speaker, text) for speaker, text in case["stored"]]
    await redis.rpush(store.names(LANE).thread, *(message.to_json() for message in stored))  # type: ignore[misc]
    shown = await store.list_messages(LANE, case["window"])
    assert shown == [stored[index] for index in case["expect"]["selected"]]
    assert as_text(shown) == case["expect"]["text"]
    if shown:
        assert opening_of(shown, is_brief=False) + shown[-1].text == case["expect"]["text"]


def test_a_brief_comes_after_what_the_window_shows():
    shown = [ThreadMessage("user", "a"), ThreadMessage("assistant", "b")]
    assert opening_of(shown, is_brief=True) + "Look it up." == "user: a\nassistant: b\n\nLook it up."
    assert opening_of([], is_brief=True) == opening_of([], is_brief=False) == ""


@pytest.mark.parametrize("window", [True, "6", 1.5, None])
def test_a_window_that_is_no_number_is_refused(window: Any):
    with pytest.raises(ConfigurationError, match="TextWindow takes an int"):
        TextWindow(window)
