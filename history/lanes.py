"""What names a lane, and the rules that names keep."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cached_property
from hashlib import blake2b
from typing import Self

from laneway.errors import InvalidInput

__all__ = ["MAX_NAME_CHARS", "ONCE", "LaneKey", "check_conversation", "check_name", "conversation_of_turn"]

ONCE = "laneway:once:"
"""How the id of a conversation begins that a single turn has to itself and that ends with it."""

MAX_NAME_CHARS = 200
"""The most characters that a conversation id, an agent's name or a turn id may have."""

# What Temporal's databases hold of an id; the server's own limit may be higher.
_MAX_WORKFLOW_ID_BYTES = 255
_KIND = "lane"


def check_name(value: object, *, what: str) -> str:
    """Return `value` where it can name a conversation, an agent or a turn.

    A name is 1 to 200 printable characters, with no white space at either end: it stands in logs, URLs and keys.

    Raises:
        InvalidInput: it is not such a name.
    """
    if not isinstance(value, str):
        raise InvalidInput(f"{what} must be a str, not {type(value).__name__} ({value!r})")
    if not value:
        raise InvalidInput(f"{what} is empty: give it 1 to {MAX_NAME_CHARS} characters")
    if len(value) > MAX_NAME_CHARS:
        raise InvalidInput(
            f"{what} has {len(value)} characters ({value[:40]!r}…): at most {MAX_NAME_CHARS} are allowed"
        )
    try:
        value.encode()
    except UnicodeEncodeError:
        raise InvalidInput(f"{what} {value!r} is not valid Unicode: remove the lone surrogate") from None
    if not value.isprintable() or value != value.strip():
        raise InvalidInput(f"{what} {value!r} has a control character, or white space at an end: remove it")
    return value


def check_conversation(value: object) -> str:
    """Return `value` where it can name a conversation of the caller's.

    Raises:
        InvalidInput: it is no name, or one that Laneway gives.
    """
    name = check_name(value, what="the conversation id")
    if name.startswith(ONCE):
        raise InvalidInput(
            f"the conversation id {name!r} begins with {ONCE!r}, as turns without history do: choose another"
        )
    return name


def conversation_of_turn(turn_id: str) -> str:
    """The conversation of a turn that keeps no history."""
    whole = f"{ONCE}{turn_id}"
    return whole if len(whole) <= MAX_NAME_CHARS else f"{ONCE}{blake2b(turn_id.encode(), digest_size=16).hexdigest()}"


@dataclass(frozen=True)
class LaneKey:
    """One conversation with one agent under one contract.

    Attributes:
        conversation: the conversation's id, named by the application.
        agent: the name under which the application registered the agent.
        contract: the lane contract's digest, in hexadecimal.
    """

    conversation: str
    agent: str
    contract: str

    @cached_property
    def lane_id(self) -> str:
        """A digest of the three names, 24 hexadecimal characters: the hash tag of all of the lane's keys."""
        names = json.dumps([self.conversation, self.agent, self.contract], ensure_ascii=False)
        return blake2b(names.encode(), digest_size=12).hexdigest()

    @property
    def is_once(self) -> bool:
        """Whether it is of a turn that keeps no history: it ends with that turn."""
        return self.conversation.startswith(ONCE)

    def workflow_id(self, prefix: str) -> str:
        """The id of the lane's workflow: readable for an operator, unique by its beginning and its last part.

        Args:
            prefix: the deployment's `redis_prefix`, which tells apart those that share a Temporal namespace.
        """
        whole = f"{_KIND}:{prefix}:{self.conversation}:{self.agent}:{self.lane_id[:12]}"
        if len(whole.encode()) <= _MAX_WORKFLOW_ID_BYTES:
            return whole
        # What is left out of long names, the last part has.
        first, last = f"{_KIND}:{prefix}:", f":{self.lane_id}"
        room = _MAX_WORKFLOW_ID_BYTES - len(first.encode()) - len(last)
        agent = _cut(self.agent, room // 2)
        return f"{first}{_cut(self.conversation, room - len(agent.encode()) - 1)}:{agent}{last}"

    def is_foreign(self, workflow_id: str, prefix: str) -> bool:
        """Whether a workflow runs this lane for a deployment with another prefix."""
        names_lane = workflow_id.startswith(f"{_KIND}:") and f":{self.lane_id[:12]}" in workflow_id
        # Until 0.1 an id had no prefix: what such workflows have accepted, they end.
        known = (self.workflow_id(prefix), f"{_KIND}:{self.conversation}:{self.agent}:{self.lane_id[:12]}")
        return names_lane and workflow_id not in known

    def to_json(self) -> str:
        """The three names, as the index of lanes keeps them."""
        return json.dumps([self.conversation, self.agent, self.contract], ensure_ascii=False, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str | bytes) -> Self:
        """Read what `to_json` gives."""
        conversation, agent, contract = json.loads(text)
        return cls(conversation, agent, contract)


def _cut(name: str, limit_bytes: int) -> str:
    """The beginning of a name, of whole characters, where it is longer."""
    encoded = name.encode()
    if len(encoded) <= limit_bytes:
        return name
    return encoded[: max(limit_bytes - len("…".encode()), 0)].decode(errors="ignore") + "…"
