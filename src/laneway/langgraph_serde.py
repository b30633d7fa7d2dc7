"""LangGraph's serializer with its allow-list enforced: what is not on it is refused by name.

`JsonPlusSerializer` answers a type that it refuses with the raw data and a line in the log, so that state would change
its types in silence. It also tells listeners; this module listens.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextvars import ContextVar
from threading import Lock
from typing import Any

from langgraph.checkpoint.serde.base import CipherProtocol, SerializerProtocol
from langgraph.checkpoint.serde.encrypted import EncryptedSerializer
from langgraph.checkpoint.serde.event_hooks import SerdeEvent, register_serde_event_listener
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer

from laneway.errors import ConfigurationError, StoreError

__all__ = ["Leaves", "strict_serializer"]

_KINDS = ("msgpack", "null", "bytes", "bytearray")

_refused: ContextVar[list[str] | None] = ContextVar("laneway_refused_types", default=None)
_listening = Lock()
_listens = False


def _listen() -> None:
    """Have LangGraph's serializer tell which types it refuses: it logs them, and goes on with the raw data."""
    global _listens  # noqa: PLW0603  # once in a process: LangGraph's listeners are global

    def note(event: SerdeEvent) -> None:
        refused = _refused.get()
        if refused is not None and event["kind"] in ("msgpack_blocked", "msgpack_method_blocked"):
            refused.append(f"{event['module']}.{event['name']}")

    with _listening:
        if not _listens:
            register_serde_event_listener(note)
            _listens = True


def strict_serializer(
    serde: SerializerProtocol | None, allowed_types: Iterable[type | tuple[str, str]]
) -> SerializerProtocol:
    """A serializer that constructs nothing but what is on its allow-list.

    Raises:
        ConfigurationError: the given one would load pickles or construct anything, or is not LangGraph's own.
    """
    allowed = tuple(allowed_types)
    if serde is None:
        return JsonPlusSerializer(allowed_msgpack_modules=allowed or None)
    inner = serde.serde if isinstance(serde, EncryptedSerializer) else serde
    if not isinstance(inner, JsonPlusSerializer):
        raise ConfigurationError(
            f"RedisSaver cannot use {type(inner).__name__} as its serializer: it stores messages once with the help of "
            "LangGraph's JsonPlusSerializer; leave serde out, or pass an EncryptedSerializer around one"
        )
    modules: object = inner._allowed_msgpack_modules  # pyright: ignore[reportPrivateUsage]
    if inner.pickle_fallback or modules is True:
        raise ConfigurationError(
            "RedisSaver takes no serializer that loads pickles or constructs whatever type the data names; make it "
            "with JsonPlusSerializer(allowed_msgpack_modules=[...]), or leave serde out and name the types in "
            "allowed_types"
        )
    if not allowed:
        return serde
    strict = inner.with_msgpack_allowlist(allowed)
    return EncryptedSerializer(serde.cipher, strict) if isinstance(serde, EncryptedSerializer) else strict


class Leaves:
    """Dumps and loads single objects with a strict serializer.

    Args:
        serde: what `strict_serializer` returned. Its cipher is left to the caller, who encrypts whole records.
        owner: whose argument `allowed_types` is, for errors.
    """

    def __init__(self, serde: SerializerProtocol, *, owner: str = "RedisSaver") -> None:
        _listen()
        self._owner = owner
        self._serde = serde.serde if isinstance(serde, EncryptedSerializer) else serde
        self.cipher: CipherProtocol | None = serde.cipher if isinstance(serde, EncryptedSerializer) else None

    def dump(self, value: object) -> tuple[str, bytes]:
        """An object as a kind and bytes."""
        return self._serde.dumps_typed(value)

    def load(self, kind: str, data: bytes) -> Any:
        """The object.

        Raises:
            StoreError: it is, or holds, what is not on the allow-list; or it is of a kind that is never loaded.
        """
        if kind not in _KINDS:
            raise StoreError(f"stored state holds data of the kind {kind!r}, which {self._owner} never loads")
        refused: list[str] = []
        token = _refused.set(refused)
        try:
            value = self._serde.loads_typed((kind, data))
        finally:
            _refused.reset(token)
        if refused:
            raise StoreError(
                f"{refused[0]} is not on the allow-list of types that {self._owner} constructs; if it is your own, "
                f"name it in {self._owner}(allowed_types=[...])"
            )
        return value
