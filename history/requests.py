"""What a turn waits for, and the answers to it. Pure.

A step that cannot go on by itself ends *waiting* on requests: approvals of a person, results of another system, answers
to questions, turns of other agents. They are staged with the step, and stay until the turn ends, each with its answer.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, Literal, Self, cast, get_args

from laneway.errors import InvalidInput
from laneway.history.delegation import ChildRef, Delegation

__all__ = [
    "Answer",
    "AnswerKind",
    "Answered",
    "PendingRequest",
    "RequestKind",
    "StoredRequest",
    "answers_since",
    "approve",
    "check_answer",
    "check_payload",
    "deny",
    "failed",
    "first_of_episode",
    "request_id",
    "requests_of",
    "result",
]

RequestKind = Literal["approval", "external", "question", "delegation"]
"""What a request waits for: leave to run a tool, the result of a tool that runs elsewhere, a person's answer, or the
output of another agent's turn."""

AnswerKind = Literal["approved", "denied", "result", "error"]

_TAKES: Mapping[RequestKind, tuple[AnswerKind, ...]] = {
    "approval": ("approved", "denied"),
    "external": ("result", "error"),
    "question": ("result", "error", "approved", "denied"),
    "delegation": (),  # only its child answers it
}
_HOW: Mapping[AnswerKind, str] = {
    "approved": "approve()",
    "denied": 'deny("why")',
    "result": "result=…",
    "error": 'failed("why")',
}


