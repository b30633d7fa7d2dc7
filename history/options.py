"""What the caller of a turn asks for beside its prompt; kept in Redis with the prompt until the turn ends."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Self

from laneway.history.budget import RequestBudget
from laneway.history.lanes import LaneKey

__all__ = ["ParentTurn", "TurnOptions"]

_NO_BUDGET: Final = RequestBudget()


@dataclass(frozen=True)
class ParentTurn:
    """A turn above a delegated one.

    Attributes:
        lane, turn_id: which.
        budget: what it may spend, its children included.
        conversation_budget: what its conversation may.
    """

    lane: LaneKey
    turn_id: str
    budget: RequestBudget = _NO_BUDGET
    conversation_budget: RequestBudget = _NO_BUDGET

    def to_data(self) -> list[object]:
        """As JSON has it."""
        lane = self.lane
        names = [lane.conversation, lane.agent, lane.contract, self.turn_id]
        return [*names, self.budget.to_data(), self.conversation_budget.to_data()]

    @classmethod
    def from_data(cls, data: list[Any]) -> Self:
        """Read what `to_data` gives."""
        conversation, agent, contract, turn_id, budget, whole = data
        lane = LaneKey(conversation, agent, contract)
        return cls(lane, turn_id, RequestBudget.from_data(budget), RequestBudget.from_data(whole))


@dataclass(frozen=True)
class TurnOptions:
    """What a turn goes by, as its caller gave it.

    Attributes:
        budget: the turn's budget; the adapter's holds as well.
        conversation_budget: the budget of all turns of the conversation with the agent.
        depth: how deep in a tree of delegated turns; 0 for a turn that a caller submitted.
        is_brief: a brief drives the turn, not a request of the conversation's user: its text thread does not grow.
        scope: what the scopes around the call say, as `laneway.activities.turn_scope` writes it.
        parents: the turns above a delegated one, that of the caller first.
        max_depth: how deep the tree may become, as the delegations above say; None where none does.
        trace: the context by which the turn joins its caller's trace; see `laneway.activities.telemetry`.
    """

    budget: RequestBudget = _NO_BUDGET
    conversation_budget: RequestBudget = _NO_BUDGET
    depth: int = 0
    is_brief: bool = False
    scope: Mapping[str, object] = field(default_factory=dict[str, object])
    parents: tuple[ParentTurn, ...] = ()
    max_depth: int | None = None
    trace: Mapping[str, str] = field(default_factory=dict[str, str])

    @property
    def is_root(self) -> bool:
        """Whether the turn opens with a request of the conversation's user."""
        return not self.depth and not self.is_brief

    @property
    def is_budgeted(self) -> bool:
        """Whether it holds a budget."""
        return not (self.budget.is_empty and self.conversation_budget.is_empty)

    def to_json(self) -> str:
        """The stored form: defaults are left out, and it is empty where there is nothing else."""
        data: dict[str, object] = {}
        if not self.budget.is_empty:
            data["t"] = self.budget.to_data()
        if not self.conversation_budget.is_empty:
            data["c"] = self.conversation_budget.to_data()
        if self.depth:
            data["d"] = self.depth
        if self.is_brief:
            data["brief"] = True
        if self.scope:
            data["s"] = self.scope
        if self.trace:
            data["tp"] = self.trace
        if self.parents:
            data["p"] = [parent.to_data() for parent in self.parents]
        if self.max_depth is not None:
            data["m"] = self.max_depth
        return json.dumps(data, separators=(",", ":")) if data else ""

    @classmethod
    def from_json(cls, blob: bytes | str | None) -> Self:
        """Read what `to_json` gives."""
        data: dict[str, Any] = json.loads(blob) if blob else {}
        return cls(
            RequestBudget.from_data(data.get("t", {})),
            RequestBudget.from_data(data.get("c", {})),
            data.get("d", 0),
            data.get("brief", False),
            data.get("s", {}),
            tuple(map(ParentTurn.from_data, data.get("p", ()))),
            data.get("m"),
            trace=data.get("tp", {}),
        )
