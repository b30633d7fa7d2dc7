"""What any store of threads must do, whoever wrote it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

from laneway.history.lanes import LaneKey
from laneway.history.threads import ThreadMessage, ThreadReader

Fill = Callable[[LaneKey, Sequence[ThreadMessage]], Awaitable[None]]


async def check_thread_store(store: ThreadReader, fill: Fill) -> None:
    """Check a store.

    Args:
        store: the store.
        fill: puts messages at the end of a lane's thread, by the store's own means.
    """
    lane, other = LaneKey("window", "agent", "c0"), LaneKey("window", "other", "c0")
    assert await store.list_messages(lane, 6) == []
    stored: list[ThreadMessage] = []
    for n in range(4):
        pair = [ThreadMessage("user", f"q{n}\n«ü» 数 {{}}"), ThreadMessage("assistant", f"assistant: re {n}")]
        await fill(lane, pair)
        stored += pair
    await fill(other, [ThreadMessage("user", "elsewhere")])
    for window in (-1, 0, -(10**9)):
        assert await store.list_messages(lane, window) == [], f"a window of {window} shows nothing, never everything"
    for window in range(1, len(stored) + 3):
        assert await store.list_messages(lane, window) == stored[-window:], "messages, not pairs, oldest first"
    assert await store.list_messages(lane, 10**9) == stored
    assert await store.list_messages(other, 6) == [ThreadMessage("user", "elsewhere")]
