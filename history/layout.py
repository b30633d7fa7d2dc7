"""The names of a lane's keys in Redis, what is under each, and what a script says that it did.

    <prefix>:lanes                          hash    lane id → [conversation, agent, contract]
    <prefix>:conversation:<digest>          hash    the same, for one conversation
    <prefix>:waiting                        zset    the same texts, of lanes that have or had a turn that waits for
                                                    requests, by when it began to
    <prefix>:{<lane id>}:head               hash    v version, e epoch, n length, d digest, t last turn, x extras (JSON)
                                                    and w, where on the stream the last turns ended
    <prefix>:{<lane id>}:epoch:<e>          list    entries, append-only; a checkpoint is a prefix of it
    <prefix>:{<lane id>}:turn:<turn id>     hash    an unfinished turn: its input and what it has staged (below)
    <prefix>:{<lane id>}:stage:<turn id>:<e> list   entries that the turn has staged for epoch e
    <prefix>:{<lane id>}:turns              hash    turn id → "<number>|<record>", for every turn that has ended
    <prefix>:{<lane id>}:spent              hash    what all ended turns have spent: r requests, t tool calls, i input
                                                    tokens; b the budget that the conversation was given last
    <prefix>:{<lane id>}:spent:<turn id>    hash    the same of a turn that has a budget, and each charge (below)
    <prefix>:{<lane id>}:archive            hash    reference → what was archived
    <prefix>:{<lane id>}:archive:<turn id>  hash    the same of an unfinished turn
    <prefix>:{<lane id>}:parts              hash    name → a large part of what is kept beside the history; those that
                                                    the head's extras name, and no others
    <prefix>:{<lane id>}:thread             list    messages of the text thread, where an adapter has a text window
    <prefix>:{<lane id>}:events             stream  what happens, live, and did in the last turns; trimmed
    <prefix>:{<lane id>}:waits              string  the turn that waits for requests, or did last
    <prefix>:{<lane id>}:open               set     the ids of turns that were submitted and have not ended
    <prefix>:{<lane id>}:owed:<turn id>     string  what a turn went by whose end its hooks were not told of yet
    <prefix>:{<lane id>}:wake               channel told the id of each new event, or when a turn ends `end:<turn id>`,
                                                    a line break and the turn's record as it is stored

Fields of an unfinished turn:

    in, p       its prompt, and the prompt's digest
    op          what the caller asked for beside the prompt, see `history.options`
    once        for a turn that keeps no history: for how many seconds after its end the lane's keys live on
    c:<client>  who has submitted it and was not refused
    th          its request is in the text thread
    b           when its first step began, in milliseconds since 1970
    se          the epoch that it stages for, once it has staged anything
    s<k>, m<k>  what step k staged when it was done, and between its model's answer and its end
    j<k>:<call> the journal of step k's tool call
    a<k>        the latest attempt at step k that has begun, where it is not the first
    h:<hook>    what a hook has decided
    f<k>:<n>    how attempt n at step k failed
    w<k>        the ids of the requests that step k ended waiting for, as JSON
    q:<id>      a request
    r:<id>      the answer to it
    k:<name>    a large part of what is to be kept beside the history, and is not among the lane's parts yet

A turn that waits has no time to live, however long that takes, and neither have those that are open then: they may be
behind it. With its next write a turn has one again.

Charges are fields `r:<step>:<attempt>:<n>` with the input tokens of a model request, reserved first and then measured,
and `t:<step>:<call>` for a tool call. They are summed up in r, t and i as they are made.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from hashlib import blake2b

from laneway.history.lanes import LaneKey

__all__ = ["Answer", "LaneNames", "conversation_name"]


class Answer(StrEnum):
    """What a script says happened."""

    OK = "ok"
    ENDED = "ended"
    """The turn has ended; its record follows."""
    STALE = "stale"
    """The head has moved since the turn began; its version follows."""
    REPLACED = "replaced"
    """A later attempt at the step has begun; its number follows."""
    EXISTS = "exists"
    """The field was staged before; what it holds follows."""
    CONFLICT = "conflict"
    """The turn id holds another prompt."""
    OVER = "over"
    """A budget forbids it; scope, dimension, limit and what is consumed follow."""
    UNKNOWN = "unknown"
    """The turn has no such request."""
    DAMAGED = "damaged"
    """The epoch's list is not as long as the head says; its length follows."""
    MISSING = "missing"
    """A part that the head is to name is nowhere; its name follows."""


def conversation_name(prefix: str, conversation: str) -> str:
    """The name of a conversation's index of lanes."""
    return f"{prefix}:conversation:{blake2b(conversation.encode(), digest_size=12).hexdigest()}"


@dataclass(frozen=True)
class LaneNames:
    """The names of one lane's keys."""

    base: str

    @classmethod
    def of(cls, prefix: str, lane: LaneKey) -> LaneNames:
        """The names of `lane`'s keys, where every key begins with `prefix`."""
        return cls(f"{prefix}:{{{lane.lane_id}}}:")

    @property
    def head(self) -> str:
        """The committed state."""
        return self.base + "head"

    @property
    def turns(self) -> str:
        """The records of turns that have ended."""
        return self.base + "turns"

    @property
    def events(self) -> str:
        """The stream."""
        return self.base + "events"

    @property
    def waits(self) -> str:
        """The turn that waits for requests, or did last."""
        return self.base + "waits"

    @property
    def wake(self) -> str:
        """The channel."""
        return self.base + "wake"

    @property
    def archive(self) -> str:
        """What turns that committed have archived."""
        return self.base + "archive"

    def archive_of(self, turn_id: str) -> str:
        """What an unfinished turn has archived."""
        return f"{self.base}archive:{turn_id}"

    @property
    def parts(self) -> str:
        """Large parts of what is kept beside the history."""
        return self.base + "parts"

    @property
    def thread(self) -> str:
        """The text thread."""
        return self.base + "thread"

    @property
    def spent(self) -> str:
        """What all ended turns have spent."""
        return self.base + "spent"

    def spent_of(self, turn_id: str) -> str:
        """What an unfinished turn has spent, where it has a budget."""
        return f"{self.base}spent:{turn_id}"

    def epoch(self, epoch: int) -> str:
        """The entries of a cache epoch."""
        return f"{self.base}epoch:{epoch}"

    def owed(self, turn_id: str) -> str:
        """What a turn went by whose end its hooks were not told of yet."""
        return f"{self.base}owed:{turn_id}"

    def turn(self, turn_id: str) -> str:
        """An unfinished turn."""
        return f"{self.base}turn:{turn_id}"

    def stage(self, turn_id: str, epoch: int) -> str:
        """The entries that a turn has staged for an epoch."""
        return f"{self.base}stage:{turn_id}:{epoch}"
