"""Telling a turn's hooks of its end, at least once: noted before the turn ends, and crossed out when they were told."""

from __future__ import annotations

import logging
from collections.abc import Mapping

from laneway.activities.agents import Agents
from laneway.activities.references import UnknownReference
from laneway.activities.turn_hooks import TurnHooks
from laneway.activities.turn_scope import TurnScope
from laneway.history.lanes import LaneKey
from laneway.history.options import TurnOptions
from laneway.history.records import TurnRecord
from laneway.history.store import HistoryStore

__all__ = ["Endings"]

_log = logging.getLogger(__name__)


class Endings:
    """The hooks of turns that end.

    Args:
        store: where it is noted whom a turn's end is owed to.
        agents: the agents that this worker runs.
    """

    def __init__(self, store: HistoryStore, agents: Agents) -> None:
        self._store = store
        self._agents = agents

    def hooks_of(self, lane: LaneKey, turn_id: str, options: bytes | None) -> TurnHooks:
        """The hooks of a turn that went by `options`; without those of its scopes, where this worker has them not."""
        scope = TurnScope.from_data(TurnOptions.from_json(options).scope)
        layers = [] if scope.is_quiet else self._agents.hooks(lane.agent)
        try:
            layers += scope.resolved(self._agents.registry).hooks
        except UnknownReference as error:
            _log.warning("hooks are not told of the end of turn %s: %s", turn_id, error)
        return TurnHooks(layers, lane.conversation, lane.agent, turn_id)

    async def owe(self, hooks: TurnHooks, lane: LaneKey, options: bytes | None) -> None:
        """Note that a turn is about to end, if anybody is to be told."""
        if hooks.wants_end:
            await self._store.endings.owe(lane, hooks.turn_id, options or b"")

    async def tell(
        self, hooks: TurnHooks, lane: LaneKey, record: TurnRecord, carrier: Mapping[str, str] | None = None
    ) -> None:
        """Tell of a turn's end, if anybody is to be told; telemetry by the context that came with the turn."""
        if self._agents.instruments is not None and carrier is not None:
            self._agents.instruments.ended(lane, record, carrier)
        if hooks.wants_end:
            await hooks.tell_end(record)
            await self._store.endings.settle(lane, hooks.turn_id)

    async def catch_up(self, lane: LaneKey, record: TurnRecord) -> None:
        """Tell of the end of a turn whose last attempt may have died before it could."""
        options = await self._store.endings.owed(lane, record.turn_id)
        if options is not None:
            await self.tell(self.hooks_of(lane, record.turn_id, options), lane, record)
