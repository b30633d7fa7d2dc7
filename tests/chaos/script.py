"""What the scripted agents say: a pure function of what they are asked, so that a whole lane can be played again.

Knows neither Laneway nor Pydantic AI: the checker plays with it what the workers should have done. A message is a role
and its parts, in a form of this package's own:

    ("request", [["prompt", text], ["result", tool, call id, outcome, content], ["feedback"]])
    ("response", [["text", text], ["call", tool, call id, arguments as JSON]])

System prompts are left out, since they may change between two turns.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from hashlib import blake2b

__all__ = ["Failed", "Message", "Part", "Plan", "Played", "ask", "digest", "play", "respond", "tool_result"]

Part = list[str]
Message = tuple[str, list[Part]]


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
    """

    id: str
    rounds: list[list[str]] = field(default_factory=list[list[str]])
    pace: float = 0.0
    tool_pace: float = 0.0
    fail: bool = False
    redo: bool = False
    flaky: bool = False
    other: bool = False

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


def ask(messages: Sequence[Message]) -> tuple[Plan, int]:
    """The plan of the last prompt, and how many answers it was given already."""
    for at in range(len(messages) - 1, -1, -1):
        role, parts = messages[at]
        prompts = [part[1] for part in parts if part[0] == "prompt"]
        if role == "request" and prompts:
            return Plan.from_prompt(prompts[-1]), sum(role == "response" for role, _ in messages[at:])
    raise ValueError("no message has a prompt")


def respond(messages: Sequence[Message], after: str = "") -> list[Part]:
    """The model's answer; `after` names messages before these, of earlier turns.

    Raises:
        Failed: it has none.
    """
    plan, answers = ask(messages)
    own = messages[-2 * answers - 1 :]
    done, again = 0, list[str]()
    for _, parts in own:
        results = [part for part in parts if part[0] == "result"]
        if results:
            again = [tool for _, tool, _, outcome, _ in results if outcome == "retried"]
            done += not again
    tools = again or (plan.rounds[done] if done < len(plan.rounds) else [])
    if tools:
        names = [f"{plan.id}.{answers}.{index}" for index in range(len(tools))]
        return [["call", tool, name, json.dumps({"call": name})] for tool, name in zip(tools, names, strict=True)]
    if plan.fail:
        raise Failed("ValueError")
    return [["text", f"{plan.id}: {digest(messages, after)}"]]


def tool_result(tool: str, call: str, *, retried: bool) -> Part:
    """What a tool comes to. `shy` refuses a turn's first call.

    Raises:
        Failed: the tool breaks.
    """
    if tool == "broken":
        raise Failed("RuntimeError")
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


def play(prompt: str, *, after: str, validates: bool) -> Played:
    """Play a whole turn on top of the history that `after` names."""
    played = Played([("request", [["prompt", prompt]])])
    try:
        _play(played, after, prompt, validates=validates)
    except Failed as failed:
        played.failed = failed.kind
    return played


def _play(played: Played, after: str, prompt: str, *, validates: bool) -> None:
    own, retried, refused = played.messages, False, False
    while True:
        played.asked.append(digest(own, after))
        parts = respond(own, after)
        own.append(("response", parts))
        calls = [part for part in parts if part[0] == "call"]
        if calls:
            results = [tool_result(tool, call, retried=retried) for _, tool, call, _ in calls]
            retried = retried or any(part[3] == "retried" for part in results)
            own.append(("request", results))
        elif validates and Plan.from_prompt(prompt).redo and not refused:
            refused = True
            own.append(("request", [["feedback"]]))
        else:
            return
