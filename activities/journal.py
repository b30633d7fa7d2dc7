"""The journal of a step's tool calls: what has finished is not run again."""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from hashlib import blake2b

__all__ = ["UNCERTAIN", "UNKNOWN_OUTCOME", "ToolJournal", "shown_arguments"]

_BEGUN = "?"
_MAX_ARGUMENT_CHARS = 2_000
UNCERTAIN = "!"
"""How the keys of calls end whose outcome is unknown."""
UNKNOWN_OUTCOME = (
    "The outcome of this call of {name!r} is unknown: it was interrupted after it had begun, and may have taken "
    "effect. It was not called again. Find out what it did before you go on."
)
"""What a model is told of such a call."""


def shown_arguments(arguments: bytes | str) -> str:
    """A call's arguments, as JSON, as events and records show them: their beginning, where they are long."""
    text = arguments.decode() if isinstance(arguments, bytes) else arguments
    return text[:_MAX_ARGUMENT_CHARS]


class ToolJournal:
    """What the tool calls of one step came to, by call.

    Args:
        finished: what is written already, by the keys that `key` makes.
        write: keeps one result, unless the key holds one; returns what the key held, or None.
    """

    def __init__(self, finished: Mapping[str, bytes], write: Callable[[str, bytes], Awaitable[bytes | None]]) -> None:
        self._finished = dict(finished)
        self._write = write
        self._named: Counter[str] = Counter()

    def key(self, call_id: str, tool: str, arguments: bytes) -> str:
        """Names a call that is about to be made.

        Models do reuse a call id, so the tool and its arguments are in the name as well; and a number, where the very
        same call is made again.
        """
        name = f"{call_id}:{blake2b(tool.encode() + b'|' + arguments, digest_size=6).hexdigest()}"
        self._named[name] += 1
        return name if self._named[name] == 1 else f"{name}:{self._named[name]}"

    async def begin_once(self, key: str, call: bytes) -> bool:
        """Note that a call begins which must not be made twice.

        Args:
            key: the call's.
            call: what is called, for the turn's record: see `UncertainCall`.

        Returns:
            whether it may be made. Where it had begun before and did not finish, its outcome is unknown, and that is
            noted for the record.
        """
        if self.finished(key + _BEGUN) is None:
            await self.finish(key + _BEGUN, b"")
            return True
        await self.finish(key + UNCERTAIN, call)
        return False

    @property
    def uncertain(self) -> dict[str, bytes]:
        """The calls whose outcome is unknown, by their keys."""
        return {key: call for key, call in self._finished.items() if key.endswith(UNCERTAIN)}

    def finished(self, key: str) -> bytes | None:
        """What a call came to, or None where it has not finished."""
        return self._finished.get(key)

    async def finish(self, key: str, result: bytes) -> bytes:
        """Keep what a call came to.

        Returns:
            the result that stands: another one where the call was finished before.
        """
        held = await self._write(key, result)
        standing = result if held is None else held
        self._finished[key] = standing
        return standing
