"""Python's garbage collection, held back while many objects are made that all stay, and not needed for those that go.

The collector runs by the number of objects made, and each of its full passes looks at all there are: to decode a
history of 10,000 messages it would look at them several times over, in vain, and take longer than the decoding itself.

For the same reason it comes seldom, and counts no bytes. So a step leaves nothing that refers to itself in a circle.

And a worker with 50 turns at once makes enough for a full pass every few hundred turns: past some 400,000 objects of
the agent frameworks' modules, which are there for as long as the process is, and took a millisecond of each turn.
"""

from __future__ import annotations

import gc
import traceback
from collections.abc import Generator
from contextlib import contextmanager
from types import FrameType
from typing import cast

__all__ = ["collection_paused", "forget_frames", "set_aside"]


@contextmanager
def collection_paused() -> Generator[None]:
    """No collection within the block, which must not wait for anything: it is the whole process that does without."""
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def set_aside() -> None:
    """Have the collector look no more at what there is by now, once a process.

    What is garbage already is collected before; what becomes garbage later, and was there by now, is freed as long as
    it is in no cycle. Where somebody has done the same, or has switched the collector off, it stays as they want it.
    """
    if gc.isenabled() and not gc.get_freeze_count():
        gc.collect()
        gc.freeze()


def forget_frames(error: BaseException) -> None:
    """Drop the local variables of what an error went through, once it is dealt with; its trace stays readable.

    Among them is often the error itself: a circle that holds all of them, whole histories, until the collector comes.
    Whoever runs still, and dealt with it, is taken out of the trace.
    """
    waiting, seen = [error], set[int]()
    while waiting:
        one = waiting.pop()
        if id(one) in seen:
            continue
        seen.add(id(one))
        while one.__traceback__ is not None and _is_running(one.__traceback__.tb_frame):
            one.__traceback__ = one.__traceback__.tb_next
        traceback.clear_frames(one.__traceback__)
        waiting.extend(other for other in (one.__cause__, one.__context__) if other is not None)
        if isinstance(one, BaseExceptionGroup):
            waiting.extend(cast("BaseExceptionGroup[BaseException]", one).exceptions)


def _is_running(frame: FrameType) -> bool:
    try:
        frame.clear()
    except RuntimeError:
        return True
    return False
