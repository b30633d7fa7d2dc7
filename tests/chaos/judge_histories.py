"""Judges what lanes hold: the histories are the committed turns played one after another, and nothing else is there."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from hashlib import blake2b
from itertools import zip_longest
from typing import Any

from tests.chaos.evidence import Evidence, LaneLeft, Violation
from tests.chaos.judge_turns import prompt_digest
from tests.chaos.script import Message, Part, digest, play

__all__ = ["judge_histories", "prompts_of"]

_DIGEST_BYTES = 16
_TERMINAL = {"turn.committed": "committed", "turn.failed": "failed", "turn.cancelled": "cancelled"}


def prompts_of(evidence: Evidence) -> dict[str, str]:
    """Prompts by digest."""
    submits = (line for line in evidence.callers if line["k"] == "submit")
    return {prompt_digest(line["prompt"], line["agent"]): line["prompt"] for line in submits}


def judge_histories(evidence: Evidence) -> Iterator[Violation]:
    prompts = prompts_of(evidence)
    answers = [line for line in evidence.callers if line["k"] == "answer" and "output" in line]
    for lane in evidence.lanes.values():
        for epoch, entries in lane.epochs.items():
            where = f"{lane.name} epoch {epoch}"
            yield from _chain(where, entries)
            yield from _orphans(where, _messages(entries))
        yield from _head(lane)
        yield from _checkpoints(lane)
        outputs: dict[str, str] = {}
        yield from _serial(lane, prompts, outputs)
        for line in answers:
            if line["output"] != outputs.get(line["turn"], line["output"]):
                yield Violation("answer is not the serial one", line["turn"], str(line["output"]))
        yield from _leftovers(lane)
        yield from _events(lane)


def _chain(where: str, entries: Sequence[bytes]) -> Iterator[Violation]:
    previous = b""
    for index, entry in enumerate(entries):
        named, body = entry[:_DIGEST_BYTES], entry[_DIGEST_BYTES:]
        previous = blake2b(body, digest_size=_DIGEST_BYTES, key=previous).digest()
        if named != previous:
            yield Violation("broken chain of digests", where, f"entry {index}")
            return


def _messages(entries: Sequence[bytes]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for entry in entries:
        start = _DIGEST_BYTES + 2
        size = int.from_bytes(entry[_DIGEST_BYTES:start], "big")
        try:
            message = json.loads(entry[start + size :])
            if "kind" not in message:
                message = _of_a_graph(message, json.loads(entry[start : start + size]))
            found.append(message)
        except (ValueError, KeyError):
            found.append({"kind": "unreadable", "parts": []})
    return found


def _of_a_graph(message: dict[str, Any], known: dict[str, Any]) -> dict[str, Any]:
    """A message of LangChain's in the form of Pydantic AI's; the turn is in what is known of it."""
    data = message["data"]
    kind, parts = "request", list[dict[str, Any]]()
    match message["type"]:
        case "human":
            parts.append({"part_kind": "user-prompt", "content": data["content"]})
        case "tool":
            failed = data.get("status") == "error"
            parts.append(
                {
                    "part_kind": "tool-return",
                    "tool_name": data["name"],
                    "tool_call_id": data["tool_call_id"],
                    "outcome": "retried" if failed else "success",
                    "content": data["content"],
                }
            )
        case "ai":
            kind = "response"
            if data["content"]:
                parts.append({"part_kind": "text", "content": data["content"]})
            for call in data.get("tool_calls", []):
                named = {"tool_name": call["name"], "tool_call_id": call["id"], "args": call["args"]}
                parts.append({"part_kind": "tool-call", **named})
        case other:
            parts.append({"part_kind": other})
    return {"kind": kind, "parts": parts, "run_id": known.get("r")}


def _stored_apart(agent: str, messages: Sequence[Message]) -> list[Message]:
    """A turn's messages as they are stored: for a graph, each result is a message of its own."""
    if agent != "graph":
        return list(messages)
    apart: list[Message] = []
    for role, parts in messages:
        results = parts and parts[0][0] == "result"
        apart.extend((role, [part]) for part in parts) if results else apart.append((role, parts))
    return apart


def _orphans(where: str, messages: Sequence[dict[str, Any]]) -> Iterator[Violation]:
    open_calls: list[str] = []
    for index, message in enumerate(messages):
        answered = [part["tool_call_id"] for part in message["parts"] if part["part_kind"] == "tool-return"]
        for call in answered:
            if call not in open_calls:
                yield Violation("orphan tool result", where, f"entry {index}: {call}")
        open_calls = [call for call in open_calls if call not in answered]
        if message["kind"] == "response" or any(part["part_kind"] == "user-prompt" for part in message["parts"]):
            for call in open_calls:
                yield Violation("orphan tool call", where, f"before entry {index}: {call}")
            open_calls = [part["tool_call_id"] for part in message["parts"] if part["part_kind"] == "tool-call"]
    for call in open_calls:
        yield Violation("orphan tool call", where, f"at the end: {call}")