@dataclass(frozen=True)
class Answer:
    """The answer to a request. Made by `approve`, `deny`, `result` and `failed`.

    Attributes:
        kind: of which kind.
        arguments: with `approved`, what the tool is called with in place of the model's arguments.
        reason: why it was denied, or how it failed.
        value: the result, as JSON.

    Raises:
        InvalidInput: the kind is unknown, the reason is no text, or the arguments are no mapping.
    """

    kind: AnswerKind
    arguments: Mapping[str, Any] | None = None
    reason: str | None = None
    value: Any = None

    def __post_init__(self) -> None:
        if self.kind not in get_args(AnswerKind):
            raise InvalidInput(f"the answer's kind is {self.kind!r}: give one of {', '.join(get_args(AnswerKind))}")
        if self.reason is not None and not isinstance(cast("object", self.reason), str):
            raise InvalidInput(f"the answer's reason is {self.reason!r} ({type(self.reason).__name__}): give text")
        if self.arguments is not None and not isinstance(cast("object", self.arguments), Mapping):
            raise InvalidInput(
                f"the answer's arguments are {self.arguments!r} ({type(self.arguments).__name__}): give a dict by name"
            )

    def to_json(self) -> bytes:
        """The stored form.

        Raises:
            InvalidInput: something in it has no JSON form.
        """
        data: dict[str, object] = {"k": self.kind}
        if self.arguments is not None:
            data["a"] = dict(self.arguments)
        if self.reason is not None:
            data["r"] = self.reason
        if self.value is not None:
            data["v"] = self.value
        try:
            text = json.dumps(data, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
            return text.encode()
        except (TypeError, ValueError, RecursionError) as error:
            raise InvalidInput(f"the answer cannot be stored: {error}. Give JSON values") from error

    @classmethod
    def from_json(cls, blob: bytes) -> Self:
        """Read what `to_json` gives."""
        data = json.loads(blob)
        return cls(data["k"], data.get("a"), data.get("r"), data.get("v"))

    @property
    def digest(self) -> str:
        """Names the answer."""
        return blake2b(self.to_json(), digest_size=6).hexdigest()


def approve(arguments: Mapping[str, Any] | None = None) -> Answer:
    """Let a tool call run, with other arguments where they are given."""
    return Answer("approved", arguments=arguments)


def deny(reason: str = "The tool call was denied.") -> Answer:
    """Refuse a tool call; the model is told why."""
    return Answer("denied", reason=reason)


def result(value: Any) -> Answer:
    """What an external tool returned, or what was answered to a question."""
    return Answer("result", value=value)


def failed(reason: str) -> Answer:
    """An external tool failed, or a question will not be answered; the model is told why."""
    return Answer("error", reason=reason)


@dataclass(frozen=True)
class PendingRequest:
    """What a step waits for.

    Attributes:
        id: names it: see `request_id`.
        kind: see `RequestKind`.
        name: the tool that was called, or what asks.
        payload: what it was called with, or what is asked, as JSON.
        ref: the adapter's own name of it, such as the id of the tool call.
        schema: a JSON schema: with an approval of the tool's arguments, else of the result. None where any will do.
        timeout: after how many seconds `default` is the answer; None for never.
        default: see there.
        takes: which kinds of answers it takes; by its kind where there are none.
        metadata: what the tool says of it to whoever answers, as JSON.
        delegation: of a delegation, what it goes by.
        delegate: of a delegation, the delegate's name.
    """

    id: str
    kind: RequestKind
    name: str
    payload: Any = None
    ref: str = ""
    schema: Mapping[str, Any] | None = None
    timeout: float | None = None
    default: Answer | None = None
    takes: Sequence[AnswerKind] = ()
    metadata: Any = None
    delegation: Delegation | None = None
    delegate: str = ""

    def __post_init__(self) -> None:
        if (self.timeout is None) != (self.default is None):
            raise InvalidInput(f"request {self.name!r} has a timeout or a default answer, and not both: give both")
        if self.timeout is not None and not self.timeout > 0:
            raise InvalidInput(f"request {self.name!r} has a timeout of {self.timeout} s: give a positive one")
        if self.default is not None:
            check_answer(self, self.default)


@dataclass(frozen=True)
class StoredRequest:
    """A request as it is staged.

    Attributes:
        request: what is waited for.
        step: the step that ended waiting on it.
        since: from when on, in seconds since 1970.
        child: of a delegation, the turn that does the work; None where it was refused.
    """

    request: PendingRequest
    step: int
    since: float
    child: ChildRef | None = None

    @property
    def deadline(self) -> float | None:
        """When the default answer is the answer, in seconds since 1970; None for never."""
        return None if self.request.timeout is None else self.since + self.request.timeout

    def to_json(self) -> bytes:
        """The stored form.

        Raises:
            InvalidInput: its payload has no JSON form.
        """
        request = self.request
        data: dict[str, object] = {
            "i": request.id,
            "k": request.kind,
            "n": request.name,
            "p": request.payload,
            "s": self.step,
            "t": round(self.since * 1000),
        }
        optional = {
            "r": request.ref,
            "j": None if request.schema is None else dict(request.schema),
            "d": request.timeout,
            "x": None if request.default is None else request.default.to_json().decode(),
            "w": list(request.takes),
            "m": request.metadata,
            "g": None if request.delegation is None else request.delegation.to_data(),
            "e": request.delegate,
            "c": None if self.child is None else self.child.to_data(),
        }
        data |= {name: value for name, value in optional.items() if value}
        try:
            return json.dumps(data, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode()
        except (TypeError, ValueError, RecursionError) as error:
            raise InvalidInput(f"what {request.name!r} asks cannot be stored: {error}. Use JSON values") from error

    @classmethod
    def from_json(cls, blob: bytes) -> Self:
        """Read what `to_json` gives."""
        data = json.loads(blob)
        default = data.get("x")
        request = PendingRequest(
            data["i"],
            data["k"],
            data["n"],
            data["p"],
            data.get("r", ""),
            data.get("j"),
            data.get("d"),
            None if default is None else Answer.from_json(default.encode()),
            tuple(data.get("w", ())),
            data.get("m"),
            Delegation.from_data(data["g"]) if "g" in data else None,
            data.get("e", ""),
        )
        child = ChildRef.from_data(data["c"]) if "c" in data else None
        return cls(request, data["s"], data["t"] / 1000, child)


@dataclass(frozen=True)
class Answered:
    """A request and its answer, as the step after is given them.

    Attributes:
        request: what was asked.
        answer: the answer.
        step: the step that ended waiting on it.
    """

    request: PendingRequest
    answer: Answer
    step: int


def requests_of(fields: Mapping[str, bytes]) -> list[tuple[StoredRequest, Answer | None]]:
    """What a turn has waited for, each with its answer, in the order in which it came, from the turn's fields."""
    found: list[tuple[StoredRequest, Answer | None]] = []
    steps = sorted(int(name[1:]) for name in fields if name[0] == "w" and name[1:].isdigit())
    for step in steps:
        for one in json.loads(fields[f"w{step}"]):
            answer, asked = fields.get(f"r:{one}"), fields.get(f"q:{one}")
            if asked is None:
                continue  # the turn has ended while it was read
            found.append((StoredRequest.from_json(asked), None if answer is None else Answer.from_json(answer)))
    return found


def first_of_episode(fields: Mapping[str, bytes], step: int) -> int:
    """The first of the steps that ended waiting directly before `step`; `step` itself where none did."""
    while f"w{step - 1}" in fields:
        step -= 1
    return step


def answers_since(fields: Mapping[str, bytes], first: int) -> tuple[Answered, ...]:
    """What the steps from `first` on waited for, each with its answer, oldest first."""
    return tuple(
        Answered(stored.request, answer, stored.step)
        for stored, answer in requests_of(fields)
        if stored.step >= first and answer is not None
    )


def request_id(lane_id: str, turn_id: str, step: int, ref: str) -> str:
    """Names a request: the same one when the step is tried again, another one for any other request.

    Args:
        lane_id, turn_id, step: where it is asked.
        ref: tells it from the step's other requests.
    """
    names = json.dumps([lane_id, turn_id, step, ref], ensure_ascii=False)
    return blake2b(names.encode(), digest_size=6).hexdigest()


def check_answer(request: PendingRequest, answer: Answer) -> Answer:
    """Make sure that an answer is one to this request.

    Returns:
        the answer as it is kept.

    Raises:
        InvalidInput: it is of another kind, or does not fit the schema.
    """
    takes = tuple(request.takes) or _TAKES[request.kind]
    if answer.kind not in takes:
        how = " or ".join(_HOW[kind] for kind in takes) or "nothing from outside"
        raise InvalidInput(
            f"request {request.id} is {_KINDS[request.kind]} of {request.name!r}, and takes {how}, not "
            f"{_HOW[answer.kind]}"
        )
    answer = Answer.from_json(answer.to_json())
    if request.schema is not None:
        if answer.kind == "approved" and request.kind == "approval" and answer.arguments is not None:
            _check_schema(request, "arguments", dict(answer.arguments), request.schema)
        elif answer.kind == "result" and request.kind != "approval":
            _check_schema(request, "a result", answer.value, request.schema)
    return answer


def check_payload(request: PendingRequest, schema: Mapping[str, Any]) -> None:
    """Make sure that what a tool was called with fits its schema.

    Raises:
        InvalidInput: it does not.
    """
    _check_schema(request, "arguments", request.payload, schema)


_KINDS: Mapping[RequestKind, str] = {
    "approval": "an approval",
    "external": "an external call",
    "question": "a question",
    "delegation": "a delegation",
}


def _check_schema(request: PendingRequest, what: str, value: object, schema: Mapping[str, Any]) -> None:
    # Imported where it is used: readers of requests do not wait for it.
    from jsonschema import exceptions
    from jsonschema.validators import validator_for
    from referencing import Registry

    kind = validator_for(dict(schema))
    try:
        kind.check_schema(dict(schema))
    except exceptions.SchemaError as error:
        raise InvalidInput(f"the schema of {request.name!r} is no JSON schema: {error.message}") from error
    # A registry of its own: nothing is fetched for a reference.
    validator = kind(dict(schema), registry=Registry())
    best_match: Callable[[Iterable[exceptions.ValidationError]], exceptions.ValidationError | None]
    best_match = cast("Any", exceptions).best_match  # which leaves its types open
    found = best_match(validator.iter_errors(cast("Any", value)))
    if found is not None:
        where = "".join(f"[{step!r}]" for step in found.absolute_path)
        raise InvalidInput(
            f"request {request.id} takes {what} of the schema of {request.name!r}, and this is not so: "
            f"it{where}: {found.message}"
        )
