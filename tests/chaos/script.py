"""What the scripted agents say: a pure function of what they are asked, so that a whole lane can be played again.

Knows neither Laneway nor Pydantic AI: the checker plays with it what the workers should have done. A message is a role
and its parts, in a form of this package's own:

    ("request", [["prompt", text], ["result", tool, call id, outcome, content], ["feedback"]])
    ("response", [["text", text], ["call", tool, call id, arguments as JSON]])

System prompts are left out, since they may change between two turns.

What comes from outside of a turn (what its children came to, what people answered, what steered it) is not in the
script. `sightings` reads it off messages, so that a turn can be played with it; whether it is right is judged apart.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from hashlib import blake2b
from typing import Any

__all__ = [
    "GRAPHS",
    "TEAMS",
    "WAITS",
    "Delegate",
    "Failed",
    "Message",
    "Outside",
    "Part",
    "Plan",
    "Played",
    "ask",
    "briefs",
    "digest",
    "in_order",
    "kept_in",
    "own_of",
    "play",
    "respond",
    "sightings",
    "told_of_kept",
    "tool_result",
]

Part = list[str]
Message = tuple[str, list[Part]]


GRAPHS = ("graph", "scribe")
"""The agents that are graphs of LangGraph's."""

WAITS = ("sign", "measure")
"""Tools that wait: for leave to run, and for a result from elsewhere."""


@dataclass(frozen=True)
class Delegate:
    """An agent that another one hands work to, as its `Delegation` says."""

    agent: str
    keep: bool = False
    fails_turn: bool = False


TEAMS: Mapping[str, Mapping[str, Delegate]] = {
    "plain": {
        "reader": Delegate("reader"),
        "scribe": Delegate("scribe"),
        "kept": Delegate("scribe", keep=True),
        "strict": Delegate("reader", fails_turn=True),
    },
    "graph": {
        "reader": Delegate("reader"),
        "scribe": Delegate("scribe"),
        "kept": Delegate("reader", keep=True),
        "strict": Delegate("scribe", fails_turn=True),
    },
    "reader": {"below": Delegate("scribe")},
    "scribe": {"below": Delegate("reader")},
}
"""Who hands work to whom. `reader` is an agent of Pydantic AI, `scribe` a graph."""

_DELEGATE = "delegate_to_"
_KEPT = "delegate_to_kept"


class Failed(Exception):
    """The turn fails here.

    Attributes:
        kind: the name of the error's class.
    """

    def __init__(self, kind: str) -> None:
        super().__init__(kind)
        self.kind = kind


