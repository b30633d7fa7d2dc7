"""Histories in Redis or Valkey: what lanes have committed, and the parts of the store that get there.

A turn's writes go apart from the head until a commit moves the head to them in one script, or an abort drops them in
one. Every write carries a `Fence`; a writer whose turn has ended, or that a later attempt has replaced, writes nothing.
"""

from __future__ import annotations

import json
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from laneway.errors import ServiceUnavailable
from laneway.history.accounts import Accounts
from laneway.history.archives import Archives
from laneway.history.checkpoints import DIGEST_BYTES, CheckpointRef, StoredEntry
from laneway.history.endings import Endings
from laneway.history.heads import Head, checked_entries, read_head
from laneway.history.inputs import Inputs
from laneway.history.lane_index import LaneIndex
from laneway.history.lanes import LaneKey
from laneway.history.layout import LaneNames
from laneway.history.link import Durability, StoreLink, by_name
from laneway.history.open_turns import OpenTurns
from laneway.history.patience import Patience
from laneway.history.records import LaneEvent, TurnRecord
from laneway.history.scripts import FREEING, STRICT
from laneway.history.threads import ThreadMessage, Threads
from laneway.history.waits import Waits

if TYPE_CHECKING:
    from redis.asyncio import Redis

__all__ = ["HistoryStore"]

# KEYS: a lane's head, the epoch's list, its turns, its parts, its archive. ARGV: v, e, n, d, t and x of the head, how
# many parts there are and how much is archived, the name and the content of each in turn, then encoded entries. A lane
# that has a history stays as it is, and so does one that had a turn: what that wrote may have been dropped.
SEED = (
    STRICT
    + """
if redis.call('EXISTS', KEYS[1], KEYS[3]) > 0 then return 0 end
redis.call('UNLINK', KEYS[2], KEYS[4], KEYS[5])
local archived = 9 + 2 * tonumber(ARGV[7])
local first = archived + 2 * tonumber(ARGV[8])
for at = 9, archived - 2, 2 do redis.call('HSET', KEYS[4], ARGV[at], ARGV[at + 1]) end
for at = archived, first - 2, 2 do redis.call('HSET', KEYS[5], ARGV[at], ARGV[at + 1]) end
for from = first, #ARGV, 1000 do
  redis.call('RPUSH', KEYS[2], unpack(ARGV, from, math.min(from + 999, #ARGV)))
end
redis.call('HSET', KEYS[1], 'v', ARGV[1], 'e', ARGV[2], 'n', ARGV[3], 'd', ARGV[4], 't', ARGV[5], 'x', ARGV[6])
return 1
"""
)

# KEYS: a lane's head. ARGV 1: base name. 2: for how many seconds what its turns did is kept.
DROP_HISTORY = (
    FREEING
    + """
local epoch = redis.call('HGET', KEYS[1], 'e')
if epoch then redis.call('UNLINK', ARGV[1] .. 'epoch:' .. epoch) end
redis.call('UNLINK', KEYS[1])
for _, name in ipairs({'archive', 'thread', 'parts'}) do redis.call('UNLINK', ARGV[1] .. name) end
for _, name in ipairs({'turns', 'events', 'spent'}) do redis.call('EXPIRE', ARGV[1] .. name, ARGV[2]) end
return 1
"""
)

# KEYS: a lane's head. ARGV 1: base name. 2: for how many seconds all of it is kept from now on. One that has less to
# live keeps that.
EXPIRE_HISTORY = (
    FREEING
    + """
local epoch = redis.call('HGET', KEYS[1], 'e')
local names = {'archive', 'thread', 'parts', 'turns', 'events', 'spent'}
if epoch then names[#names + 1] = 'epoch:' .. epoch end
for _, name in ipairs(names) do redis.call('EXPIRE', ARGV[1] .. name, ARGV[2], 'NX') end
redis.call('EXPIRE', KEYS[1], ARGV[2], 'NX')
return 1
"""
)


