"""`RedisSaver`: LangGraph's checkpoints in plain Redis or Valkey, every message stored once.

    saver = RedisSaver.from_url("redis://localhost:6379/0")
    graph = builder.compile(checkpointer=saver)

Needs Redis 7.0 or Valkey 8 and no modules. Each write is one atomic script on one slot of a cluster. Nothing but what
is on LangGraph's allow-list of types, or in `allowed_types`, is ever constructed from stored data.
"""

from __future__ import annotations

import copy
import random
from collections.abc import AsyncIterator, Collection, Iterable, Iterator, Mapping, Sequence
from datetime import timedelta
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, cast

from langgraph.checkpoint.base import BaseCheckpointSaver, CheckpointTuple
from langgraph.checkpoint.serde.encrypted import EncryptedSerializer

from laneway.errors import ConfigurationError
from laneway.history.given import check_flag, types_listed
from laneway.langgraph_codec import Codec
from laneway.langgraph_desk import Desk, Options
from laneway.langgraph_link import Link
from laneway.langgraph_reads import Reads
from laneway.langgraph_serde import strict_serializer
from laneway.langgraph_upkeep import Upkeep
from laneway.langgraph_writes import Writes

if TYPE_CHECKING:
    import redis
    import redis.asyncio
    from langchain_core.runnables import RunnableConfig
    from langgraph.checkpoint.base import (
        ChannelVersions,
        Checkpoint,
        CheckpointMetadata,
        DeltaChannelHistory,
    )
    from langgraph.checkpoint.serde.base import SerializerProtocol

__all__ = ["RedisSaver"]

_CHANCE_BITS = 31