@dataclass(frozen=True)
class Plan:
    """What a turn is to do; its JSON form is the turn's prompt.

    Attributes:
        id: the turn's id.
        rounds: the batches of tools that the model calls before it answers.
        pace: how long each of the model's answers takes, in seconds.
        tool_pace: how long each tool takes.
        fail: the model's last answer raises an error.
        redo: the first output is refused by the output validator, where the agent has one.
        flaky: the provider refuses each first attempt at the turn's first request.
        other: tells a prompt from another one under the same turn id.
        hands: the plans of the turns that its delegations start, in the order of the calls, without their ids.
        anew: its calls of `kept` begin another conversation, though there is one.
    """

    id: str
    rounds: list[list[str]] = field(default_factory=list[list[str]])
    pace: float = 0.0
    tool_pace: float = 0.0
    fail: bool = False
    redo: bool = False
    flaky: bool = False
    other: bool = False
    hands: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    anew: bool = False

    def to_prompt(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_prompt(cls, prompt: str) -> Plan:
        return cls(**json.loads(prompt))


def digest(messages: Sequence[Message], after: str = "") -> str:
    """Names a list of messages; `after` names those before them."""
    for message in messages:
        after = blake2b((after + json.dumps(message)).encode(), digest_size=12).hexdigest()
    return after


@dataclass(frozen=True)
class Outside:
    """What comes to a turn from outside.

    Attributes:
        results: by tool call, the outcome and the content of what was waited for.
        steered: by how many answers the model had given, the prompts that came in then.
    """

    results: Mapping[str, list[str]] = field(default_factory=dict[str, list[str]])
    steered: Mapping[str, list[str]] = field(default_factory=dict[str, list[str]])


def is_outside(tool: str) -> bool:
    """Whether a tool's result comes from outside of the turn."""
    return tool in WAITS or tool.startswith(_DELEGATE)


def in_order(parts: list[Part]) -> list[Part]:
    """A request's parts with its results in the order of their calls, where some of them come from outside.

    Pydantic AI tells of those after the others.
    """
    results = [part for part in parts if part[0] == "result"]
    if not any(is_outside(part[1]) for part in results):
        return parts
    results.sort(key=lambda part: int(part[2].rpartition(".")[2]))
    return [*results, *(part for part in parts if part[0] != "result")]


def sightings(own: Sequence[Message]) -> Outside:
    """What came from outside, as a turn's own messages have it."""
    results: dict[str, list[str]] = {}
    steered: dict[str, list[str]] = {}
    answers = 0
    for role, parts in own:
        if role == "response":
            answers += 1
            continue
        prompts = [part[1] for part in parts if part[0] == "prompt"]
        if steering := prompts[1:] if parts[0][0] == "prompt" else prompts:
            steered[str(answers)] = steering
        for part in parts:
            if part[0] == "result" and is_outside(part[1]):
                results[part[2]] = part[3:]
    return Outside(results, steered)


def told_of_kept(child: str, output: str) -> str:
    """How the result of a kept conversation's run is told in the script's form."""
    return f"{child}: {output}"


def kept_in(messages: Sequence[Message], before: str | None = None) -> str | None:
    """The id of the conversation that `kept` goes on with: the last one that messages tell of; else `before`."""
    for _, parts in reversed(messages):
        for part in reversed(parts):
            if part[:2] == ["result", _KEPT] and part[3] == "success":
                return part[4].partition(": ")[0]
    return before


def own_of(messages: Sequence[Message]) -> Sequence[Message]:
    """The messages of the turn that the last ones belong to. Only its prompt comes first in a request."""
    for at in range(len(messages) - 1, -1, -1):
        role, parts = messages[at]
        if role == "request" and parts and parts[0][0] == "prompt":
            return messages[at:]
    raise ValueError("no message has a prompt")


def ask(messages: Sequence[Message]) -> tuple[Plan, int]:
    """The plan of the turn that the last messages belong to, and how many answers it was given already."""
    own = own_of(messages)
    return Plan.from_prompt(own[0][1][0][1]), sum(role == "response" for role, _ in own)


def respond(messages: Sequence[Message], after: str = "", kept: str | None = None) -> list[Part]:
    """The model's answer.

    Args:
        messages: all, or those of the turn.
        after: names messages before these, of earlier turns.
        kept: the conversation that those would go on with.

    Raises:
        Failed: it has none.
    """
    own = own_of(messages)
    plan, answers = ask(own)
    done, again = 0, list[str]()
    for _, parts in own:
        results = [part for part in parts if part[0] == "result"]
        if results:
            again = [tool for _, tool, _, outcome, _ in results if outcome == "retried"]
            done += not again
    tools = again or (plan.rounds[done] if done < len(plan.rounds) else [])
    if tools:
        goes_on = None if plan.anew else kept_in(messages, kept)
        handed = sum(tool.startswith(_DELEGATE) for earlier in plan.rounds[:done] for tool in earlier)
        calls: list[Part] = []
        for index, tool in enumerate(tools):
            name = f"{plan.id}.{answers}.{index}"
            arguments = {"call": name}
            if tool.startswith(_DELEGATE):
                arguments = {"brief": Plan(name, **plan.hands[handed]).to_prompt()}
                handed += 1
                if tool == _KEPT and goes_on is not None:
                    arguments["child"] = goes_on
            calls.append(["call", tool, name, json.dumps(arguments)])
        return calls
    if plan.fail:
        raise Failed("ValueError")
    return [["text", f"{plan.id}: {digest(messages, after)}"]]


def briefs(prompt: str) -> Iterator[tuple[str, str, str]]:
    """The work that a turn may hand out, and what that may: the delegate, the call and the prompt of each.

    A plan with delegations has no call that is made again, so a batch's place is its round.
    """
    plan = Plan.from_prompt(prompt)
    handed = iter(plan.hands)
    for at, tools in enumerate(plan.rounds):
        for index, tool in enumerate(tools):
            if tool.startswith(_DELEGATE):
                call = f"{plan.id}.{at}.{index}"
                brief = Plan(call, **next(handed)).to_prompt()
                yield tool.removeprefix(_DELEGATE), call, brief
                yield from briefs(brief)


def tool_result(tool: str, call: str, *, retried: bool, outside: Outside | None = None) -> Part:
    """What a tool comes to. `shy` refuses a turn's first call.

    Raises:
        Failed: the tool breaks.
    """
    if tool == "broken":
        raise Failed("RuntimeError")
    if is_outside(tool):
        known = {} if outside is None else outside.results
        return ["result", tool, call, *known.get(call, ["success", "nobody knows"])]
    if tool == "shy" and not retried:
        return ["result", tool, call, "retried", "again"]
    return ["result", tool, call, "success", f"{tool} {call}"]


@dataclass
class Played:
    """A turn as it goes without any interruption.

    Attributes:
        messages: what it adds to the history, up to where it fails.
        asked: names each list of messages that its model is asked.
        failed: the name of the error that it fails with.
    """

    messages: list[Message]
    asked: list[str] = field(default_factory=list[str])
    failed: str | None = None

    @property
    def output(self) -> str:
        """What it answers."""
        role, parts = self.messages[-1]
        return parts[0][1] if role == "response" else ""


def play(
    prompt: str, *, after: str, validates: bool, kept: str | None = None, outside: Outside | None = None
) -> Played:
    """Play a whole turn on top of the history that `after` names, in which `kept` is the conversation to go on with."""
    played = Played([("request", [["prompt", prompt]])])
    try:
        _play(played, after, kept, prompt, outside or Outside(), validates=validates)
    except Failed as failed:
        played.failed = failed.kind
    return played


def _play(played: Played, after: str, kept: str | None, prompt: str, outside: Outside, *, validates: bool) -> None:
    own, retried, refused = played.messages, False, False
    while True:
        own[-1][1].extend(["prompt", text] for text in outside.steered.get(str(len(played.asked)), ()))
        played.asked.append(digest(own, after))
        parts = respond(own, after, kept)
        own.append(("response", parts))
        calls = [part for part in parts if part[0] == "call"]
        if calls:
            results = [tool_result(tool, call, retried=retried, outside=outside) for _, tool, call, _ in calls]
            retried = retried or any(part[3] == "retried" for part in results)
            own.append(("request", results))
        elif validates and Plan.from_prompt(prompt).redo and not refused:
            refused = True
            own.append(("request", [["feedback"]]))
        else:
            return
