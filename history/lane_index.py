"""The index of lanes, by which readers who have no application find them."""

from __future__ import annotations

from laneway.history.lanes import LaneKey
from laneway.history.layout import conversation_name
from laneway.history.link import StoreLink

__all__ = ["LaneIndex"]


class LaneIndex:
    """The index of all lanes. Made by the store."""

    def __init__(self, link: StoreLink) -> None:
        self._link = link
        self._all = f"{link.prefix}:lanes"

    async def register(self, lane: LaneKey, *, listed: bool = True) -> None:
        """Enter a lane.

        Args:
            lane: which.
            listed: whether among all lanes, or only by its conversation.
        """
        text = lane.to_json()
        async with self._link.redis.pipeline(transaction=False) as pipe:
            if listed:
                pipe.hsetnx(self._all, lane.lane_id, text)
            pipe.hsetnx(self._of(lane.conversation), lane.lane_id, text)
            await self._link.ask(pipe.execute())

    async def lanes(self, conversation: str | None = None) -> list[LaneKey]:
        """All lanes, or those of one conversation, by name."""
        name = self._all if conversation is None else self._of(conversation)
        texts: list[bytes] = await self._link.ask(self._link.redis.hvals(name))
        return sorted(map(LaneKey.from_json, texts), key=lambda lane: (lane.conversation, lane.agent, lane.contract))

    async def expire(self, lane: LaneKey, *, first: bool = False) -> None:
        """Keep what is found by a lane's conversation for a while only.

        Args:
            lane: which.
            first: where it has a time to live already, leave it that.
        """
        await self._link.ask(self._link.redis.expire(self._of(lane.conversation), self._link.stage_ttl, nx=first))

    def _of(self, conversation: str) -> str:
        return conversation_name(self._link.prefix, conversation)
