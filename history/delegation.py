"""Work that an agent hands to another one: what may be handed on, and which turn does it. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from hashlib import blake2b
from types import NoneType
from typing import Any, Final, Literal, Self, cast

from laneway.errors import ConfigurationError, InvalidArgument, InvalidInput
from laneway.history.budget import RequestBudget
from laneway.history.lanes import LaneKey, check_name

__all__ = [
    "ChildRef",
    "Delegation",
    "Kept",
    "brief_of",
    "child_conversation",
    "kept_of",
    "superseded_of",
    "tools_of",
    "with_kept",
]

OnFailure = Literal["tell_model", "fail_turn"]

MAX_CONCURRENCY: Final = 32
_LONGEST: Final = timedelta(days=10_000)
_KEPT: Final = "kept"
_SUPERSEDED: Final = "superseded"
_TOOL_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")


@dataclass(frozen=True)
class Delegation:
    """An agent to which another one can hand work, as a tool of the other one's model.

    Attributes:
        agent: the name under which the application has registered it.
        description: tells the model what it is for.
        timeout: how long one run may take, what it waits for included.
        max_depth: how deep a tree of delegated turns may become, counted from the turn that a caller submitted.
        max_concurrency: how many of a turn's runs of it there may be at a time, 1 to 32; the others wait.
        budget: of each run; those of the turns above hold for it as well, and count it.
        keep: whether the model can go on with a run's conversation later, by an id that it is given with the output.
        on_failure: where a run fails, tell the model, or fail the turn.
        max_turns: how many runs a kept conversation takes.
        tool_name: the tool's name; `delegate_to_` and the delegate's name by default.
        parameters: a JSON schema of the tool's parameters in place of `brief`; the run's prompt is then `brief` where
            there is a parameter of that name, else all of them as JSON.

    Raises:
        InvalidArgument: one of them cannot be such.
    """

    agent: str
    description: str
    timeout: timedelta | float = timedelta(seconds=120)
    max_depth: int = 5
    max_concurrency: int = 4
    budget: RequestBudget | None = None
    keep: bool = False
    on_failure: OnFailure = "tell_model"
    max_turns: int = 8
    tool_name: str | None = None
    parameters: Mapping[str, Any] | None = None

    def __post_init__(self) -> None:
        def refuse(what: str, value: object, rule: str) -> ConfigurationError:
            return InvalidArgument(f"a Delegation's {what} is {value!r}: {rule}")

        try:
            check_name(self.agent, what="a delegate's agent")
        except InvalidInput as error:
            raise InvalidArgument(str(error)) from None
        if not isinstance(cast("object", self.description), str) or not self.description.strip():
            raise refuse("description", self.description, "tell the model what the agent is for")
        timeout: object = self.timeout
        is_number = isinstance(timeout, int | float) and not isinstance(timeout, bool)
        if not (is_number or isinstance(timeout, timedelta)) or not 0 < self.seconds <= _LONGEST.total_seconds():
            raise refuse("timeout", timeout, f"give a positive one of at most {_LONGEST.days} days, in seconds")
        for name, kind, rule in (
            ("budget", (RequestBudget, NoneType), "give RequestBudget(…), or None for no limit"),
            ("keep", bool, "give True or False"),
            ("tool_name", (str, NoneType), "give text, or None for the usual one"),
            ("parameters", (Mapping, NoneType), "give a JSON schema of an object, or None for a brief"),
        ):
            if not isinstance(getattr(self, name), kind):
                raise refuse(name, getattr(self, name), rule)
        for name, least, most in (
            ("max_depth", 1, 100),
            ("max_concurrency", 1, MAX_CONCURRENCY),
            ("max_turns", 1, 1000),
        ):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
                raise refuse(name, value, f"give an int from {least} to {most}")
        if self.on_failure not in ("tell_model", "fail_turn"):
            raise refuse("on_failure", self.on_failure, "give 'tell_model' or 'fail_turn'")
        if self.tool_name is not None and not _TOOL_NAME.fullmatch(self.tool_name):
            raise refuse("tool_name", self.tool_name, "give 1 to 64 letters, digits, - and _")
        if self.parameters is not None and self.parameters.get("type") != "object":
            raise refuse("parameters", dict(self.parameters), "give a JSON schema of an object")
        try:
            json.dumps(self.schema)
        except (TypeError, ValueError) as error:
            raise refuse("parameters", self.parameters, f"give JSON values ({error})") from None

    @property
    def seconds(self) -> float:
        """The timeout in seconds."""
        return self.timeout.total_seconds() if isinstance(self.timeout, timedelta) else float(self.timeout)

    @property
    def schema(self) -> Mapping[str, Any]:
        """The JSON schema of the tool's parameters."""
        if self.parameters is not None:
            schema = dict(self.parameters)
            properties: dict[str, object] = dict(schema.get("properties", {}))
        else:
            brief: dict[str, object] = {
                "type": "string",
                "minLength": 1,
                "description": "All that the agent needs to know to do it.",
            }
            properties = {"brief": brief}
            schema = {"type": "object", "required": ["brief"], "additionalProperties": False}
        if self.keep:
            what = "The id of an earlier conversation with the agent, to go on with it."
            properties["child"] = {"type": "string", "description": what}
        return {**schema, "properties": properties}

    def to_data(self) -> dict[str, object]:
        """What a run goes by, as JSON has it."""
        return {
            "agent": self.agent,
            "description": self.description,
            "timeout": self.seconds,
            "max_depth": self.max_depth,
            "max_concurrency": self.max_concurrency,
            "budget": None if self.budget is None else self.budget.to_data(),
            "keep": self.keep,
            "on_failure": self.on_failure,
            "max_turns": self.max_turns,
            "parameters": None if self.parameters is None else dict(self.parameters),
        }

    @classmethod
    def from_data(cls, data: Mapping[str, Any]) -> Self:
        """Read what `to_data` gives."""
        given = dict(data)
        budget = given.pop("budget", None)
        return cls(budget=None if budget is None else RequestBudget.from_data(budget), **given)


