"""Anthropic's signed thinking: issuing signatures and checking the blocks that come back.

Every model refuses altered and unsigned thinking. Models with preserved thinking (or all, or none, as
the server is told) also bind a block to its prefix: ``system``, ``tools`` and all content before it. How
messages are cut, cache marks and thinking itself are not part of the prefix; but a block remembers the
thinking block before it, so one may be left out from the front and not from between others. See
Anthropic's pages "Preserved thinking" and "Prefix checks on thinking blocks".
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field

from tests.support.provider.errors import Refusal
from tests.support.provider.signatures import Signer, digest
from tests.support.provider.tokens import canonical
from tests.support.provider.transcript import Json

BINDING_MODELS = (
    "claude-fable-5-1",
    "claude-fable-5-2",
    "claude-mythos-5-2",
    "claude-opus-5-5",
    "claude-sonnet-5-5",
    "claude-haiku-5-5",
)
BINDING_BETA = "thinking-binding-controls-2026-08-01"
_KINDS = ("thinking", "redacted_thinking")


@dataclass
class Prefix:
    """What comes before a point of a conversation, as far as a signature is bound to it."""

    system: str
    tools: str
    content: hashlib._Hash = field(default_factory=hashlib.sha256)
    thought: str | None = None

    def add(self, role: str, block: Json) -> None:
        """Take a block other than thinking into the prefix."""
        normal = dict(block)
        if normal.get("type") == "tool_result" and isinstance(normal.get("content"), str):
            normal["content"] = [{"type": "text", "text": normal["content"]}]
        if not normal.get("is_error"):
            normal.pop("is_error", None)
        text = canonical(normal)
        self.content.update(f"{role}:{len(text)}:{text}".encode())


def prefix_of(body: Json) -> Prefix:
    """The prefix of a request before its first message."""
    system = body.get("system") or ""
    blocks = [{"type": "text", "text": system}] if isinstance(system, str) else system
    return Prefix(digest(canonical(blocks)), digest(canonical(body.get("tools") or [])))


def issue(signer: Signer, prefix: Prefix, model: str, text: str, id: str) -> str:
    """Sign a thinking block that is produced after ``prefix``, and take it into the prefix."""
    token = signer.issue(
        {
            "id": id,
            "model": model,
            "text": digest(text),
            "system": prefix.system,
            "tools": prefix.tools,
            "content": prefix.content.hexdigest()[:20],
            "before": prefix.thought,
        }
    )
    prefix.thought = id
    return token


@dataclass(frozen=True)
class Preserved:
    """The outcome of the check: the prefix at the end of the request, and what was dropped on the way."""

    prefix: Prefix
    transformations: tuple[Json, ...]


def check(body: Json, messages: list[Json], signer: Signer, *, binds: bool, beta: str) -> Preserved:
    """Check all thinking of a request. Raises ``Refusal`` in the API's words."""
    prefix = prefix_of(body)
    drop = _drops(body, beta, binds=binds)
    dropped: list[Json] = []
    latest = max((at for at, message in enumerate(messages) if message["role"] == "assistant"), default=-1)
    for at, message in enumerate(messages):
        dropping = False
        for number, block in enumerate(message["content"]):
            if block.get("type") not in _KINDS:
                if binds:
                    prefix.add(message["role"], block)
                dropping = False
                continue
            path = f"messages.{at}.content.{number}"
            payload = _verified(block, path, signer, latest=at == latest)
            reason = "model_binding_mismatch" if payload["model"] != body["model"] and binds else None
            changed = _changed(payload, prefix) if binds and reason is None else None
            if (changed or dropping) and reason is None:
                if not drop:
                    raise Refusal(
                        f"{path}: Invalid `signature` in `{block['type']}` block. The block is bound to a different "
                        "conversation. Remove the block, or set `thinking.block_binding.prefix_mismatch_behavior` "
                        f'to "drop_block". That setting requires the `{BINDING_BETA}` value in the `anthropic-beta` '
                        f"header. {changed}"
                    )
                reason, dropping = "prefix_binding_mismatch", True
            if reason:
                dropped.append({"type": "thinking_dropped", "path": path, "reason": reason})
            else:
                prefix.thought = payload["id"]
    return Preserved(prefix, tuple(dropped))


def _drops(body: Json, beta: str, *, binds: bool) -> bool:
    binding = (body.get("thinking") or {}).get("block_binding")
    if binding is None:
        return False
    if BINDING_BETA not in beta:
        raise Refusal("thinking.adaptive.block_binding: Extra inputs are not permitted")
    return binds and binding.get("prefix_mismatch_behavior") == "drop_block"


def _verified(block: Json, path: str, signer: Signer, *, latest: bool) -> Json:
    kind = block["type"]
    name, text = ("signature", block.get("thinking")) if kind == "thinking" else ("data", None)
    if block.get(name) is None:
        raise Refusal(f"{path}.{kind}.{name}: Field required")
    payload = signer.read(block[name])
    if payload is None or "text" not in payload:
        raise Refusal(f"{path}: Invalid `{name}` in `{kind}` block")
    if kind == "thinking" and payload["text"] != digest(str(text)):
        if latest:
            raise Refusal(
                f"{path}: `thinking` or `redacted_thinking` blocks in the latest assistant message cannot be modified. "
                "These blocks must remain as they were in the original response."
            )
        raise Refusal(f"{path}: Invalid `signature` in `thinking` block")
    return payload


def _changed(payload: Json, prefix: Prefix) -> str | None:
    """What differs from the prefix that the block was made with, in a sentence."""
    if payload["system"] != prefix.system:
        return "The `system` prompt differs from the one this block was created with."
    if payload["tools"] != prefix.tools:
        return "The `tools` differ from the ones this block was created with."
    if payload["content"] != prefix.content.hexdigest()[:20]:
        return "The `messages` before this block differ from the ones it was created with."
    if prefix.thought is not None and payload["before"] != prefix.thought:
        return "A thinking block before this block was left out or moved."
    return None


def check_loop(body: Json, messages: list[Json], thought_first: frozenset[str]) -> None:
    """With ``thinking: enabled``, a tool loop must go back with the thinking that opened it.

    ``thought_first`` are the ids of tool calls that this server issued after thinking.
    """
    if (body.get("thinking") or {}).get("type") != "enabled":
        return
    at = max((at for at, message in enumerate(messages) if message["role"] == "assistant"), default=-1)
    if at < 0 or not any(block.get("type") == "tool_result" for block in messages[-1]["content"]):
        return
    blocks = messages[at]["content"]
    calls = {str(block.get("id")) for block in blocks if block.get("type") == "tool_use"}
    if calls & thought_first and blocks[0].get("type") not in _KINDS:
        raise Refusal(
            f"messages.{at}.content.0.type: Expected `thinking` or `redacted_thinking`, but found "
            f"`{blocks[0].get('type')}`. When `thinking` is enabled, a final `assistant` message must start with a "
            "thinking block (preceeding the lastmost set of `tool_use` and `tool_result` blocks)."
        )
