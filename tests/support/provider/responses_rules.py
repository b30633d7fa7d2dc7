"""OpenAI Responses: what the items of a request may look like."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tests.support.provider.errors import Refusal
from tests.support.provider.signatures import Signer
from tests.support.provider.transcript import Json

ENCRYPTED_PREFIX = "gAAAAA"
_ID_PREFIXES = {"message": "msg", "function_call": "fc", "reasoning": "rs", "compaction": "cmp"}


@dataclass(frozen=True)
class Issued:
    """An item that the server put out: what came before it and after it, and whether it is kept."""

    item: Json
    reasoning: str | None
    follower: str | None
    stored: bool


def normal_items(value: object) -> list[Json]:
    """The input as a list of typed items."""
    if isinstance(value, str):
        return [{"type": "message", "role": "user", "content": value}]
    if not isinstance(value, list):
        raise Refusal(
            "Invalid type for 'input': expected one of an array of objects or string.",
            param="input",
            code="invalid_type",
        )
    items: list[Json] = []
    for at, item in enumerate(value):
        if not isinstance(item, dict):
            raise Refusal(f"Invalid type for 'input[{at}]': expected an object.", param=f"input[{at}]")
        items.append({"type": "message", **item} if "role" in item else item)
    return items


def resolve(items: Sequence[Json], issued: Mapping[str, Issued]) -> list[Json]:
    """Items with references replaced by what they refer to."""
    resolved: list[Json] = []
    for item in items:
        if item.get("type") == "item_reference":
            known = issued.get(str(item.get("id")))
            if known is None or not known.stored:
                _not_found(str(item.get("id")), known)
            else:
                resolved.append(known.item)
        else:
            resolved.append(item)
    return resolved


def compaction_threshold(body: Json) -> int | None:
    """From how many input tokens on a request has the server compact; None where it has not."""
    for edit in body.get("context_management") or []:
        if edit.get("type") != "compaction":
            raise Refusal(f"Invalid value: '{edit.get('type')}'. Supported values are: 'compaction'.")
        return int(edit.get("compact_threshold", 200_000))
    return None


def since_compaction(items: Sequence[Json]) -> list[Json]:
    """What the model still sees: a compaction stands for all that came before it."""
    at = max((at for at, item in enumerate(items) if item.get("type") == "compaction"), default=0)
    return list(items[at:])


def check_items(given: Sequence[Json], effective: Sequence[Json], issued: Mapping[str, Issued], signer: Signer) -> None:
    """Check a request: ``given`` are its own items, ``effective`` those with all that the server adds before."""
    for at, item in enumerate(given):
        _check_id(item, at)
        if item.get("type") == "reasoning":
            _check_reasoning(item, issued, signer)
        elif (
            item.get("type") == "compaction"
            and signer.read(item.get("encrypted_content"), prefix=ENCRYPTED_PREFIX) is None
        ):
            raise Refusal(
                "The encrypted content of a compaction could not be verified.", code="invalid_encrypted_content"
            )
    _check_unique(effective)
    _check_calls(effective)
    _check_neighbours(effective, issued)


def _check_id(item: Json, at: int) -> None:
    prefix, id = _ID_PREFIXES.get(str(item.get("type"))), item.get("id")
    if prefix and isinstance(id, str) and id and not id.startswith(prefix):
        raise Refusal(
            f"Invalid 'input[{at}].id': '{id}'. Expected an ID that begins with '{prefix}'.",
            param=f"input[{at}].id",
            code="invalid_value",
        )


def _check_reasoning(item: Json, issued: Mapping[str, Issued], signer: Signer) -> None:
    id, encrypted = str(item.get("id") or ""), item.get("encrypted_content")
    if encrypted:
        payload = signer.read(encrypted, prefix=ENCRYPTED_PREFIX)
        if payload is None:
            raise Refusal(
                f"The encrypted content for item {id} could not be verified. Reason: Encrypted content could not be "
                "decrypted or parsed.",
                code="invalid_encrypted_content",
            )
        if id and payload.get("id") != id:
            raise Refusal(
                f"The encrypted content for item {id} could not be verified. Reason: Encrypted content item_id did not "
                "match the target item id.",
                code="invalid_encrypted_content",
            )
        return
    known = issued.get(id)
    if known is None or not known.stored:
        _not_found(id, known)


def _check_compaction(item: Json, signer: Signer) -> None:
    if signer.read(str(item.get("encrypted_content")), prefix=ENCRYPTED_PREFIX) is None:
        raise Refusal("The encrypted content of a compaction could not be verified.", code="invalid_encrypted_content")


def _not_found(id: str, known: Issued | None) -> None:
    more = (
        " Items are not persisted when `store` is set to false. Try again with `store` set to true, or remove this "
        "item from your input."
        if known is not None
        else ""
    )
    raise Refusal(f"Item with id '{id}' not found.{more}", status=404, kind="invalid_request_error", param="input")


def _check_unique(items: Sequence[Json]) -> None:
    seen: set[str] = set()
    for item in items:
        id = item.get("id")
        if not isinstance(id, str) or not id:
            continue
        if id in seen:
            raise Refusal(
                f"Duplicate item found with id {id}. Remove duplicate items from your input and try again.",
                param="input",
            )
        seen.add(id)


def _check_calls(items: Sequence[Json]) -> None:
    """Every call has one output after it, every output its call. Reused call ids are refused as duplicates."""
    calls: dict[str, bool] = {}
    for item in items:
        id = str(item.get("call_id"))
        if item.get("type") == "function_call":
            if id in calls:
                raise Refusal(f"Duplicate function call found with call_id {id}.", param="input")
            calls[id] = False
        elif item.get("type") == "function_call_output":
            if id not in calls:
                raise Refusal(f"No tool call found for function call output with call_id {id}.", param="input")
            if calls[id]:
                raise Refusal(f"Duplicate function call output found with call_id {id}.", param="input")
            calls[id] = True
    for id, answered in calls.items():
        if not answered:
            raise Refusal(f"No tool output found for function call {id}.", param="input")


def _check_neighbours(items: Sequence[Json], issued: Mapping[str, Issued]) -> None:
    for at, item in enumerate(items):
        kind, id = item.get("type"), str(item.get("id") or "")
        known = issued.get(id)
        if kind == "reasoning":
            after = items[at + 1] if at + 1 < len(items) else None
            if known is not None and known.follower is None:
                continue
            if after is None or not _is_output(after) or not _may_follow(after, known):
                raise Refusal(
                    f"Item '{id}' of type 'reasoning' was provided without its required following item.", param="input"
                )
        elif known is not None and known.reasoning is not None:
            before = items[at - 1] if at else None
            if (
                before is None
                or before.get("type") != "reasoning"
                or before.get("id") not in (known.reasoning, None, "")
            ):
                raise Refusal(
                    f"Item '{id}' of type '{kind}' was provided without its required 'reasoning' item: "
                    f"'{known.reasoning}'.",
                    param="input",
                )


def _is_output(item: Json) -> bool:
    return item.get("type") in ("function_call", "reasoning") or item.get("role") == "assistant"


def _may_follow(after: Json, known: Issued | None) -> bool:
    return known is None or not after.get("id") or after.get("id") == known.follower