def tools_of(delegates: Mapping[str, Delegation]) -> dict[str, str]:
    """The delegates' names by the names of their tools.

    Raises:
        ConfigurationError: a name cannot be one, or two tools have the same.
    """
    found: dict[str, str] = {}
    for name, delegation in delegates.items():
        if not isinstance(cast("object", delegation), Delegation):
            raise ConfigurationError(f"delegate {name!r} is a {type(delegation).__name__}: give a Delegation")
        tool = delegation.tool_name or f"delegate_to_{name}"
        if not _TOOL_NAME.fullmatch(tool):
            raise ConfigurationError(
                f"delegate {name!r} would have the tool {tool!r}: name it with letters, digits, - and _ only"
            )
        if tool in found:
            raise ConfigurationError(f"delegates {found[tool]!r} and {name!r} have the same tool {tool!r}")
        found[tool] = name
    return found


@dataclass(frozen=True)
class ChildRef:
    """A turn that another turn handed work to.

    Attributes:
        delegate: the delegate's name.
        lane: the child's lane.
        turn_id: its turn.
        kept: the id by which the conversation can be gone on with; None where it cannot.
        turns: which run of that conversation it is, from 1.
    """

    delegate: str
    lane: LaneKey
    turn_id: str
    kept: str | None = None
    turns: int = 1

    def to_data(self) -> list[object]:
        """As JSON has it."""
        lane = self.lane
        return [self.delegate, lane.conversation, lane.agent, lane.contract, self.turn_id, self.kept, self.turns]

    @classmethod
    def from_data(cls, data: Iterable[Any]) -> Self:
        """Read what `to_data` gives."""
        delegate, conversation, agent, contract, turn_id, kept, turns = data
        return cls(delegate, LaneKey(conversation, agent, contract), turn_id, kept, turns)


Kept = Mapping[str, ChildRef]
"""The latest completed run of each kept conversation, by its id."""


def kept_of(extras: Mapping[str, object]) -> dict[str, ChildRef]:
    """What a lane's extras say of kept conversations."""
    found = cast("Mapping[str, list[Any]]", extras.get(_KEPT, {}))
    return {one: ChildRef.from_data(data) for one, data in found.items()}


def superseded_of(extras: Mapping[str, object]) -> list[ChildRef]:
    """The runs of kept conversations that a lane's last turn put others in the place of."""
    return [ChildRef.from_data(data) for data in cast("list[list[Any]]", extras.get(_SUPERSEDED, ()))]


def with_kept(extras: Mapping[str, object], kept: Kept, runs: Iterable[ChildRef]) -> dict[str, object]:
    """A lane's extras, as a turn commits them.

    Args:
        extras: what is kept beside the history otherwise.
        kept: where kept conversations stand from now on.
        runs: those at which they stood before, and those that the turn had made.
    """
    superseded = {run.lane: run for run in runs if run.kept is not None and kept.get(run.kept) != run}
    found = {name: value for name, value in extras.items() if name not in (_KEPT, _SUPERSEDED)}
    if kept:
        found[_KEPT] = {one: run.to_data() for one, run in kept.items()}
    if superseded:
        found[_SUPERSEDED] = [run.to_data() for run in superseded.values()]
    return found


def child_conversation(lane_id: str, turn_id: str, request: str) -> str:
    """The conversation of a child: of its own for each request, the same one when a step is tried again."""
    names = "\0".join((lane_id, turn_id, request))
    return f"child-{blake2b(names.encode(), digest_size=12).hexdigest()}"


def brief_of(delegation: Delegation, payload: Mapping[str, Any]) -> str:
    """The prompt that a call's arguments make."""
    arguments = {name: value for name, value in payload.items() if not (delegation.keep and name == "child")}
    brief = arguments.get("brief")
    return brief if isinstance(brief, str) else json.dumps(arguments, ensure_ascii=False)
