"""Running the user's callbacks: the condition inline, a sync processor in a thread, neither from inside itself."""

from __future__ import annotations

import asyncio
import functools
import inspect
from collections.abc import Callable, Generator
from contextlib import contextmanager
from contextvars import ContextVar

from laneway.errors import (
    BudgetExceeded,
    HistoryProcessingError,
    RequestTooLarge,
    ServiceUnavailable,
    StoreError,
)
from laneway.history.context import (
    HistoryProcessor,
    HistoryProcessorCondition,
    HistoryProcessorContext,
    HistoryProcessorState,
)
from laneway.history.dialect import MessageT

__all__ = ["ask_condition", "call_processor", "callback_name", "is_async", "refuse_reentry"]

_RUNNING: ContextVar[tuple[object, ...]] = ContextVar("laneway_history_processors", default=())


def callback_name(callback: Callable[..., object]) -> str:
    """How errors, receipts and origins name a callback: `module:qualname`, of its class where it is an object."""
    while isinstance(callback, functools.partial):
        callback = callback.func
    named = callback if hasattr(callback, "__qualname__") else type(callback)
    return f"{named.__module__}:{named.__qualname__}"


def refuse_reentry(owner: object) -> None:
    """Refuse work by a configured adapter whose own history processor is running in this context.

    Raises:
        HistoryProcessingError: it is: the request would wait for the processor, and the processor for the request.
    """
    if any(running is owner for running in _RUNNING.get()):
        raise HistoryProcessingError(
            f"{owner!r} was called from inside its own history processor: "
            "use another adapter, or call a model directly, to summarize"
        )


def ask_condition(condition: HistoryProcessorCondition, state: HistoryProcessorState) -> bool:
    """Ask whether the processor runs.

    Raises:
        HistoryProcessingError: the condition raised, or answered anything but True or False.
    """
    name = callback_name(condition)
    try:
        answer: object = condition(state)
    except Exception as error:
        raise HistoryProcessingError(f"the history condition {name} raised {type(error).__name__}: {error}") from error
    if answer is True or answer is False:
        return answer
    if inspect.iscoroutine(answer):
        answer.close()  # else Python warns that it was never awaited, beside the error that says what is wrong
    raise HistoryProcessingError(
        f"the history condition {name} returned {answer!r}: it has to return exactly True or False, not later"
    )


async def call_processor(
    processor: HistoryProcessor[MessageT], context: HistoryProcessorContext[MessageT], *, owner: object
) -> object:
    """Run a processor and return what it returned, unchecked.

    A sync one runs in a worker thread. Cancelled, this returns at once; what the thread returns later is discarded.

    Raises:
        HistoryProcessingError: it raised.
    """
    with _running(owner):
        try:
            if is_async(processor):
                result: object = processor(context)
            else:
                result = await asyncio.to_thread(processor, context)
            if inspect.isawaitable(result):
                result = await result
        except (BudgetExceeded, RequestTooLarge, ServiceUnavailable, StoreError):
            raise  # of what a stock processor asked of the turn; each says what it is by its own type
        except Exception as error:
            raise _failure(processor, error) from error
        except asyncio.CancelledError as error:
            if _is_cancelled():
                raise
            # Nobody cancelled this turn: the processor let a cancellation of its own escape.
            raise _failure(processor, error) from error
    if _is_cancelled():
        # The processor swallowed the cancellation. Its result is late all the same.
        raise asyncio.CancelledError
    return result


@contextmanager
def _running(owner: object) -> Generator[None]:
    refuse_reentry(owner)
    token = _RUNNING.set((*_RUNNING.get(), owner))
    try:
        yield
    finally:
        _RUNNING.reset(token)


def is_async(callback: Callable[..., object]) -> bool:
    """Whether calling it gives something to await, so that it need not go to a thread."""
    while isinstance(callback, functools.partial):
        callback = callback.func
    return inspect.iscoroutinefunction(callback) or inspect.iscoroutinefunction(type(callback).__call__)


def _is_cancelled() -> bool:
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def _failure(processor: Callable[..., object], error: BaseException) -> HistoryProcessingError:
    name = callback_name(processor)
    return HistoryProcessingError(f"the history processor {name} raised {type(error).__name__}: {error}")
