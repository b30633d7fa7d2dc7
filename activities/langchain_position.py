"""Where a turn of a graph is between two supersteps, as it is stored."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field

from laneway.history.records import TurnUsage
from laneway.langgraph_records import packb, unpackb

__all__ = ["Position"]


@dataclass
class Position:
    """Where a turn is between two supersteps.

    Attributes:
        next: the nodes that are next.
        origin: the number that LangGraph gave the step before the turn's first node.
        begun: the version that the channel with the output had then.
        live: index of the first message that came after the history was written anew; 0 where it never was.
        asked: the id of the last message that the turn was given; None for none.
        asked_models: how many model nodes have run.
        edited: whether history processing is through for the superstep that is next.
        used: what the turn has used.
        prefix: what the history's reasoning was signed under; see `langchain_prefix`. None where nobody asks for that.
        framing: how many tokens the newest answer's request carried beside its messages; 0 where nobody has looked.
        given: how many messages the turn's prompt was.
    """

    next: list[str] = field(default_factory=list[str])
    origin: int = 0
    begun: int = 0
    live: int = 0
    asked: str | None = None
    asked_models: int = 0
    edited: bool = False
    used: TurnUsage = field(default_factory=TurnUsage)
    prefix: str | None = None
    framing: int = 0
    given: int = 1

    def to_bytes(self, spaces: bytes) -> bytes:
        """The stored form, together with the graph's state."""
        used = list(asdict(self.used).values())
        fields = [
            self.next,
            self.origin,
            self.begun,
            self.live,
            self.asked,
            self.asked_models,
            self.edited,
            used,
            self.prefix,
            self.framing,
            self.given,
        ]
        head = json.dumps(fields, separators=(",", ":"))
        return packb([head, spaces])

    @classmethod
    def from_bytes(cls, blob: bytes) -> tuple[Position, bytes]:
        """What `to_bytes` was given."""
        head, spaces = unpackb(blob)
        following, origin, begun, live, asked, asked_models, edited, used, *later = json.loads(head)
        return cls(following, origin, begun, live, asked, asked_models, edited, TurnUsage(*used), *later), spaces
