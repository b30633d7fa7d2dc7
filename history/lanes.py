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

# What Temporal takes: its `limit.maxIDLength`, unless an operator has set another.
_MAX_WORKFLOW_ID_BYTES = 1000
_MAX_CUT_BYTES = 450


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

    @cached_property
    def workflow_id(self) -> str:
        """The id of the lane's workflow: readable for an operator, unique by its last part."""
        name, last = f"lane:{self.conversation}:{self.agent}", f":{self.lane_id[:12]}"
        if len(name.encode()) + len(last) > _MAX_WORKFLOW_ID_BYTES:
            # Long names in a script of several bytes a character: what is left out, the last part has.
            names = (_cut(self.conversation, _MAX_CUT_BYTES), _cut(self.agent, _MAX_CUT_BYTES))
            name = ":".join(("lane", *names))
        return name + last

    def to_json(self) -> str:
        """The three names, as the index of lanes keeps them."""
        return json.dumps([self.conversation, self.agent, self.contract], ensure_ascii=False, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str | bytes) -> Self:
        """Read what `to_json` gives."""
        conversation, agent, contract = json.loads(text)
        return cls(conversation, agent, contract)


def _cut(name: str, limit_bytes: int) -> str:
    """The beginning of a name, of whole characters."""
    encoded = name.encode()
    return name if len(encoded) <= limit_bytes else encoded[:limit_bytes].decode(errors="ignore") + "…"
