"""Code of the user's that would end more than its turn: its own task, or the process.

asyncio does not keep a `SystemExit` to the task that raises it: it ends the event loop, and with it the worker and all
the turns that it runs; the worker that takes the step up ends as well. Frameworks run tools and nodes in tasks of their
own, and these in others. So inside of a step each task turns such an exit into an error, where it is raised.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Generator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Final

__all__ = ["UserCodeStopped", "exits_kept", "stopped_itself"]

_IN_STEP: Final[ContextVar[bool]] = ContextVar("laneway_in_step", default=False)


class UserCodeStopped(Exception):
    """Code of the user's wanted to end the process, or ended its own task.

    Args:
        where: what ran, as in `tool 'pay'`.
        cause: what it raised.
    """

    def __init__(self, where: str, cause: BaseException) -> None:
        if isinstance(cause, SystemExit):
            said = f"{where} wanted to end the process (SystemExit: {cause.code}): raise an error in place of that"
        else:
            said = (
                f"{where} ended with a CancelledError although nobody cancelled it: something that it waited for was "
                "cancelled. Catch that there"
            )
        super().__init__(said)


def stopped_itself(error: BaseException) -> bool:
    """Whether what ends the current task is of its own making: not a cancellation from outside."""
    if isinstance(error, SystemExit):
        return True
    task = asyncio.current_task()
    return isinstance(error, asyncio.CancelledError) and task is not None and not task.cancelling()


@contextmanager
def exits_kept() -> Generator[None]:
    """Inside, tasks that would end the process fail."""
    loop = asyncio.get_running_loop()
    before = loop.get_task_factory()
    if not isinstance(before, _TaskFactory):
        loop.set_task_factory(_TaskFactory(before))
    token = _IN_STEP.set(True)
    try:
        yield
    finally:
        _IN_STEP.reset(token)


class _TaskFactory:
    """Makes a loop's tasks: those of a step so that they keep exits, all others as before."""

    def __init__(self, before: Any) -> None:
        self._before = before

    def __call__(self, loop: asyncio.AbstractEventLoop, coro: Any, **given: Any) -> Any:
        context = given.get("context")
        if _IN_STEP.get() if context is None else context.get(_IN_STEP, False):
            coro = _KeepsExits(coro)
        return (self._before or _task)(loop, coro, **given)


def _task(loop: asyncio.AbstractEventLoop, coro: Any, **given: Any) -> asyncio.Task[Any]:
    return asyncio.Task(coro, loop=loop, **given)


class _KeepsExits(Coroutine[Any, Any, Any]):
    """A coroutine as it is, but for exits. Not one around it: that might end before it has begun the other."""

    def __init__(self, coro: Coroutine[Any, Any, Any]) -> None:
        self._coro = coro

    def send(self, value: Any, /) -> Any:
        try:
            return self._coro.send(value)
        except SystemExit as error:
            raise UserCodeStopped("the agent", error) from error

    def throw(self, *error: Any) -> Any:
        try:
            return self._coro.throw(*error)
        except SystemExit as exit_:
            raise UserCodeStopped("the agent", exit_) from exit_

    def close(self) -> None:
        self._coro.close()

    def __await__(self) -> Generator[Any, Any, Any]:
        return self._coro.__await__()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._coro, name)  # where it is, for whoever looks
