"""Where a process's own time goes: its processor time, and samples of what its Python code was at.

A sample is taken each time the process has used a little more processor time, in whatever thread, and is put down to
the library that the innermost frame of a library belongs to: what pydantic or json do for redis-py counts as
redis-py's. Where the main thread waits at that moment, it was Temporal's own threads that worked.
"""

from __future__ import annotations

import os
import resource
import signal
from collections import Counter
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType

__all__ = ["CORE", "LOOP", "OWN", "Sampled", "sampling"]

OWN, CORE, LOOP = "Laneway", "Temporal's SDK, its threads in Rust", "asyncio and its sockets"
_LIBRARIES = {
    "pydantic_ai": "Pydantic AI",
    "pydantic_graph": "Pydantic AI",
    "langgraph": "LangGraph",
    "langchain_core": "LangGraph",
    "langchain": "LangGraph",
    "redis": "redis-py",
    "temporalio": "Temporal's SDK, in Python",
}
_ROOT = Path(__file__).parents[2]
_OWN_FOLDERS = {"src", "workflows", "activities", "history"}
_INTERVAL_SECONDS = 0.001


@dataclass
class Sampled:
    """What was seen.

    Attributes:
        seconds: the processor time of the process.
        places: how often each library was at work.
        lines: how often each function of a library was, as `library: file:function`.
    """

    seconds: float = 0.0
    places: Counter[str] = field(default_factory=Counter[str])
    lines: Counter[str] = field(default_factory=Counter[str])


_known: dict[str, str | None] = {}


def _library(path: str) -> str | None:
    """Whose a file is; None for what works for others."""
    if path not in _known:
        _known[path] = _found(path)
    return _known[path]


def _found(path: str) -> str | None:
    _, packages, inside = path.rpartition("site-packages" + os.sep)
    if packages:
        return _LIBRARIES.get(Path(inside).parts[0])
    file = Path(path)
    if not file.is_relative_to(_ROOT):
        return None
    top = file.relative_to(_ROOT).parts[0]
    return OWN if top in _OWN_FOLDERS else "the bench itself" if top == "bench" else None


def _place(frame: FrameType | None) -> tuple[str, str]:
    inner = frame
    if inner is not None and inner.f_code.co_name == "select" and inner.f_code.co_filename.endswith("selectors.py"):
        return CORE, CORE
    # What the event loop does for nobody in particular has only the module that started it around it.
    while frame is not None and frame.f_code.co_name != "<module>":
        if (library := _library(frame.f_code.co_filename)) is not None:
            return library, f"{library}: {Path(frame.f_code.co_filename).name}:{frame.f_code.co_qualname}"
        frame = frame.f_back
    return LOOP, LOOP if inner is None else f"{LOOP}: {inner.f_code.co_qualname}"


@contextmanager
def sampling() -> Generator[Sampled]:
    """Take samples while the block runs, in the main thread. `seconds` is there when it has ended."""
    found = Sampled()

    def take(number: int, frame: FrameType | None) -> None:
        place, line = _place(frame)
        found.places[place] += 1
        found.lines[line] += 1

    former = signal.signal(signal.SIGPROF, take)
    signal.setitimer(signal.ITIMER_PROF, _INTERVAL_SECONDS, _INTERVAL_SECONDS)
    begun = _used()
    try:
        yield found
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, former)
        found.seconds = _used() - begun


def _used() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime
