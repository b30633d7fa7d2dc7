"""What goes between the client, the lane workflow and the activities: references and decisions, never a message.

One argument and one result for each, as frozen dataclasses with defaults, so that fields can be added while older
workflows run. Names of activities, updates, signals and error types stand here, beside both of their users. Field names
are short: they are written into Temporal's history once for every turn.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

__all__ = [
    "ABORT_TURN",
    "ANSWER_REQUEST",
    "CANCEL_TURN",
    "LANE_STATUS",
    "LANE_WORKFLOW",
    "RUN_STEP",
    "SUBMIT_TURN",
    "AbortInput",
    "AnswerNotice",
    "Awaited",
    "CancelRequest",
    "ChildTurn",
    "Ending",
    "LaneInput",
    "LaneLimits",
    "LaneView",
    "QueuedTurn",
    "StepInput",
    "StepOutcome",
    "SubmitReceipt",
    "SuspendedTurn",
    "WhenBusy",
]

LANE_WORKFLOW = "Lane"
RUN_STEP = "step"
ABORT_TURN = "abort"
SUBMIT_TURN = "submit"
CANCEL_TURN = "cancel"
ANSWER_REQUEST = "answer"
LANE_STATUS = "status"

WhenBusy = Literal["enqueue", "reject", "interrupt", "steer"]


@dataclass(frozen=True)
class LaneLimits:
    """What a lane's workflow goes by. Times are in seconds.

    Attributes:
        queue: how many turns may wait.
        turns: after how many turns the workflow continues as new.
        idle: after how long without a turn it completes.
        heartbeat: after how long without a heartbeat a step counts as lost.
        step: how long one attempt at an activity of steps may take.
        run: how long a run of the workflow lasts at least, before it continues as new for its number of turns. It does
            so with the next turn. None, of lanes that began before there was this: with the end of a turn.
    """

    queue: int = 100
    turns: int = 500
    idle: float = 3600.0
    heartbeat: float = 5.0
    step: float = 600.0
    run: float | None = None


@dataclass(frozen=True)
class QueuedTurn:
    """A turn that was accepted, or is to be.

    Attributes:
        id: the turn.
        p: its prompt's digest.
        d: when it times out, in seconds since 1970; None for never.
        t: its timeout in seconds, as the client gave it.
        b: what to do where the lane is busy.
        w: with `interrupt`, whether the turns that wait are cancelled as well.
    """

    id: str
    p: str
    d: float | None = None
    t: float | None = None
    b: WhenBusy = "enqueue"
    w: bool = False


@dataclass(frozen=True)
class SubmitReceipt:
    """What the lane answers to a submit.

    Attributes:
        s: `new` for a turn accepted now, `known` for one that was accepted before, `ended` for one that has ended,
            `conflict` where the id was accepted with another prompt.
        q: how many turns are before it.
    """

    s: Literal["new", "known", "ended", "conflict"]
    q: int = 0


@dataclass(frozen=True)
class CancelRequest:
    """The turn to cancel."""

    id: str


@dataclass(frozen=True)
class AnswerNotice:
    """A request has its answer, in Redis.

    Attributes:
        t: the turn that waits for it.
        r: the request.
        g: the answer's digest, for whoever reads the workflow's history.
    """

    t: str
    r: str
    g: str = ""


@dataclass(frozen=True)
class ChildTurn:
    """A turn of another agent that does delegated work.

    Attributes:
        c, a, k: its lane: conversation, agent, contract.
        t, p: the turn, and its prompt's digest.
        w: the id of its workflow.
        s: its timeout in seconds.
        n: the delegate's name.
        m: how many of that name a turn may run at a time.
    """

    c: str
    a: str
    k: str
    t: str
    p: str
    w: str
    s: float
    n: str
    m: int


@dataclass(frozen=True)
class Awaited:
    """A request that a turn waits for.

    Attributes:
        r: the request.
        d: when its default answer counts, in seconds since 1970; None for never.
        c: the turn that answers it; None where somebody outside does.
    """

    r: str
    d: float | None = None
    c: ChildTurn | None = None


@dataclass(frozen=True)
class Ending:
    """A turn that is to end without a commit.

    Attributes:
        id: the turn.
        o: how it ends.
        e: for a failed turn, the type and the message of its error.
    """

    id: str
    o: Literal["failed", "cancelled"]
    e: list[str] = field(default_factory=list[str])


@dataclass(frozen=True)
class SuspendedTurn:
    """A turn that waits for requests while its workflow continues as new.

    Attributes:
        turn: which.
        n: the step that ended waiting.
        w: what it waits for.
        a: the requests that have their answers.
        s: the messages that steer it, as turns, in order.
        u: those of them that it has taken in.
        x: how those of them that it has taken in are to end where it comes to nothing.
    """

    turn: QueuedTurn
    n: int
    w: list[Awaited]
    a: list[str] = field(default_factory=list[str])
    s: list[QueuedTurn] = field(default_factory=list[QueuedTurn])
    u: list[str] = field(default_factory=list[str])
    x: list[Ending] = field(default_factory=list[Ending])


@dataclass(frozen=True)
class LaneInput:
    """What a lane's workflow begins with, and carries when it continues as new.

    Attributes:
        c: the conversation.
        a: the agent.
        k: the contract.
        limits: see `LaneLimits`.
        head: the version that the lane's head has; None where the workflow does not know it.
        queue: turns that wait.
        ledger: recently ended turns, oldest first: id and prompt digest.
        ended: how many turns have ended in earlier runs.
        waits: the turn that waits for requests; None where none does.
        once: whether the workflow completes as soon as no turn waits: it is a child, there for one turn.
    """

    c: str
    a: str
    k: str
    limits: LaneLimits = LaneLimits()
    head: int | None = None
    queue: list[QueuedTurn] = field(default_factory=list[QueuedTurn])
    ledger: list[list[str]] = field(default_factory=list[list[str]])
    ended: int = 0
    waits: SuspendedTurn | None = None
    once: bool = False


@dataclass(frozen=True)
class StepInput:
    """The step that an activity begins with.

    Attributes:
        c, a, k: the lane: conversation, agent, contract.
        t: the turn.
        p: its prompt's digest.
        n: the step, from 0.
        v: the version that the head must have; None where the workflow does not know it.
        u: the messages that steer the turn, and that it has not taken in, in order.
        f: how many attempts at it may have begun in the activity before.
    """

    c: str
    a: str
    k: str
    t: str
    p: str
    n: int = 0
    v: int | None = None
    u: list[str] = field(default_factory=list[str])
    f: int = 0


@dataclass(frozen=True)
class StepOutcome:
    """How the last step of an activity ended.

    Attributes:
        s: `next` where the turn goes on with another step, `waiting` where it does once requests are answered; else
            how the turn ended.
        v: the head's version now.
        w: what it waits for.
        u: the messages that steer the turn and that it has taken in by now.
        n: the step that ended so, where the activity took more than the one that it was given; else 0.
        f: see `StepInput`, of the next step.
    """

    s: Literal["next", "waiting", "committed", "failed", "cancelled"]
    v: int
    w: list[Awaited] = field(default_factory=list[Awaited])
    u: list[str] = field(default_factory=list[str])
    n: int = 0
    f: int = 0


@dataclass(frozen=True)
class AbortInput:
    """A turn to end without a commit.

    Attributes:
        c, a, k, t, p: as for a step.
        n: how many steps had begun.
        o: how it ends.
        e: for a failed turn, the type and the message of its error.
    """

    c: str
    a: str
    k: str
    t: str
    p: str
    n: int
    o: Literal["failed", "cancelled"]
    e: list[str] = field(default_factory=list[str])


@dataclass(frozen=True)
class LaneView:
    """What a lane's workflow shows of itself.

    Attributes:
        turn: the turn that runs; None where none does.
        step: the step that it is at.
        queue: the turns that wait, in order.
        cancelling: whether the turn that runs is being cancelled.
        ended: how many turns have ended since the workflow was first started.
        leaving: turns that waited, and are ending without having run.
        waiting: the requests that the turn that runs waits for, and that have no answer.
        steering: the messages that steer the turn that runs, in order.
    """

    turn: str | None
    step: int
    queue: list[str]
    cancelling: bool
    ended: int
    leaving: list[str] = field(default_factory=list[str])
    waiting: list[str] = field(default_factory=list[str])
    steering: list[str] = field(default_factory=list[str])
