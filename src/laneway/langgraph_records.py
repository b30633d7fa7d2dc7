"""Records: what Redis holds of a checkpoint, a pending write or a part of a value.

A record is deflated where that makes it shorter, with a dictionary of what every LangGraph checkpoint says; then
encrypted, where the saver encrypts. Its references stay readable: the server follows them.
"""

from __future__ import annotations

import zlib
from hashlib import blake2b
from typing import Any, NamedTuple

import ormsgpack
from langgraph.checkpoint.serde.base import CipherProtocol

from laneway.errors import StoreError
from laneway.langgraph_layout import DIGEST_BYTES

__all__ = ["Node", "Records", "packb", "unpackb"]

_DEFLATED, _SEALED = 1, 2

# What deflate may refer back to, most frequent last. It is part of the format: never change it, add another flag.
_DICTIONARY = (
    b"langgraph.typesInterruptCommandvalueidlangchain_core.messages.systemSystemMessage"
    b"langchain_core.messages.chatChatMessage"
    b"langchain_core.messages.toolToolMessagetool_call_idartifactstatussuccesserrorname\xa4tool\xa8functionarguments"
    b"cache_readcache_creationinput_token_detailsoutput_token_detailsreasoningfinish_reasonstopstop_reasonend_turntool_calls"
    b"model_namemodel_providerprompt_tokenscompletion_tokenstoken_usagesystem_fingerprintservice_tierlogprobs"
    b"\xa4type\xa4text\xa5index\xa4argstool_callsourceinputupdateforkloop\xa4step\xa7parentscounters_since_delta_snapshot"
    b"__pregel_tasks__interrupt____resume____error____no_writes____return____previous__"
    b"branch:to:tools~__pregel_pull, tools"
    b"\x81\xa9__start__\xcf\x00\x00\x00\x00\xa5model\x81\xafbranch:to:model\xcf\x00\x00\x00\x00"
    b"\xb0updated_channels\x91\xa8messages"
    b"\x83\xa6source\xa5input\x83\xa6source\xa4loop\xa4step\xcc\xa7parents\x80\x92\x93\xa8messages\x01\xc4\x03\xd4\x02\x00"
    b"\x93\xafbranch:to:model\x00\xc4\x01\xc0\x93\xa9__start__\x01\xc4\x0e\x81\xa8messages\x91\xd4\x02\x00"
    b"\x84\xa1v\x04\xb0channel_versions\x83\xa9__start__\xcf\x00\x00\x00\x00\xa8messages\xcf\x00\x00\x00\x00"
    b"\xafbranch:to:model\xcf\x00\x00\x00\x00\xadversions_seen\x83\xa9__input__\x80\xa9__start__"
    b"\x93\xa8messages\xb5~__pregel_pull, model"
    b"\x93\xa8messages\xb9~__pregel_pull, __start__\xc4\x04\x91\xd4\x02\x00"
    b"\x9a\xd4\x03\x00\xd4\x03\x00\xd4\x02\x00\xd4\x02\x00"
    b"\x94\xbdlangchain_core.messages.human\xacHumanMessage\x86\xa7content\xa0\xb1additional_kwargs\x80\xb1response_metadata\x80"
    b"\xa4type\xa5human\xa4name\xc0\xa2id\xd9$\xb3model_validate_json\x94\xbalangchain_core.messages.ai\xa9AIMessage\x89"
    b"\xa7content\xa0\xb1additional_kwargs\x80\xb1response_metadata\x80\xa4type\xa2ai\xa4name\xc0\xa2id\xd9,lc_run--"
    b"\xaatool_calls\x90\xb2invalid_tool_calls\x90\xaeusage_metadata\x83\xacinput_tokens\xadoutput_tokens\xactotal_tokens"
    b"\xb3model_validate_json"
)


class Node(NamedTuple):
    """A value: its body, and the digests of the parts that it refers to, in the order of their marks in the body."""

    body: bytes
    references: tuple[bytes, ...] = ()


class Records:
    """Turns nodes into records and back.

    Args:
        cipher: what bodies are encrypted with; None for not at all.
        digest_key: what digests are keyed with, up to 64 bytes.
    """

    def __init__(self, cipher: CipherProtocol | None, digest_key: bytes) -> None:
        self._cipher = cipher
        self._digest_key = digest_key

    def digest(self, node: Node) -> bytes:
        """The name of a part."""
        state = blake2b(len(node.references).to_bytes(3), digest_size=DIGEST_BYTES, key=self._digest_key)
        for reference in node.references:
            state.update(reference)
        state.update(node.body)
        return state.digest()

    def seal(self, node: Node) -> bytes:
        """A node as a record: deflated where that is shorter, encrypted where the serializer encrypts."""
        flags, body = 0, node.body
        if len(body) > 32:
            deflate = zlib.compressobj(6, zlib.DEFLATED, -15, zdict=_DICTIONARY)
            deflated = deflate.compress(body) + deflate.flush()
            if len(deflated) < len(body):
                flags, body = _DEFLATED, deflated
        if self._cipher is not None:
            name, secret = self._cipher.encrypt(body)
            flags, body = flags | _SEALED, packb([name, secret])
        return b"".join((bytes([flags]), len(node.references).to_bytes(3), *node.references, body))

    def open(self, record: bytes) -> Node:
        """The node of a record.

        Raises:
            StoreError: it was altered, or encrypted where this saver's serializer does not decrypt.
        """
        flags, count = record[0], int.from_bytes(record[1:4])
        begin = 4 + count * DIGEST_BYTES
        references = tuple(record[at : at + DIGEST_BYTES] for at in range(4, begin, DIGEST_BYTES))
        body = record[begin:]
        if flags & _SEALED:
            if self._cipher is None:
                raise StoreError(
                    "a LangGraph checkpoint in Redis is encrypted; pass the EncryptedSerializer that wrote it as serde"
                )
            body = self._cipher.decrypt(*ormsgpack.unpackb(body))
        elif self._cipher is not None:
            raise StoreError(
                "a LangGraph checkpoint in Redis is not encrypted, and this saver's serializer takes no other; copy "
                "the thread with a saver that has no cipher"
            )
        if flags & _DEFLATED:
            try:
                body = zlib.decompressobj(-15, zdict=_DICTIONARY).decompress(body)
            except zlib.error as error:
                raise StoreError(f"a part of a LangGraph checkpoint in Redis was altered ({error})") from error
        return Node(body, references)


def packb(value: object) -> bytes:
    """Pack what is plain, or an extension."""
    return ormsgpack.packb(value, option=ormsgpack.OPT_NON_STR_KEYS | ormsgpack.OPT_REPLACE_SURROGATES)


def unpackb(body: bytes) -> Any:
    """What was packed of strings, bytes, numbers and lists alone.

    Raises:
        StoreError: it was altered.
    """
    try:
        return ormsgpack.unpackb(body)
    except ValueError as error:
        raise StoreError(f"a LangGraph checkpoint in Redis cannot be read: {error}") from error
