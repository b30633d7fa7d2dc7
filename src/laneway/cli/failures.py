"""How a command fails: one readable line or one JSON object, and an exit code. Never a bare traceback.

    0    it did what was asked
    1    it was tried and failed: a turn, a server, what Redis holds
    2    it could not be tried: the command line, a setting, an APP that does not load, a history to import
    130  Ctrl-C
    141  whoever read the output has gone

`LANEWAY_DEBUG=1` shows the traceback of an error as well.
"""

from __future__ import annotations

import atexit
import os
import sys
import traceback
from collections.abc import Callable
from typing import NoReturn, cast

from laneway.cli.output import as_json_text
from laneway.errors import (
    ConfigurationError,
    HistoryProcessingValidationError,
    InvalidInput,
    LanewayError,
    UnknownAgent,
)

__all__ = ["DEBUG_VARIABLE", "BadUsage", "NotFound", "code_of", "describe", "guarded", "leave", "report"]

DEBUG_VARIABLE = "LANEWAY_DEBUG"

FAILED, REFUSED, INTERRUPTED, READER_GONE = 1, 2, 130, 141

_MAX_LINE_CHARS = 1_000


class BadUsage(LanewayError):
    """The command line is not one of Laneway's."""


class NotFound(LanewayError):
    """What was asked for is not in Redis."""


_REFUSALS = (BadUsage, ConfigurationError, HistoryProcessingValidationError, InvalidInput, UnknownAgent)


def guarded(action: Callable[[], int | None], *, as_json: bool) -> int:
    """Run a command, and turn whatever it raises into a line and an exit code.

    Args:
        action: the command; what it returns is the exit code, None for 0.
        as_json: whether errors are JSON, on standard output.
    """
    try:
        code = action() or 0
        sys.stdout.flush()
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        # What is still buffered has no reader: it must not be flushed once more when the interpreter ends.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return READER_GONE
    except Exception as error:
        return report(error, as_json=as_json)
    return code


def leave(code: int) -> NoReturn:
    """End this process.

    Once Temporal's core was loaded, the interpreter is not taken down: the core's own threads may still run, and now
    and then, on a busy machine, one of them aborted the process (SIGABRT) after the command had done its work.
    """
    if "temporalio.bridge.temporal_sdk_bridge" not in sys.modules:
        sys.exit(code)
    try:
        atexit._run_exitfuncs()  # pyright: ignore[reportPrivateUsage] - the application may have some
        sys.stdout.flush()
        sys.stderr.flush()
    finally:
        os._exit(code)


def report(error: Exception, *, as_json: bool) -> int:
    """Say what went wrong, and return the exit code for it."""
    error = _innermost(error)
    if os.environ.get(DEBUG_VARIABLE, "") not in ("", "0"):
        traceback.print_exception(error)
    try:
        if as_json:
            sys.stdout.write(as_json_text(describe(error)) + "\n")
            sys.stdout.flush()
        else:
            line = " ".join(message_of(error).split())
            if len(line) > _MAX_LINE_CHARS:
                line = line[:_MAX_LINE_CHARS] + "…"
            sys.stderr.write(f"laneway: {line}\n")
            sys.stderr.flush()
    except BrokenPipeError:
        return READER_GONE
    return code_of(error)


def describe(error: Exception) -> dict[str, object]:
    """An error as the CLI's JSON has it: its stable code, its message, and the turn or the message it is about."""
    code = error.code if isinstance(error, LanewayError) else "InternalError"
    found: dict[str, object] = {"error": code, "message": message_of(error)}
    for name in ("turn_id", "error_type", "error_message"):
        if (value := getattr(error, name, None)) is not None:
            found[name] = value
    if isinstance(error, HistoryProcessingValidationError):
        found |= {"rule": error.rule, "index": error.index}
    return found


def message_of(error: Exception) -> str:
    """What an error says; for one that Laneway did not mean to raise, also what to do about it."""
    if isinstance(error, LanewayError):
        return str(error)
    return (
        f"this should not have happened: {type(error).__name__}: {error}; run it again with {DEBUG_VARIABLE}=1 for the "
        "traceback, and report it"
    )


def code_of(error: Exception) -> int:
    """The exit code for an error."""
    return REFUSED if isinstance(error, _REFUSALS) else FAILED


def _innermost(error: Exception) -> Exception:
    """What is alone in a group of errors, as a task group raises it."""
    if isinstance(error, ExceptionGroup):
        inner = cast("ExceptionGroup[Exception]", error).exceptions
        if len(inner) == 1:
            return _innermost(inner[0])
    return cast("Exception", error)
