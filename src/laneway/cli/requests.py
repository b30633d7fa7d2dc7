"""`laneway pending`, `approve`, `deny` and `answer`: what turns wait for, answered without their application."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from laneway.cli.failures import BadUsage, NotFound
from laneway.cli.output import as_duration, as_time, note, one_line, table, write, write_json
from laneway.cli.places import locate, open_client
from laneway.errors import InvalidInput
from laneway.history.requests import Answer, approve, deny, failed, result

if TYPE_CHECKING:
    from laneway.answers import Pending
    from laneway.client import LanewayClient

__all__ = ["answer_of", "approval", "denial", "give_answer", "list_pending"]


async def list_pending(conversation: str | None, *, data_dir: Path, as_json: bool) -> None:
    """Write what turns wait for: all, or those of one conversation."""
    from laneway.activities.agents import Agents

    async with open_client(Agents({}), await locate(data_dir)) as client:
        found = await (client.pending() if conversation is None else client.conversation(conversation).pending())
    if as_json:
        write_json({"pending": [_pending_json(one) for one in found]})
        return
    if not found:
        note("no turn waits for an answer")
        return
    table(
        ("request", "kind", "name", "asks", "conversation", "agent", "turn", "since", "default in"),
        [
            (
                one.request.id,
                one.request.kind,
                one.request.name,
                one_line(json.dumps(one.request.payload, ensure_ascii=False), limit=60),
                one.lane.conversation,
                one.lane.agent,
                one.turn_id,
                as_duration(timedelta(seconds=max(time.time() - one.since, 0))),
                "" if one.deadline is None else as_duration(timedelta(seconds=max(one.deadline - time.time(), 0))),
            )
            for one in found
        ],
    )


def _pending_json(one: Pending) -> dict[str, object]:
    """A pending request as JSON."""
    request = one.request
    return {
        "request": request.id,
        "kind": request.kind,
        "name": request.name,
        "payload": request.payload,
        "metadata": request.metadata,
        "schema": None if request.schema is None else dict(request.schema),
        "conversation": one.lane.conversation,
        "agent": one.lane.agent,
        "contract": one.lane.contract,
        "turn_id": one.turn_id,
        "since": as_time(one.since),
        "deadline": as_time(one.deadline),
        "default": None if request.default is None else json.loads(request.default.to_json()),
    }


def _parse_arguments(text: str | None) -> Mapping[str, Any] | None:
    """The arguments of `--arguments`.

    Raises:
        BadUsage: they are no JSON object.
    """
    if text is None:
        return None
    found = _parse(text, "--arguments")
    if not isinstance(found, dict):
        raise BadUsage(f"--arguments is {text!r}: give a JSON object")
    return cast("dict[str, Any]", found)


def answer_of(value: str | None, error: str | None) -> Answer:
    """The answer that `laneway answer` was given.

    Raises:
        BadUsage: it was given both a result and an error, neither, or a result that is no JSON.
    """
    if (value is None) == (error is None):
        raise BadUsage("give the result as JSON, or --error TEXT, and not both")
    return failed(error) if error is not None else result(_parse(value or "", "the result"))


def _parse(text: str, what: str) -> object:
    try:
        return json.loads(text)
    except ValueError as error:
        raise BadUsage(f'{what} is {text!r}, which is no JSON ({error}); text is written "in quotes"') from None


async def give_answer(request_id: str, answer: Answer, *, data_dir: Path, as_json: bool) -> None:
    """Answer a request, found by its id or by the beginning of it."""
    from laneway.activities.agents import Agents

    async with open_client(Agents({}), await locate(data_dir)) as client:
        one = await _find(client, request_id)
        await client.turn(one.lane, one.turn_id).answer(one.request.id, answer)
    if as_json:
        write_json({"request": one.request.id, "answer": answer.kind, "turn_id": one.turn_id})
    else:
        write(f"{one.request.name} of turn {one.turn_id}: {_SAID[answer.kind]}\n")


_SAID = {"approved": "approved", "denied": "denied", "result": "answered", "error": "answered as failed"}


async def _find(client: LanewayClient, request_id: str) -> Pending:
    found = [one for one in await client.pending() if one.request.id.startswith(request_id)] if request_id else []
    exact = [one for one in found if one.request.id == request_id]
    found = exact or found
    if not found:
        raise NotFound(
            f"no turn waits for request {request_id!r}: it was answered, or its turn has ended; `laneway pending` "
            "lists what is waited for"
        )
    if len(found) > 1:
        known = ", ".join(one.request.id for one in found)
        raise InvalidInput(f"several requests begin with {request_id!r}: {known}")
    return found[0]


def approval(arguments: str | None) -> Answer:
    """The answer of `laneway approve`."""
    return approve(_parse_arguments(arguments))


def denial(reason: str | None) -> Answer:
    """The answer of `laneway deny`."""
    return deny() if reason is None else deny(reason)
