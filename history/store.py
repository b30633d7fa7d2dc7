"""Histories in Redis or Valkey: load, stage, commit, abort. The only module of `history` that does I/O.

A turn's writes go apart from the head until `commit` moves the head to them in one script, or `abort` drops them in
one. Every write carries a `Fence`; a writer whose turn has ended, or that a later attempt has replaced, writes nothing.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from datetime import timedelta
from typing import Any, Literal, cast

from redis.asyncio import Redis
from redis.exceptions import (
    AuthenticationError,
    AuthorizationError,
    ClusterDownError,
    ConnectionError,
    NoPermissionError,
    OutOfMemoryError,
    ReadOnlyError,
    RedisError,
    ResponseError,
    TimeoutError,
    TryAgainError,
)

from laneway.errors import (
    CheckpointCorrupt,
    CheckpointLost,
    ServiceUnavailable,
    StaleTurn,
    StoreError,
    StoreFull,
    TurnConflict,
    UnknownRequest,
)
from laneway.history import layout
from laneway.history.accounts import Accounts
from laneway.history.archives import Archives
from laneway.history.checkpoints import DIGEST_BYTES, CheckpointRef, StoredEntry, decode_entries, encode_entries
from laneway.history.heads import (
    Fence,
    Head,
    LoadedTurn,
    TurnEnded,
    checked_entries,
    lost,
    pairs_of,
    part_names,
    read_head,
)
from laneway.history.lanes import LaneKey
from laneway.history.layout import LaneNames, conversation_name
from laneway.history.patience import Patience
from laneway.history.records import TERMINAL, EventKind, LaneEvent, TurnRecord
from laneway.history.requests import Answer, StoredRequest, requests_of
from laneway.history.threads import ThreadMessage, Threads

__all__ = ["Durability", "HistoryStore"]

Durability = Literal["auto", "aof", "none"]
"""When a commit is acknowledged: once the server says that it is on disk (`aof`), at once (`none`), or as the server's
own settings allow (`auto`: at once where each write is synced anyway, by `WAITAOF` where there is an append-only
file)."""

_WAIT_FOR_DISK = timedelta(seconds=10)
# A longer payload of a request is not repeated on the stream.
_MAX_SHOWN_CHARS = 4000
# A larger answer is read by who waits for it, and not told with the turn's end to all that listen to the lane.
_MAX_TOLD_BYTES = 64 * 1024
# For how long what a turn without history leaves behind can be read; its caller drops most of it earlier.
_FORGOTTEN_AFTER = timedelta(minutes=10)
# How answers begin with which a server refuses what it may take later: a script runs too long, replicas are missing,
# its disk is full.
_PASSING = ("BUSY ", "NOREPLICAS ", "MISCONF ")
# Later than any attempt at a step.
_DECIDED = 2**31


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
        # Any, since the library types each reply as all that it can be under any of its options.
        self._redis: Any = redis
        self._prefix = prefix
        self._patience = patience
        self._stage_ttl = str(int(stage_ttl.total_seconds()))
        self._events_kept = f"{events_max_length}/{events_turns}"
        self._wait_for_disk: bool | None = {"auto": None, "aof": True, "none": False}[durability]
        script = redis.register_script
        self._put_input: Any = script(layout.PUT_INPUT)
        self._drop_input: Any = script(layout.DROP_INPUT)
        self._load: Any = script(layout.LOAD)
        self._stage: Any = script(layout.STAGE)
        self._decide: Any = script(layout.DECIDE)
        self._keep: Any = script(layout.KEEP)
        self._commit: Any = script(layout.COMMIT)
        self._abort: Any = script(layout.ABORT)
        self._answer: Any = script(layout.ANSWER)
        self._note: Any = script(layout.NOTE)
        self.accounts = Accounts(redis, run=self._run, ask=_answer, names=self.names)
        self.archives = Archives(redis, run=self._run, ask=_answer, names=self.names)
        self.threads = Threads(redis, run=self._run, ask=_answer, names=self.names)
        self._forget: Any = script(layout.FORGET_WAITING)
        self._seed: Any = script(layout.SEED)
        self._drop_history: Any = script(layout.DROP_HISTORY)
        self._expire_history: Any = script(layout.EXPIRE_HISTORY)

    def names(self, lane: LaneKey) -> LaneNames:
        """The names of a lane's keys."""
        return LaneNames.of(self._prefix, lane)

    def workflow_id(self, lane: LaneKey) -> str:
        """The id of a lane's workflow in this deployment."""
        return lane.workflow_id(self._prefix)

    def check_deployment(self, lane: LaneKey, workflow_id: str | None) -> None:
        """Refuse to work for a workflow whose data is under another prefix than this store's.

        Raises:
            ServiceUnavailable: it is; a worker of its own deployment may come to it.
        """
        if workflow_id is not None and lane.is_foreign(workflow_id, self._prefix):
            raise ServiceUnavailable(
                f"workflow {workflow_id!r} belongs to a deployment with another LANEWAY_REDIS_PREFIX than this "
                f"worker's {self._prefix!r}: give each deployment a LANEWAY_TASK_QUEUE of its own"
            )

    # Turns ------------------------------------------------------------------------------------------------------------

    async def put_input(
        self, lane: LaneKey, turn_id: str, *, digest: str, prompt: bytes, claim: str = "", options: str = ""
    ) -> TurnRecord | str:
        """Keep a turn's prompt until the turn ends.

        Args:
            lane, turn_id: whose.
            digest: names the prompt.
            prompt: as the adapter encoded it.
            claim: names the client among all that submit the turn; see `drop_input`.
            options: what the turn goes by, see `TurnOptions.to_json`; those of its first submit stay.

        Returns:
            the id of the lane's newest event, or the turn's record where it has ended already with this prompt.

        Raises:
            TurnConflict: the turn id was used with another prompt.
        """
        once = int(_FORGOTTEN_AFTER.total_seconds()) if lane.is_once else ""
        try:
            answer, *rest = await self._run(
                self._put_input, Fence(lane, turn_id, attempt=_DECIDED), digest, prompt, claim, options, once
            )
        except TurnEnded as ended:
            if ended.record.prompt_digest != digest:
                raise _conflict(turn_id) from None
            return ended.record
        if answer == layout.Answer.CONFLICT:
            raise _conflict(turn_id)
        return _text(rest[0])

    async def drop_input(self, lane: LaneKey, turn_id: str, *, claim: str) -> None:
        """Forget the prompt of a turn that was not accepted, unless another client's submit of it may have been."""
        with suppress(TurnEnded):
            await self._run(self._drop_input, Fence(lane, turn_id, attempt=_DECIDED), claim)

    async def forget(self, lane: LaneKey, record: TurnRecord) -> None:
        """Drop what a turn without history left behind, but for the bare fact that it has ended.

        That stays for a while, so that an attempt that was given up on, and wakes, writes nothing.
        """
        names, epoch = self.names(lane), 0 if record.checkpoint is None else record.checkpoint.epoch
        bare = replace(record, output=None, error_message=None, attempts=())
        async with self._redis.pipeline(transaction=True) as pipe:
            pipe.unlink(
                names.head,
                names.events,
                names.turn(record.turn_id),
                names.epoch(epoch),
                names.spent,
                names.thread,
                names.archive,
                names.parts,
            )
            pipe.hset(names.turns, record.turn_id, b"%d|%s" % (record.number, bare.to_json()))
            pipe.expire(names.turns, _FORGOTTEN_AFTER)
            await _answer(pipe.execute())

    async def load(
        self, fence: Fence, *, held: CheckpointRef, started: LaneEvent, retried: LaneEvent, now: float
    ) -> LoadedTurn:
        """Begin an attempt at a step: read everything that it needs, in one round trip.

        Args:
            fence: who begins; its version is not looked at.
            held: the checkpoint that the caller holds decoded, so that only what follows is read.
            started: published where no step of the turn began before.
            retried: published where this is not the step's first attempt.
            now: seconds since 1970.

        Raises:
            TurnEnded, StaleTurn: the turn has ended, or a later attempt has begun.
            CheckpointLost, CheckpointCorrupt: committed history is missing or altered.
        """
        _, heads, fields, first, entries, stage, parts = await self._run(
            self._load,
            replace(fence, version=None),
            held.epoch,
            held.length,
            round(now * 1000),
            started.to_json(),
            retried.to_json(),
        )
        head = read_head(pairs_of(heads), pairs_of(parts))
        base = head.checkpoint
        try:
            if first == base.length and first and base.digest != held.digest:
                raise lost(base, "the head names another last entry")
            decoded = checked_entries(entries, base, first=first, after=held.digest if first else "")
        except (CheckpointLost, CheckpointCorrupt):
            if not first:
                raise
            # What the caller holds is not of this history: it must be told of damage only for what is stored.
            first, entries = 0, await self._entries(fence.lane, base.epoch, 0, base.length)
            decoded = checked_entries(entries, base, first=0, after="")
        turn = pairs_of(fields)
        staged_epoch = int(turn.get("se", b"-1"))
        root = base if staged_epoch == base.epoch else CheckpointRef(max(staged_epoch, 0), 0, "")
        staged = decode_entries(stage, after=root.digest, epoch=root.epoch, first_index=root.length)
        tip = stage[-1][:DIGEST_BYTES].hex() if stage else root.digest
        checkpoint = CheckpointRef(root.epoch, root.length + len(stage), tip) if staged_epoch >= 0 else base
        return LoadedTurn(head, decoded, first, staged, checkpoint, turn)

    async def stage(
        self,
        fence: Fence,
        name: str,
        value: bytes,
        *,
        entries: Sequence[StoredEntry] = (),
        after: CheckpointRef | None = None,
        requests: Sequence[StoredRequest] = (),
        events: Sequence[LaneEvent] = (),
        answers: Mapping[str, Answer] | None = None,
    ) -> tuple[bytes | None, CheckpointRef | None]:
        """Write apart from the head: a field of the turn, entries that follow `after`, and `events` on the stream.

        Where the turn is to wait for `requests`, it is kept without an end, and on disk when this returns. Those that
        are refused at once have their `answers`.

        Returns:
            what the field held before (then nothing was written: the first result wins) or None, and the checkpoint
            that the staged entries lead to.
        """
        encoded: list[bytes] = []
        tip = after
        if after is not None:
            encoded, digest = encode_entries(entries, after=after.digest)
            tip = CheckpointRef(after.epoch, after.length + len(encoded), digest)
        epoch = "" if after is None else after.epoch
        fields: list[bytes | str] = []
        for one in requests:
            fields += (f"q:{one.request.id}", one.to_json())
        if requests:
            fields += (f"w{fence.step}", json.dumps([one.request.id for one in requests]))
        for request, given in (answers or {}).items():
            fields += (f"r:{request}", given.to_json())
        said = [*(event.to_json() for event in events), *(_pending_event(fence, one) for one in requests)]
        arguments = (name, value, epoch, len(fields) // 2, *fields, len(said), *said, *encoded)
        answer, *rest = await self._run(self._stage, fence, *arguments, on_disk=bool(requests))
        if answer == layout.Answer.EXISTS:
            return cast("bytes", rest[0]), after
        return None, tip

    async def answer(self, lane: LaneKey, turn_id: str, request: str, answer: Answer) -> Answer | None:
        """Keep the answer to a request that the turn waits for; the first one counts. On disk when this returns.

        Returns:
            None, or the answer that counts where one was kept before.

        Raises:
            UnknownRequest: the turn has no such request.
            TurnEnded: the turn has ended.
        """
        event = LaneEvent(
            EventKind.REQUEST_ANSWERED, turn_id, data={"request": request, "answer": answer.kind}
        ).to_json()
        said, *rest = await self._run(
            self._answer, Fence(lane, turn_id, attempt=_DECIDED), request, answer.to_json(), event, on_disk=True
        )
        if said == layout.Answer.UNKNOWN:
            raise UnknownRequest(
                f"turn {turn_id!r} has no request {request!r}: `laneway pending` lists what is waited for"
            )
        return Answer.from_json(rest[0]) if said == layout.Answer.EXISTS else None

    async def decide(self, fence: Fence, name: str, value: bytes, *, prompt: bytes | None = None) -> bytes | None:
        """Keep a decision about an unfinished turn, and the prompt that it leads to in place of the one there is.

        Returns:
            what was decided before (then nothing was written: the first decision stays) or None.
        """
        answer, *rest = await self._run(self._decide, fence, name, value, prompt or b"")
        return cast("bytes", rest[0]) if answer == layout.Answer.EXISTS else None

    async def keep(self, fence: Fence, parts: Mapping[str, bytes]) -> None:
        """Keep large parts with an unfinished turn, so that what it stages and commits can name them.

        Args:
            fence: who keeps.
            parts: by name; a name stands for one content for ever.
        """
        if parts:
            await self._run(self._keep, fence, *(item for pair in parts.items() for item in pair))

    async def owe(self, lane: LaneKey, turn_id: str, options: bytes) -> None:
        """Note, before a turn ends, that its hooks are to be told of its end; `options` are what it went by."""
        name = self.names(lane).owed(turn_id)
        await self._ask(lambda: self._redis.set(name, options, ex=self._stage_ttl))

    async def owed(self, lane: LaneKey, turn_id: str) -> bytes | None:
        """What a turn went by whose end its hooks were not told of yet; None where they were, or there are none."""
        options: bytes | None = await _answer(self._redis.get(self.names(lane).owed(turn_id)))
        return options

    async def settle(self, lane: LaneKey, turn_id: str) -> None:
        """Note that they were told."""
        await _answer(self._redis.unlink(self.names(lane).owed(turn_id)))

    async def commit(
        self,
        fence: Fence,
        *,
        base: CheckpointRef,
        after: CheckpointRef,
        entries: Sequence[StoredEntry],
        extras: Mapping[str, object],
        record: TurnRecord,
        reply: str | None = None,
        events: Sequence[LaneEvent] = (),
    ) -> TurnRecord:
        """Move the head to what the turn has staged, and to `entries` after that. On disk when this returns.

        Args:
            fence: who commits.
            base: the head that the turn began from.
            after: the checkpoint that the staged entries lead to; `base` where there are none.
            entries: what follows it, not staged before.
            extras: see `Head.extras`. Parts that it names are the lane's from now on, and no others.
            record: how the turn ended, without number and checkpoint.
            reply: the assistant's message, for the text thread.
            events: said before the one that ends the turn.

        Returns:
            the record as it is stored.

        Raises:
            TurnEnded, StaleTurn: as for every write.
            CheckpointLost: the committed entries are not as many as the head says, or a part is missing.
        """
        encoded, digest = encode_entries(entries, after=after.digest)
        tip = CheckpointRef(after.epoch, after.length + len(encoded), digest)
        record = replace(record, checkpoint=tip)
        arguments: tuple[bytes | str | int, ...] = (
            base.epoch,
            base.length,
            tip.epoch,
            tip.length,
            tip.digest,
            json.dumps(extras, separators=(",", ":")),
            record.to_json(),
            LaneEvent(EventKind.TURN_COMMITTED, fence.turn_id, fence.step, fence.attempt).to_json(),
            self._stage_ttl,
            *_spent(record),
            "" if reply is None else ThreadMessage("assistant", reply).to_json(),
            len(events),
            _taken(record),
            _MAX_TOLD_BYTES if record.output_in_history else 0,
            " ".join(part_names(extras)),
            *(event.to_json() for event in events),
            *encoded,
        )
        answer, number = await self._run(self._commit, fence, *arguments, on_disk=True)
        if answer == layout.Answer.DAMAGED:
            raise lost(base, f"its list of entries leads to {number} where {tip.length} were expected")
        if answer == layout.Answer.MISSING:
            raise lost(base, f"part {_text(number)} of what is kept beside it is gone")
        return replace(record, number=number)

    async def abort(self, fence: Fence, record: TurnRecord, *, decided: bool = False) -> TurnRecord:
        """Drop what the turn has staged, whole, and keep how it ended.

        Args:
            fence: who aborts; its version is not looked at.
            record: how the turn ended, without number.
            decided: it is the workflow that ends the turn, and not an attempt whose step failed.

        Returns:
            the record as it is stored: another one where the turn had ended before.

        Raises:
            StaleTurn: a later attempt at the step has begun; it decides how the turn ends.
        """
        data: dict[str, object] = {}
        if record.error_type is not None:
            data = {"error": record.error_type, "message": record.error_message}
        event = LaneEvent(TERMINAL[record.outcome], fence.turn_id, fence.step, fence.attempt, data)
        try:
            _, number = await self._run(
                self._abort,
                replace(fence, version=None, attempt=_DECIDED if decided else fence.attempt),
                record.to_json(),
                event.to_json(),
                *_spent(record),
                on_disk=True,
            )
        except TurnEnded as ended:
            return ended.record
        return replace(record, number=number)

    async def note(
        self, fence: Fence, *, fields: Sequence[tuple[str, bytes]] = (), events: Sequence[LaneEvent] = ()
    ) -> list[bytes | None]:
        """Write fields of an unfinished turn, and say on the lane's stream what happens in it, in one round trip.

        Returns:
            for each field what it held before (then it still does: the first write wins) or None.
        """
        written = [part for field in fields for part in field]
        _, held = await self._run(self._note, fence, len(fields), *written, *(event.to_json() for event in events))
        return cast("list[bytes | None]", held)

    # Readers ----------------------------------------------------------------------------------------------------------

    async def record(self, lane: LaneKey, turn_id: str) -> TurnRecord | None:
        """How a turn ended, or None where it has not."""
        blob: bytes | None = await _answer(self._redis.hget(self.names(lane).turns, turn_id))
        return None if blob is None else TurnRecord.from_stored(turn_id, blob)

    async def records(self, lane: LaneKey) -> list[TurnRecord]:
        """How each ended turn of a lane ended, in the order in which they did."""
        stored: dict[bytes, bytes] = await _answer(self._redis.hgetall(self.names(lane).turns))
        return sorted(
            (TurnRecord.from_stored(name.decode(), blob) for name, blob in stored.items()), key=lambda r: r.number
        )

    async def list_messages(self, lane: LaneKey, window: int) -> list[ThreadMessage]:
        """The last `window` messages of a lane's text thread; none where `window` is 0 or less."""
        return await self.threads.list_messages(lane, window)

    async def is_pending(self, lane: LaneKey, turn_id: str) -> bool:
        """Whether a turn of that id was submitted and has not ended."""
        return bool(await _answer(self._redis.exists(self.names(lane).turn(turn_id))))

    async def unfinished(self, lane: LaneKey, turn_id: str) -> dict[str, bytes]:
        """What an unfinished turn has staged, by field, as `layout` describes them; empty where it has ended."""
        fields: dict[bytes, bytes] = await _answer(self._redis.hgetall(self.names(lane).turn(turn_id)))
        return {name.decode(): value for name, value in fields.items()}

    async def prompt(self, lane: LaneKey, turn_id: str) -> bytes | None:
        """An unfinished turn's prompt, or None."""
        prompt: bytes | None = await _answer(self._redis.hget(self.names(lane).turn(turn_id), "in"))
        return prompt

    async def head(self, lane: LaneKey) -> Head:
        """The lane's head; version 0 for one that has committed nothing."""
        fields: dict[bytes, bytes] = await _answer(self._redis.hgetall(self.names(lane).head))
        return read_head(_by_name(fields))

    async def whole_head(self, lane: LaneKey) -> Head:
        """The lane's head with its parts, both as of one moment."""
        names = self.names(lane)
        async with self._redis.pipeline(transaction=True) as pipe:
            pipe.hgetall(names.head)
            pipe.hgetall(names.parts)
            fields, parts = await _answer(pipe.execute())
        return read_head(_by_name(fields), _by_name(parts))

    async def history(self, lane: LaneKey, checkpoint: CheckpointRef) -> list[StoredEntry]:
        """The entries of a checkpoint, each checked against the digest chain.

        Raises:
            CheckpointLost, CheckpointCorrupt: they are missing or altered.
        """
        entries = await self._entries(lane, checkpoint.epoch, 0, checkpoint.length)
        return list(checked_entries(entries, checkpoint, first=0, after=""))

    async def entry(self, lane: LaneKey, checkpoint: CheckpointRef) -> StoredEntry:
        """The last entry of a checkpoint.

        Raises:
            CheckpointLost, CheckpointCorrupt: it is missing or altered.
        """
        first = max(checkpoint.length - 2, 0)
        entries = await self._entries(lane, checkpoint.epoch, first, checkpoint.length)
        after = entries[0][:DIGEST_BYTES].hex() if first and entries else ""
        return checked_entries(entries[1:] if first else entries, checkpoint, first=first + bool(first), after=after)[
            -1
        ]

    async def events(self, lane: LaneKey, *, after: str = "0-0", count: int = 500) -> list[LaneEvent]:
        """The lane's events after one of them, oldest first."""
        found: list[tuple[bytes, dict[bytes, bytes]]] = await _answer(
            self._redis.xrange(self.names(lane).events, f"({after}", "+", count)
        )
        return [LaneEvent.from_json(entry_id.decode(), fields[b"e"]) for entry_id, fields in found]

    async def waits(self, lane: LaneKey) -> str | None:
        """The lane's turn that waits for requests, or that did and has not ended; None where there is none."""
        turn_id: bytes | None = await _answer(self._redis.get(self.names(lane).waits))
        return None if turn_id is None else turn_id.decode()

    async def requests(self, lane: LaneKey, turn_id: str) -> list[tuple[StoredRequest, Answer | None]]:
        """What an unfinished turn has waited for, each with its answer, in the order in which it came."""
        name = self.names(lane).turn(turn_id)
        fields: list[bytes] = await _answer(self._redis.hkeys(name))
        wanted = [field for field in fields if field[:1] == b"w" or field[:2] in (b"q:", b"r:")]
        if not wanted:
            return []
        values: list[bytes | None] = await _answer(self._redis.hmget(name, wanted))
        return requests_of({k.decode(): v for k, v in zip(wanted, values, strict=True) if v is not None})

    # Lanes of children ------------------------------------------------------------------------------------------------

    async def fork(self, source: LaneKey, target: LaneKey) -> None:
        """Let a new lane begin with what another one has committed; one that has a history, or had a turn, stays."""
        head = await self.whole_head(source)
        at, names = head.checkpoint, self.names(target)
        entries = await self._entries(source, at.epoch, 0, at.length)
        checked_entries(entries, at, first=0, after="")
        extras = json.dumps(head.extras, separators=(",", ":"))
        parts = [item for name in head.part_names if name in head.parts for item in (name, head.parts[name])]
        held: dict[bytes, bytes] = await _answer(self._redis.hgetall(self.names(source).archive))
        archived = [part for item in held.items() for part in item]
        counts = (len(parts) // 2, len(held))
        fields = (head.version, at.epoch, at.length, at.digest, head.turn_id or "", extras, *counts)
        keys = [names.head, names.epoch(at.epoch), names.turns, names.parts, names.archive]
        await _answer(self._seed(keys, [*fields, *parts, *archived, *entries]))

    async def expire_history(self, lane: LaneKey) -> None:
        """Keep what a lane holds for a while from now on, and not for ever: nothing goes on from it."""
        names = self.names(lane)
        await _answer(self._expire_history([names.head], [names.base, self._stage_ttl]))
        index = conversation_name(self._prefix, lane.conversation)
        await _answer(self._redis.expire(index, self._stage_ttl, nx=True))

    async def drop_history(self, lane: LaneKey) -> None:
        """Drop what a lane has committed. How its turns ended is kept for a while."""
        names = self.names(lane)
        await _answer(self._drop_history([names.head], [names.base, self._stage_ttl]))
        # In another slot of a cluster than the lane's keys.
        await _answer(self._redis.expire(conversation_name(self._prefix, lane.conversation), self._stage_ttl))

    # The index of lanes -----------------------------------------------------------------------------------------------

    async def register(self, lane: LaneKey, *, listed: bool = True) -> None:
        """Enter a lane into the index, so that readers who have no application find it.

        Args:
            lane: which.
            listed: whether among all lanes, or only by its conversation.
        """
        text = lane.to_json()
        async with self._redis.pipeline(transaction=False) as pipe:
            if listed:
                pipe.hsetnx(f"{self._prefix}:lanes", lane.lane_id, text)
            pipe.hsetnx(conversation_name(self._prefix, lane.conversation), lane.lane_id, text)
            await _answer(pipe.execute())

    async def lanes(self, conversation: str | None = None) -> list[LaneKey]:
        """All lanes, or those of one conversation, by name."""
        name = f"{self._prefix}:lanes" if conversation is None else conversation_name(self._prefix, conversation)
        texts: list[bytes] = await _answer(self._redis.hvals(name))
        return sorted(map(LaneKey.from_json, texts), key=lambda lane: (lane.conversation, lane.agent, lane.contract))

    async def note_waiting(self, lane: LaneKey, *, now: float) -> None:
        """Enter a lane into the index of those that have a turn which waits for requests."""
        await _answer(self._redis.zadd(f"{self._prefix}:waiting", {lane.to_json(): now}))

    async def waiting_lanes(self) -> list[tuple[LaneKey, float]]:
        """The lanes that have, or had, a turn that waits for requests, and since when."""
        found: list[tuple[bytes, float]] = await _answer(
            self._redis.zrange(f"{self._prefix}:waiting", 0, -1, withscores=True)
        )
        return [(LaneKey.from_json(text), score) for text, score in found]

    async def forget_waiting(self, lane: LaneKey, since: float) -> None:
        """Take a lane out of that index, unless it was entered again."""
        await _answer(self._forget([f"{self._prefix}:waiting"], [lane.to_json(), repr(since)]))

    # Inside -----------------------------------------------------------------------------------------------------------

    async def _entries(self, lane: LaneKey, epoch: int, start: int, stop: int) -> list[bytes]:
        if start >= stop:
            return []
        entries: list[bytes] = await _answer(self._redis.lrange(self.names(lane).epoch(epoch), start, stop - 1))
        return entries

    async def _run(self, script: Any, fence: Fence, *arguments: bytes | str | int, on_disk: bool = False) -> list[Any]:
        names = self.names(fence.lane)
        keys = [names.head, names.turn(fence.turn_id), names.turns, names.events]
        head: list[str | int] = [
            names.base,
            fence.turn_id,
            fence.step,
            fence.attempt,
            "" if fence.version is None else str(fence.version),
            self._events_kept,
            self._stage_ttl,
        ]
        if on_disk and await self._must_wait():
            async with self._one_connection() as connection:
                answer = await self._ask(lambda: script(keys, [*head, *arguments], client=connection))
                await self._synced(connection)
        else:
            answer = await self._ask(lambda: script(keys, [*head, *arguments]))
        kind, *rest = answer
        kind = layout.Answer(kind.decode())
        if kind is layout.Answer.ENDED:
            raise TurnEnded(TurnRecord.from_stored(fence.turn_id, rest[0]))
        if kind is layout.Answer.STALE:
            raise StaleTurn(
                f"turn {fence.turn_id!r} writes on version {fence.version} of its lane, which is {_text(rest[0])} by "
                "now: nothing was written"
            )
        if kind is layout.Answer.REPLACED:
            raise StaleTurn(
                f"attempt {fence.attempt} at step {fence.step} of turn {fence.turn_id!r} was replaced by attempt "
                f"{rest[0]}: nothing was written"
            )
        return [kind, *rest]

    async def _ask(self, call: Callable[[], Awaitable[Any]]) -> Any:
        """Make a call to Redis, and outlast what passes where this store is to."""
        if self._patience is None:
            return await _answer(call())
        return await self._patience.outlast(lambda: _answer(call()))

    async def _must_wait(self) -> bool:
        if self._wait_for_disk is None:
            self._wait_for_disk = await self._ask_for_disk()
        return self._wait_for_disk

    async def _ask_for_disk(self) -> bool:
        if self._patience is None:
            return await _needs_waitaof(self._redis)
        return await self._patience.outlast(lambda: _needs_waitaof(self._redis))

    async def _synced(self, connection: Any) -> None:
        # Not as other commands are sent: where the connection is lost, another one would answer for no writes at all.
        single, local = connection.connection, 0
        milliseconds = round(_WAIT_FOR_DISK.total_seconds() * 1000)
        await _answer(single.send_command("WAITAOF", 1, 0, milliseconds, check_health=False))
        local, _ = await _answer(connection.parse_response(single, "WAITAOF"))
        if local < 1:
            raise ServiceUnavailable(
                f"Redis did not bring a commit to its disk within {_WAIT_FOR_DISK.total_seconds():g} s. The commit may "
                "stand; the turn's record tells. Look at the server's disk"
            )

    @asynccontextmanager
    async def _one_connection(self) -> AsyncGenerator[Any]:
        connection = self._redis.client()
        try:
            await self._ask(connection.initialize)
            yield connection
        finally:
            await connection.aclose()


async def _needs_waitaof(redis: Any) -> bool:
    try:
        settings = await _answer(redis.config_get("append*"))
        found = {_text(k): _text(v) for k, v in settings.items()}
        return found.get("appendonly") == "yes" and found.get("appendfsync") != "always"
    except StoreError:
        # A managed server that does not show its settings.
        persistence = await _answer(redis.info("persistence"))
        return str(persistence.get("aof_enabled")) == "1"


async def _answer(call: Awaitable[Any]) -> Any:
    """Wait for a call to Redis, with its errors told apart by what can be done about them."""
    task = asyncio.current_task()
    cancellations = task.cancelling() if task is not None else 0
    try:
        answer = await call
    except OutOfMemoryError as error:
        raise StoreFull(
            f"Redis refused a write: {_said(error)}. Nothing was written; raise maxmemory or free some memory, and "
            "submit again"
        ) from error
    except (AuthenticationError, AuthorizationError) as error:
        raise ServiceUnavailable(
            f"Redis refuses this connection: {_said(error)}. Correct the user or password in LANEWAY_REDIS_URL"
        ) from error
    except NoPermissionError as error:
        raise StoreError(
            f"Redis refused: {_said(error)}. Check LANEWAY_REDIS_URL and the user's permissions"
        ) from error
    except ReadOnlyError as error:
        raise ServiceUnavailable(
            "Redis is a replica that takes no writes. Where it does not become the primary by itself, point "
            "LANEWAY_REDIS_URL at the one that is"
        ) from error
    except (ClusterDownError, TryAgainError) as error:
        raise ServiceUnavailable(f"Redis cannot serve this just now: {_said(error)}. Look at the cluster") from error
    except (ConnectionError, TimeoutError, OSError) as error:
        raise ServiceUnavailable(
            f"Redis does not answer: {_said(error)}. Check LANEWAY_REDIS_URL and the server"
        ) from error
    except ResponseError as error:
        if "OOM" in str(error):
            raise StoreFull(f"Redis refused a write: {_said(error)}. Nothing was written; free some memory") from error
        if str(error).startswith(_PASSING):
            raise ServiceUnavailable(f"Redis cannot serve this just now: {_said(error)}. Look at the server") from error
        raise StoreError(f"Redis answered with an error: {_said(error)}") from error
    except RedisError as error:
        raise ServiceUnavailable(f"Redis failed: {_said(error)}. Check LANEWAY_REDIS_URL and the server") from error
    if task is not None and task.cancelling() > cancellations:
        # Before Python 3.12 a timeout that the client puts around its socket may swallow a cancellation.
        raise asyncio.CancelledError
    return answer


def _said(error: Exception) -> str:
    text = str(error).rstrip(". ")
    return "it asks for a password" if "HELLO must be called" in text or text.startswith("NOAUTH") else text


def _spent(record: TurnRecord) -> tuple[int, int, int]:
    usage = record.usage
    return usage.requests, usage.tool_calls, usage.input_tokens


def _taken(record: TurnRecord) -> str:
    """The messages that a turn has taken in, as the commit's script reads them."""
    if not record.tally.steered:
        return ""
    said = {"into": record.turn_id}
    return json.dumps(
        [
            [
                one.turn_id,
                LaneEvent(EventKind.TURN_COMMITTED, one.turn_id, data=said).to_json().decode(),
                one.to_json().decode(),
            ]
            for one in record.steered()
        ]
    )


def _by_name(fields: Mapping[bytes, bytes]) -> dict[str, bytes]:
    return {name.decode(): value for name, value in fields.items()}


def _text(value: object) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)


def _pending_event(fence: Fence, stored: StoredRequest) -> bytes:
    request = stored.request
    data: dict[str, object] = {"request": request.id, "kind": request.kind, "name": request.name}
    if len(json.dumps(request.payload)) <= _MAX_SHOWN_CHARS:
        data["payload"] = request.payload
    if stored.child is not None:
        data["child"] = {"conversation": stored.child.lane.conversation, "agent": stored.child.lane.agent}
    return LaneEvent(EventKind.REQUEST_PENDING, fence.turn_id, fence.step, fence.attempt, data).to_json()


def _conflict(turn_id: str) -> TurnConflict:
    return TurnConflict(f"turn id {turn_id!r} was used with another prompt: give this prompt an id of its own")
