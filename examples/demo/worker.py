"""The demo's worker process: `python -m examples.demo.worker SCRATCH FOLDER FRAMEWORK`. It is there to be killed.

It is an ordinary worker but for its store, which notes in the ledger what was staged and can wait after a stage: the
one point that no agent of a user's could reach.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from unittest.mock import patch

from redis.asyncio import Redis

import laneway.worker
from laneway.history.checkpoints import CheckpointRef, StoredEntry
from laneway.history.heads import Fence
from laneway.history.open_turns import OpenTurns
from laneway.history.records import LaneEvent
from laneway.history.requests import Answer, StoredRequest
from laneway.history.store import HistoryStore
from laneway.local import find_running

from examples.demo.app import build_app
from examples.demo.ledger import Gate, LineKind
from examples.demo.scratch import MODEL_VARIABLE, Framework, Scratch

READY = "ready"
"""What the worker writes, as a line, once it takes work."""


def _watched_store(scratch: Scratch) -> type[HistoryStore]:
    ledger, gates = scratch.ledger, scratch.gates

    class WatchedTurns(OpenTurns):
        async def stage(
            self,
            fence: Fence,
            name: str,
            value: bytes,
            *,
            entries: Sequence[StoredEntry] = (),
            after: CheckpointRef | None = None,
            requests: Sequence[StoredRequest] = (),
            answers: Mapping[str, Answer] | None = None,
            events: Sequence[LaneEvent] = (),
        ) -> tuple[bytes | None, CheckpointRef | None]:
            staged = await super().stage(
                fence, name, value, entries=entries, after=after, requests=requests, answers=answers, events=events
            )
            if name.startswith("j"):
                ledger.write(LineKind.TOOL_KEPT, turn=fence.turn_id, call=name)
            said = [calls for entry in entries if (calls := _calls_in(json.loads(entry.payload))) is not None]
            for calls in said:
                # A model request and its batch of tools take two steps.
                ledger.write(LineKind.MODEL_STAGED, turn=fence.turn_id, call=str(fence.step // 2 + 1), tools=calls)
            if said:
                await gates.hold(Gate.STAGED)
            return staged

    class WatchedStore(HistoryStore):
        def __init__(self, redis: Redis, **options: Any) -> None:
            super().__init__(redis, **options)
            self.turns = WatchedTurns(self.link)

    return WatchedStore


def _calls_in(message: dict[str, Any]) -> int | None:
    """How many tools a stored message calls; None where it is no answer of a model's."""
    if message.get("kind") == "response":
        return sum(part["part_kind"] == "tool-call" for part in message["parts"])
    return len(message["data"].get("tool_calls", [])) if message.get("type") in ("ai", "AIMessageChunk") else None


async def main(scratch: Scratch, root: Path, framework: Framework) -> None:
    """Work until SIGTERM."""
    # It is started together with the servers, since it takes a while to be imported.
    while (settings := await find_running(scratch.data_dir)) is None:  # noqa: ASYNC110 - nothing wakes a waiter
        await asyncio.sleep(0.05)
    app = build_app(root, scratch, os.environ.get(MODEL_VARIABLE) or None, framework)
    stopped = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopped.set)
    # Laneway has no hook for this, and needs none but here.
    with patch.object(laneway.worker, "HistoryStore", _watched_store(scratch)):
        async with app.worker(settings):
            print(READY, flush=True)
            await stopped.wait()


if __name__ == "__main__":
    asyncio.run(main(Scratch(Path(sys.argv[1])), Path(sys.argv[2]), Framework(sys.argv[3])))