class RedisSaver(BaseCheckpointSaver[int]):
    """A LangGraph checkpoint saver on plain Redis or Valkey, for synchronous and asynchronous graphs alike.

    Args:
        client: a synchronous client, for a graph's synchronous methods; it must not decode responses. You close it.
        async_client: an asynchronous one, for the asynchronous methods, likewise.
        url: where Redis is, in place of clients; see `from_url`.
        prefix: what every key begins with.
        ttl: how long a thread lives after its last write; None for ever.
        refresh_on_read: whether reading a thread counts too.
        allowed_types: types of your own in the graph's state, as classes or pairs of module and name. They are
            constructed from stored data; LangChain's messages and common plain types always are.
        serde: an `EncryptedSerializer` to encrypt everything but ids; its inner serializer must be a strict one.
        digest_key: a secret of up to 64 bytes, the same for as long as the data lives. Equal messages are stored once
            by their digest; where they are encrypted it must not give away what they are. Needed with encryption.

    Raises:
        ConfigurationError: an argument cannot work.

    Methods raise ServiceUnavailable where Redis does not answer, StoreFull where it has no memory left, InvalidInput
    for what cannot be stored, naming the channel, and CheckpointLost or StoreError where what is stored is damaged.
    """

    def __init__(
        self,
        client: redis.Redis | None = None,
        async_client: redis.asyncio.Redis | None = None,
        *,
        url: str | None = None,
        prefix: str = "laneway",
        ttl: timedelta | None = None,
        refresh_on_read: bool = False,
        allowed_types: Iterable[type | tuple[str, str]] = (),
        serde: SerializerProtocol | None = None,
        digest_key: bytes = b"",
    ) -> None:
        if client is None and async_client is None and url is None:
            raise ConfigurationError("RedisSaver needs a client or an async_client; or use RedisSaver.from_url(url)")
        if ttl is not None and (not isinstance(cast("object", ttl), timedelta) or ttl <= timedelta(0)):
            raise ConfigurationError(f"ttl={ttl!r} must be a positive timedelta; pass None to keep threads for ever")
        check_flag("RedisSaver: refresh_on_read", refresh_on_read)
        allowed_types = types_listed("RedisSaver: allowed_types", allowed_types)
        if not isinstance(cast("object", digest_key), bytes) or len(digest_key) > 64:
            raise ConfigurationError("digest_key must be bytes, 64 at most, such as 32 random ones that you keep")
        if not isinstance(cast("object", prefix), str) or not prefix or "{" in prefix:
            raise ConfigurationError(f"prefix={prefix!r} must be text without a brace, which Redis Cluster would read")
        strict = strict_serializer(serde, allowed_types)
        if isinstance(strict, EncryptedSerializer) and not digest_key:
            raise ConfigurationError(
                "an EncryptedSerializer needs digest_key, a secret that keeps the digests of messages from telling "
                "what they are; pass 32 random bytes that you keep as long as the data"
            )
        super().__init__(serde=strict)
        self._digest_key = digest_key
        self._link = Link(url, client=client, async_client=async_client)
        self._sit_at(Desk(Codec(strict, digest_key), Options(prefix, ttl, refresh_on_read)))

    @classmethod
    def from_url(
        cls,
        url: str,
        *,
        prefix: str = "laneway",
        ttl: timedelta | None = None,
        refresh_on_read: bool = False,
        allowed_types: Iterable[type | tuple[str, str]] = (),
        serde: SerializerProtocol | None = None,
        digest_key: bytes = b"",
    ) -> Self:
        """A saver with clients of its own, made when they are first used. The arguments are the class's.

        Close it with `close()` or `await aclose()`, or use it in a `with` or `async with` block.
        """
        return cls(
            url=url,
            prefix=prefix,
            ttl=ttl,
            refresh_on_read=refresh_on_read,
            allowed_types=allowed_types,
            serde=serde,
            digest_key=digest_key,
        )

    def _sit_at(self, desk: Desk) -> None:
        self._desk = desk
        self._reads = Reads(desk)
        self._writes = Writes(desk, self._reads)
        self._upkeep = Upkeep(desk, self._reads)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.aclose()

    def close(self) -> None:
        """Close the synchronous client that this saver made. The saver can be used again."""
        self._link.close()

    async def aclose(self) -> None:
        """Close the clients that this saver made: the running event loop's, and the synchronous one."""
        await self._link.aclose()

    def with_allowlist(self, extra_allowlist: Collection[tuple[str, ...]]) -> Self:
        """A saver on the same clients that constructs more types. LangGraph calls it with a graph's own."""
        pairs = [(module, name) for module, name in extra_allowlist]
        strict = strict_serializer(self.serde, pairs)
        clone = copy.copy(self)
        clone.serde = strict
        clone._sit_at(Desk(Codec(strict, self._digest_key), self._desk.options))
        return clone

    def get_next_version(self, current: int | None, channel: None) -> int:  # LangGraph's signature
        """A channel's next version: a counter in the upper bits, chance in the lower ones.

        By chance because two branches of a thread count alike, and must not take each other's values for their own.
        """
        given: object = current
        if isinstance(given, str):  # from a thread that another saver began; its versions must go on comparing
            return cast("int", f"{int(given.split('.')[0]) + 1:032}.{random.getrandbits(_CHANCE_BITS):010}")
        counter = 0 if current is None else int(current) >> _CHANCE_BITS
        return (counter + 1) << _CHANCE_BITS | random.getrandbits(_CHANCE_BITS)

    # Reading ----------------------------------------------------------------------------------------------------------

    def get_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        """The checkpoint that a config names, or its namespace's latest; None where there is none. One round trip."""
        return self._link.run(self._reads.get_tuple(config))

    async def aget_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        """As `get_tuple`."""
        return await self._link.arun(self._reads.get_tuple(config))

    def list(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> Iterator[CheckpointTuple]:
        """Checkpoints, the latest id first, read 32 at a time as they are taken.

        Args:
            config: names a thread, and a namespace or a checkpoint; None for all threads, one after the other.
            filter: what metadata must equal.
            before: names the checkpoint before which they were made.
            limit: the greatest number.
        """
        return self._link.pages(self._reads.listing(config, filter=filter, before=before, limit=limit))

    async def alist(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> AsyncIterator[CheckpointTuple]:
        """As `list`."""
        async for item in self._link.apages(self._reads.listing(config, filter=filter, before=before, limit=limit)):
            yield item

    def get_delta_channel_history(
        self, *, config: RunnableConfig, channels: Sequence[str]
    ) -> Mapping[str, DeltaChannelHistory]:
        """What LangGraph rebuilds `DeltaChannel`s from, in a round trip for 64 ancestors and one for what they hold."""
        return self._link.run(self._reads.delta_history(config, channels))

    async def aget_delta_channel_history(
        self, *, config: RunnableConfig, channels: Sequence[str]
    ) -> Mapping[str, DeltaChannelHistory]:
        """As `get_delta_channel_history`."""
        return await self._link.arun(self._reads.delta_history(config, channels))

    # Writing ----------------------------------------------------------------------------------------------------------

    def put(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        """Store a checkpoint as the child of the one that the config names.

        Args:
            config: names the thread, the namespace and the parent.
            checkpoint: the checkpoint with the values of its channels.
            metadata: its metadata.
            new_versions: the channels that changed since the parent.

        Returns:
            The config that names the checkpoint.
        """
        return self._link.run(self._writes.put(config, checkpoint, metadata, new_versions))

    async def aput(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        """As `put`."""
        return await self._link.arun(self._writes.put(config, checkpoint, metadata, new_versions))

    def put_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        """Store what a task of a checkpoint wrote.

        The first write of a task's index stays; of errors, interrupts and their answers the last one does.
        """
        self._link.run(self._writes.put_writes(config, writes, task_id, task_path))

    async def aput_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        """As `put_writes`."""
        await self._link.arun(self._writes.put_writes(config, writes, task_id, task_path))

    # Upkeep -----------------------------------------------------------------------------------------------------------

    def delete_thread(self, thread_id: str) -> None:
        """Delete everything of a thread, at once."""
        self._link.run(self._upkeep.delete_thread(thread_id))

    async def adelete_thread(self, thread_id: str) -> None:
        """As `delete_thread`."""
        await self._link.arun(self._upkeep.delete_thread(thread_id))

    def delete_for_runs(self, run_ids: Sequence[str]) -> None:
        """Delete the checkpoints whose metadata has one of these as `run_id`, with their pending writes.

        Delta channels of later checkpoints may be rebuilt from them; LangGraph leaves it to the caller to know.
        """
        self._link.run(self._upkeep.delete_for_runs(run_ids))

    async def adelete_for_runs(self, run_ids: Sequence[str]) -> None:
        """As `delete_for_runs`."""
        await self._link.arun(self._upkeep.delete_for_runs(run_ids))

    def copy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        """Copy a thread as it is at one moment. A source that does not exist is copied to nothing.

        Raises:
            InvalidInput: the target exists.
        """
        self._link.run(self._upkeep.copy_thread(source_thread_id, target_thread_id))

    async def acopy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        """As `copy_thread`."""
        await self._link.arun(self._upkeep.copy_thread(source_thread_id, target_thread_id))

    def prune(self, thread_ids: Sequence[str], *, strategy: str = "keep_latest") -> None:
        """Delete checkpoints that are no longer needed, and what only they held.

        Args:
            thread_ids: the threads. Each is pruned by itself.
            strategy: `keep_latest` keeps the latest checkpoint of each namespace, and the ancestors that its delta
                channels are rebuilt from; `delete` keeps nothing.
        """
        self._link.run(self._upkeep.prune(thread_ids, strategy))

    async def aprune(self, thread_ids: Sequence[str], *, strategy: str = "keep_latest") -> None:
        """As `prune`."""
        await self._link.arun(self._upkeep.prune(thread_ids, strategy))