class HistoryStore:
    """All of Laneway's data in one Redis or Valkey.

    Args:
        redis: a client that does not decode responses.
        prefix: what every key begins with.
        stage_ttl: how long an unfinished turn's data lives after its last write, as a backstop.
        events_max_length: about how many events a lane's stream keeps.
        events_turns: of how many committed turns it keeps them.
        durability: see `Durability`.
        patience: outlasts trouble that passes while a turn's data is written; None where the caller is to hear of it.

    Attributes:
        link: the link to the server that they all share.
        inputs: the prompts of turns.
        turns: turns that have not ended.
        waits: what such turns wait for.
        endings: commits, aborts, and what is left of a turn then.
        accounts: what turns have spent.
        archives: what history gave way to references.
        threads: text threads.
        index: the index of lanes.

    Every method raises ServiceUnavailable where the server does not answer, and StoreFull where it has no memory left.
    """

    def __init__(
        self,
        redis: Redis,
        *,
        prefix: str = "laneway",
        stage_ttl: timedelta = timedelta(days=30),
        events_max_length: int = 1000,
        events_turns: int = 4,
        durability: Durability = "auto",
        patience: Patience | None = None,
    ) -> None:
        self.link = link = StoreLink(
            redis,
            prefix=prefix,
            stage_ttl=stage_ttl,
            events_kept=f"{events_max_length}/{events_turns}",
            durability=durability,
            patience=patience,
        )
        self._seed: Any = link.script(SEED)
        self._drop_history: Any = link.script(DROP_HISTORY)
        self._expire_history: Any = link.script(EXPIRE_HISTORY)
        self.inputs = Inputs(link)
        self.turns = OpenTurns(link)
        self.waits = Waits(link)
        self.endings = Endings(link)
        self.accounts = Accounts(link)
        self.archives = Archives(link)
        self.threads = Threads(link)
        self.index = LaneIndex(link)

    def names(self, lane: LaneKey) -> LaneNames:
        """The names of a lane's keys."""
        return self.link.names(lane)

    def workflow_id(self, lane: LaneKey) -> str:
        """The id of a lane's workflow in this deployment."""
        return lane.workflow_id(self.link.prefix)

    def check_deployment(self, lane: LaneKey, workflow_id: str | None) -> None:
        """Refuse to work for a workflow whose data is under another prefix than this store's.

        Raises:
            ServiceUnavailable: it is; a worker of its own deployment may come to it.
        """
        if workflow_id is not None and lane.is_foreign(workflow_id, self.link.prefix):
            raise ServiceUnavailable(
                f"workflow {workflow_id!r} belongs to a deployment with another LANEWAY_REDIS_PREFIX than this "
                f"worker's {self.link.prefix!r}: give each deployment a LANEWAY_TASK_QUEUE of its own"
            )

    async def record(self, lane: LaneKey, turn_id: str) -> TurnRecord | None:
        """How a turn ended, or None where it has not."""
        blob: bytes | None = await self.link.ask(self.link.redis.hget(self.link.names(lane).turns, turn_id))
        return None if blob is None else TurnRecord.from_stored(turn_id, blob)

    async def records(self, lane: LaneKey) -> list[TurnRecord]:
        """How each ended turn of a lane ended, in the order in which they did."""
        stored: dict[bytes, bytes] = await self.link.ask(self.link.redis.hgetall(self.link.names(lane).turns))
        return sorted(
            (TurnRecord.from_stored(name.decode(), blob) for name, blob in stored.items()), key=lambda r: r.number
        )

    async def list_messages(self, lane: LaneKey, window: int) -> list[ThreadMessage]:
        """The last `window` messages of a lane's text thread; none where `window` is 0 or less."""
        return await self.threads.list_messages(lane, window)

    async def head(self, lane: LaneKey) -> Head:
        """The lane's head; version 0 for one that has committed nothing."""
        fields: dict[bytes, bytes] = await self.link.ask(self.link.redis.hgetall(self.link.names(lane).head))
        return read_head(by_name(fields))

    async def whole_head(self, lane: LaneKey) -> Head:
        """The lane's head with its parts, both as of one moment."""
        names = self.link.names(lane)
        async with self.link.redis.pipeline(transaction=True) as pipe:
            pipe.hgetall(names.head)
            pipe.hgetall(names.parts)
            fields, parts = await self.link.ask(pipe.execute())
        return read_head(by_name(fields), by_name(parts))

    async def history(self, lane: LaneKey, checkpoint: CheckpointRef) -> list[StoredEntry]:
        """The entries of a checkpoint, each checked against the digest chain.

        Raises:
            CheckpointLost, CheckpointCorrupt: they are missing or altered.
        """
        entries = await self.link.entries(lane, checkpoint.epoch, 0, checkpoint.length)
        return list(checked_entries(entries, checkpoint, first=0, after=""))

    async def entry(self, lane: LaneKey, checkpoint: CheckpointRef) -> StoredEntry:
        """The last entry of a checkpoint.

        Raises:
            CheckpointLost, CheckpointCorrupt: it is missing or altered.
        """
        first = max(checkpoint.length - 2, 0)
        entries = await self.link.entries(lane, checkpoint.epoch, first, checkpoint.length)
        after = entries[0][:DIGEST_BYTES].hex() if first and entries else ""
        return checked_entries(entries[1:] if first else entries, checkpoint, first=first + bool(first), after=after)[
            -1
        ]

    async def events(self, lane: LaneKey, *, after: str = "0-0", count: int = 500) -> list[LaneEvent]:
        """The lane's events after one of them, oldest first."""
        found: list[tuple[bytes, dict[bytes, bytes]]] = await self.link.ask(
            self.link.redis.xrange(self.link.names(lane).events, f"({after}", "+", count)
        )
        return [LaneEvent.from_json(entry_id.decode(), fields[b"e"]) for entry_id, fields in found]

    # Lanes of children ------------------------------------------------------------------------------------------------

    async def fork(self, source: LaneKey, target: LaneKey) -> None:
        """Let a new lane begin with what another one has committed; one that has a history, or had a turn, stays."""
        head = await self.whole_head(source)
        at, names = head.checkpoint, self.link.names(target)
        entries = await self.link.entries(source, at.epoch, 0, at.length)
        checked_entries(entries, at, first=0, after="")
        extras = json.dumps(head.extras, separators=(",", ":"))
        parts = [item for name in head.part_names if name in head.parts for item in (name, head.parts[name])]
        held: dict[bytes, bytes] = await self.link.ask(self.link.redis.hgetall(self.link.names(source).archive))
        archived = [part for item in held.items() for part in item]
        counts = (len(parts) // 2, len(held))
        fields = (head.version, at.epoch, at.length, at.digest, head.turn_id or "", extras, *counts)
        keys = [names.head, names.epoch(at.epoch), names.turns, names.parts, names.archive]
        await self.link.ask(self._seed(keys, [*fields, *parts, *archived, *entries]))

    async def expire_history(self, lane: LaneKey) -> None:
        """Keep what a lane holds for a while from now on, and not for ever: nothing goes on from it."""
        names = self.link.names(lane)
        await self.link.ask(self._expire_history([names.head], [names.base, self.link.stage_ttl]))
        await self.index.expire(lane, first=True)

    async def drop_history(self, lane: LaneKey) -> None:
        """Drop what a lane has committed. How its turns ended is kept for a while."""
        names = self.link.names(lane)
        await self.link.ask(self._drop_history([names.head], [names.base, self.link.stage_ttl]))
        # In another slot of a cluster than the lane's keys.
        await self.index.expire(lane)
