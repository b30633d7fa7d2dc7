"""Python's garbage collection, held back while many objects are made that all stay.

The collector runs by the number of objects made, and each of its full passes looks at all there are: to decode a
history of 10,000 messages it would look at them several times over, in vain, and take longer than the decoding itself.
"""

from __future__ import annotations

import gc
from collections.abc import Generator
from contextlib import contextmanager

__all__ = ["collection_paused"]


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
