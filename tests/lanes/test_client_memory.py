"""A client that meets lane after lane holds nothing for each."""

from __future__ import annotations

import asyncio
import gc
from uuid import uuid4

import pytest

from laneway import submissions

from tests.lanes.agents import Paced
from tests.support.bench import Bench


async def test_a_client_forgets_lanes_that_it_does_not_talk_to(
    bench: Bench, paced: Paced, monkeypatch: pytest.MonkeyPatch
):
    """Locks go with the submits that hold them; of what was met, so much is remembered and no more."""
    monkeypatch.setattr(submissions, "_MAX_KNOWN", 3)
    client = await bench.serve(paced.agents())
    talks = [client.conversation(uuid4().hex) for _ in range(6)]
    await asyncio.gather(*(talk.ask("agent", "hello") for talk in talks))
    gc.collect()
    held = client.submissions.__dict__
    sizes = {name: len(value) for name, value in held.items() if hasattr(value, "__len__") and name != "_claim"}
    assert sizes == {"_locks": 0, "_registered": 3, "_open": 3}
    for talk in talks:  # a lane that was forgotten is as good as one that was not
        assert (await talk.ask("agent", "again")).outcome == "committed"
