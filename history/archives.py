"""Archives: what history gave way to references, kept without loss in Redis until the lane is gone.

What a turn archives is staged apart, and becomes the lane's with the commit; a turn that aborts leaves no archive.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, Literal, Self

from laneway.history.heads import Fence
from laneway.history.lanes import LaneKey
from laneway.history.scripts import FENCE, PRESENT, STRICT

if TYPE_CHECKING:
    from laneway.history.link import StoreLink

__all__ = ["ArchivedItem", "Archives"]

# ARGV 8: the reference. 9: the item. Says 'ok'.
PUT = (
    STRICT
    + FENCE
    + PRESENT
    + """
local staged = base .. 'archive:' .. id
redis.call('HSETNX', staged, ARGV[8], ARGV[9])
redis.call('EXPIRE', staged, ttl)
return {'ok'}
"""
)


@dataclass(frozen=True)
class ArchivedItem:
    """Something that was archived.

    Attributes:
        kind: native messages of tool exchanges, or one tool's result.
        payloads: the messages as the adapter encoded them; or the result as JSON.
        tool: of a result, the tool.
    """

    kind: Literal["exchanges", "result"]
    payloads: Sequence[bytes]
    tool: str | None = None

    @property
    def reference(self) -> str:
        """Names it by what it holds, so the same is archived once."""
        return f"ar-{blake2b(self.to_bytes(), digest_size=8).hexdigest()}"

    def to_bytes(self) -> bytes:
        """The stored form: a line of JSON, then the payloads as they are."""
        lengths = [len(payload) for payload in self.payloads]
        head = json.dumps([self.kind, lengths, self.tool], ensure_ascii=False, separators=(",", ":"))
        return b"".join([head.encode(), b"\n", *self.payloads])

    @classmethod
    def from_bytes(cls, blob: bytes) -> Self:
        """Read what `to_bytes` gives."""
        head, _, rest = blob.partition(b"\n")
        kind, lengths, tool = json.loads(head)
        payloads: list[bytes] = []
        for length in lengths:
            payloads.append(rest[:length])
            rest = rest[length:]
        return cls(kind, tuple(payloads), tool)


class Archives:
    """The archives of all lanes. Made by the store."""

    def __init__(self, link: StoreLink) -> None:
        self._link = link
        self._put: Any = link.script(PUT)

    async def put(self, fence: Fence, item: ArchivedItem) -> str:
        """Archive something for a turn; its reference.

        Raises:
            TurnEnded, StaleTurn: as for every write.
            StoreFull: there is no memory for it. Nothing was written.
        """
        reference = item.reference
        await self._link.run(self._put, fence, reference, item.to_bytes())
        return reference

    async def get(self, lane: LaneKey, reference: str, *, turn_id: str | None = None) -> ArchivedItem | None:
        """What a reference of a lane's names, or of an unfinished turn's; None where nothing has it."""
        names = self._link.names(lane)
        async with self._link.redis.pipeline(transaction=False) as pipe:
            if turn_id is not None:
                pipe.hget(names.archive_of(turn_id), reference)
            pipe.hget(names.archive, reference)
            found: list[bytes | None] = await self._link.ask(pipe.execute())
        blob = next((one for one in found if one is not None), None)
        return None if blob is None else ArchivedItem.from_bytes(blob)

    async def all_of(self, lane: LaneKey) -> dict[str, bytes]:
        """All that a lane has archived, by reference, in its stored form."""
        found: dict[bytes, bytes] = await self._link.ask(self._link.redis.hgetall(self._link.names(lane).archive))
        return {reference.decode(): blob for reference, blob in found.items()}
