"""Who did whose work, as the parents' records have it, and with which prompts: what the judges share."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from hashlib import blake2b

from tests.chaos.evidence import ChildNamed, Evidence, LaneLeft, Record
from tests.chaos.script import GRAPHS, TEAMS, Delegate, Message, Outside, Played, briefs, digest, kept_in, play

__all__ = ["Child", "Story", "Tree", "prompt_digest"]


def prompt_digest(prompt: str, agent: str) -> str:
    """How the product names a text prompt: a digest of its JSON, which for a graph is a message's."""
    stored = {"messages": [{"type": "human", "data": {"content": prompt}}]} if agent in GRAPHS else prompt
    return blake2b(json.dumps(stored, ensure_ascii=False, separators=(",", ":")).encode(), digest_size=12).hexdigest()


@dataclass(frozen=True)
class Child:
    """A turn that did delegated work.

    Attributes:
        named: as its parent's record names it.
        parent, parent_lane: the turn that handed it out, and on which lane.
        lane: its own.
        record: its own; None where it has none.
        delegate, call: of which delegate and tool call it is, by its prompt; None where nobody asked for that.
        prompt: its prompt.
    """

    named: ChildNamed
    parent: Record
    parent_lane: LaneLeft
    lane: LaneLeft
    record: Record | None
    delegate: str | None = None
    call: str | None = None
    prompt: str | None = None


def _place(child: Child) -> tuple[int, int]:
    """When it was handed out, among the work of one lane."""
    return child.parent.number, child.parent.children.index(child.named)


@dataclass
class Story:
    """A history as it is played turn by turn: its messages, what names them, and what conversation was kept last."""

    messages: list[tuple[str, Message]] = field(default_factory=list[tuple[str, Message]])
    after: str = ""
    kept: str | None = None

    def play(self, prompt: str, agent: str, outside: Outside) -> Played:
        """What a turn comes to next."""
        return play(prompt, after=self.after, validates=agent == "careful", kept=self.kept, outside=outside)

    def add(self, turn: str, played: Played) -> None:
        """It was committed."""
        self.messages.extend((turn, message) for message in played.messages)
        self.after, self.kept = digest(played.messages, self.after), kept_in(played.messages, self.kept)


class Tree:
    """All turns, their prompts and their children.

    Attributes:
        prompts: by what the product names them.
        children: by turn id.
        named: each naming of a child by a record, also where two name the same.
        agents: the agent of each turn.
        turn_prompts: the prompt of each turn that has ended.
    """

    def __init__(self, evidence: Evidence) -> None:
        self.prompts: dict[str, str] = {}
        self._briefs: dict[str, tuple[str, str]] = {}
        for line in evidence.callers:
            if line["k"] == "submit":
                self.prompts[prompt_digest(line["prompt"], line["agent"])] = line["prompt"]
                for delegate, call, brief in briefs(line["prompt"]):
                    # Which agent is asked is judged by the delegate's name.
                    for agent in ("reader", "scribe"):
                        self.prompts[prompt_digest(brief, agent)] = brief
                        self._briefs[prompt_digest(brief, agent)] = (delegate, call)
        self.named = list(self._named(evidence))
        self.children = {child.named.turn: child for child in self.named}
        self.agents = {turn: lane.agent for lane in evidence.lanes.values() for turn in lane.records}
        self.turn_prompts = {
            turn: self.prompts[record.prompt]
            for lane in evidence.lanes.values()
            for turn, record in lane.records.items()
            if record.prompt in self.prompts
        }

    def _named(self, evidence: Evidence) -> Iterator[Child]:
        for lane in evidence.lanes.values():
            for record in lane.records.values():
                for named in record.children:
                    below = evidence.lanes.get(named.lane, LaneLeft(named.lane, ""))
                    own = below.records.get(named.turn)
                    delegate, call = self._briefs.get(own.prompt, (None, None)) if own is not None else (None, None)
                    prompt = None if own is None else self.prompts.get(own.prompt)
                    yield Child(named, record, lane, below, own, delegate, call, prompt)

    def kept_before(self, child: Child) -> list[Child]:
        """The earlier runs of a kept conversation, oldest first: those that committed parents' turns left."""
        if child.named.kept is None:
            return []
        found = [
            one
            for one in self.named
            if one.named.kept == child.named.kept
            and one.parent_lane.name == child.parent_lane.name
            and (one.parent.outcome == "committed" or one.parent is child.parent)
            and _place(one) < _place(child)
            and one.record is not None
            and one.record.outcome == "committed"
        ]
        return sorted(found, key=_place)

    def stands(self, evidence: Evidence) -> set[str]:
        """The turns at which kept conversations stand, by the heads of the lanes that go on from them."""
        found: set[str] = set()
        heads = [lane for lane in evidence.lanes.values() if not lane.is_child]
        while heads:
            lane = heads.pop()
            kept = json.loads(lane.head["x"]).get("kept", {}) if lane.head else {}
            turns = {data[4] for data in kept.values()} - found
            found |= turns
            heads.extend(self.children[turn].lane for turn in turns if turn in self.children)
        return found

    def is_kept(self, child: Child) -> bool:
        """Whether what a child committed stays: all turns above it committed."""
        above: Child | None = child
        while above is not None:
            if above.parent.outcome != "committed":
                return False
            above = self.children.get(above.parent.turn)
        return True

    def above(self, turn: str) -> Iterator[str]:
        """A turn, and those above it."""
        yield turn
        while (child := self.children.get(turn)) is not None:
            turn = child.parent.turn
            yield turn

    def delegate_of(self, child: Child) -> Delegate | None:
        """What the parent's agent knows of the delegate that was asked."""
        return TEAMS.get(child.parent_lane.agent, {}).get(child.delegate or "")
