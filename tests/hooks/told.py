"""Hooks that can be imported, and remember what they were asked."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

from laneway import Deny, Edit

ASKED: list[tuple[str, Any]] = []


def remember(name: str, event: Any) -> None:
    ASKED.append((name, event))


async def upper(event: Any) -> Edit | None:
    remember("upper", event.prompt)
    return Edit(event.prompt.upper())


def no_secrets(event: Any) -> Deny | None:
    remember("no_secrets", event.prompt)
    assert threading.current_thread() is not threading.main_thread(), "a sync hook does not hold up the worker"
    return Deny("it has a secret") if "secret" in event.prompt else None


def note(event: Any) -> None:
    remember(type(event).__name__, event)


async def slow(event: Any) -> None:
    await asyncio.sleep(60)