def _head(lane: LaneLeft) -> Iterator[Violation]:
    committed = lane.committed
    if not lane.head:
        if committed:
            yield Violation("no head", lane.name, f"{len(committed)} turns are committed")
        return
    version, epoch, length = (int(lane.head[name]) for name in "ven")
    entries = lane.epochs.get(epoch, [])
    if version != len(committed):
        yield Violation("head's version", lane.name, f"{version}, and {len(committed)} turns are committed")
    if len(entries) != length:
        yield Violation("head's length", lane.name, f"{length}, and epoch {epoch} has {len(entries)} entries")
    elif entries and entries[-1][:_DIGEST_BYTES].hex() != lane.head["d"].decode():
        yield Violation("head's digest", lane.name, "it is not the last entry's")
    if committed and lane.head["t"].decode() != committed[-1].turn:
        yield Violation("head's turn", lane.name, f"{lane.head['t'].decode()}, not {committed[-1].turn}")


def _checkpoints(lane: LaneLeft) -> Iterator[Violation]:
    for record in lane.committed:
        if record.checkpoint is None:
            yield Violation("record without a checkpoint", record.turn, lane.name)
            continue
        epoch, length, named = record.checkpoint
        entries = lane.epochs.get(epoch)
        if entries is not None and (len(entries) < length or entries[length - 1][:_DIGEST_BYTES].hex() != named):
            yield Violation("record's checkpoint", record.turn, f"{epoch}:{length} is not in {lane.name}")


def _serial(lane: LaneLeft, prompts: dict[str, str], outputs: dict[str, str]) -> Iterator[Violation]:
    """Play the committed turns one after another, and keep what each comes to."""
    expected: list[tuple[str, Message]] = []
    after = ""
    for record in lane.committed:
        prompt = prompts.get(record.prompt)
        if prompt is None:
            yield Violation("committed a prompt that nobody gave", record.turn, lane.name)
            return
        played = play(prompt, after=after, validates=lane.agent == "careful")
        after = digest(played.messages, after)
        expected.extend((record.turn, message) for message in _stored_apart(lane.agent, played.messages))
        if record.checkpoint is not None and record.checkpoint[1] != len(expected):
            yield Violation(
                "record's checkpoint", record.turn, f"length {record.checkpoint[1]}, serially {len(expected)}"
            )
        output = played.messages[-1][1][0][1] if played.messages[-1][0] == "response" else ""
        outputs[record.turn] = output
        if not record.output_in_history and json.loads(record.output or "null") != output:
            yield Violation("output is not the serial one", record.turn, f"{record.output}")
    stored = _messages(lane.epochs.get(int(lane.head["e"]), [])) if lane.head else []
    for index, (have, want) in enumerate(zip_longest(stored, expected)):
        if have is None or want is None or _neutral(have) != want[1] or have.get("run_id") != want[0]:
            found = None if have is None else (have.get("run_id"), _neutral(have))
            yield Violation("history is not the serial one", lane.name, f"entry {index}: {found}, expected {want}")
            return


def _neutral(message: dict[str, Any]) -> Message:
    parts: list[Part] = []
    for part in message["parts"]:
        match part["part_kind"]:
            case "user-prompt":
                parts.append(["prompt", part["content"]])
            case "tool-return":
                parts.append(["result", part["tool_name"], part["tool_call_id"], part["outcome"], part["content"]])
            case "tool-call":
                parts.append(["call", part["tool_name"], part["tool_call_id"], json.dumps(part["args"])])
            case "text":
                parts.append(["text", part["content"]])
            case "retry-feedback":
                parts.append(["feedback"])
            case "system-prompt":
                pass
            case other:
                parts.append(["unexpected", other])
    return message["kind"], parts


def _leftovers(lane: LaneLeft) -> Iterator[Violation]:
    for stage in lane.stages:
        yield Violation("staged entries left behind", lane.name, stage)
    for turn in lane.unfinished:
        if turn in lane.records:
            yield Violation("data of an ended turn left behind", turn, lane.name)
        elif lane.ttl[f"turn:{turn}"] < 0:
            yield Violation("data without a time to live", turn, lane.name)
    current = f"epoch:{int(lane.head['e'])}" if lane.head else ""
    for key, ttl in lane.ttl.items():
        if key.startswith("epoch:") and key != current:
            if ttl < 0:
                yield Violation("data without a time to live", lane.name, key)
        elif key in ("head", "turns", current) and ttl >= 0:
            yield Violation("committed data with a time to live", lane.name, f"{key}: {ttl} ms")


def _events(lane: LaneLeft) -> Iterator[Violation]:
    ends: dict[str, list[str]] = {}
    for kind, turn, *_ in lane.events:
        if turn in ends and kind not in _TERMINAL:
            yield Violation("event after the turn's end", turn, kind)
        if kind in _TERMINAL:
            ends.setdefault(turn, []).append(_TERMINAL[kind])
    for turn, record in lane.records.items():
        if ends.get(turn, []) != [record.outcome]:
            yield Violation("not one end on the stream", turn, f"{ends.get(turn, [])}, its record: {record.outcome}")
    for turn in ends.keys() - lane.records.keys():
        yield Violation("not one end on the stream", turn, f"{ends[turn]}, and it has no record")
