"""Child processes that a failing test does not leave behind: a leak fails the test that runs when it is found."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any


@asynccontextmanager
async def child(*argv: str | Path, **options: Any) -> AsyncIterator[asyncio.subprocess.Process]:
    """A child process; at the end it is killed where it has not ended, and its pipes are closed.

    Args:
        argv: the program and its arguments.
        options: as `asyncio.create_subprocess_exec` takes them.
    """
    process = await asyncio.create_subprocess_exec(*argv, **options)
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
        # A grandchild may hold the pipes open: they are not read to their end.
        process._transport.close()  # type: ignore[attr-defined]
