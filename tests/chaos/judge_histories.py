"""Judges what lanes hold: the histories are the committed turns played one after another, and nothing else is there."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from hashlib import blake2b
from itertools import zip_longest
from typing import Any

from tests.chaos.evidence import Evidence, LaneLeft, Violation
from tests.chaos.script import GRAPHS, Message, Outside, Part, in_order, sightings, told_of_kept
from tests.chaos.tree import Story, Tree

__all__ = ["Serial", "judge_histories", "serial"]

_DIGEST_BYTES = 16
_TERMINAL = {"turn.committed": "committed", "turn.failed": "failed", "turn.cancelled": "cancelled"}


@dataclass
class Serial:
    """All lanes, played turn by turn.

    Attributes:
        before: by turn, what names the messages before it, and the conversation that was kept last then.
        outside: by turn, what came to it from outside, as its stored messages have it, or else its model's requests.
        outputs: by turn, what it came to.
        expected: by lane, the turn and the message of each entry.
        violations: what could not be played.
    """

    before: dict[str, tuple[str, str | None]] = field(default_factory=dict[str, tuple[str, str | None]])
    outside: dict[str, Outside] = field(default_factory=dict[str, Outside])
    outputs: dict[str, str] = field(default_factory=dict[str, str])
    expected: dict[str, list[tuple[str, Message]]] = field(default_factory=dict[str, list[tuple[str, Message]]])
    violations: list[Violation] = field(default_factory=list[Violation])


def serial(evidence: Evidence, tree: Tree) -> Serial:
    """Play the committed turns of each lane one after another; those of kept conversations after their earlier runs."""
    found = Serial()
    asked = _asked(evidence)
    for lane in evidence.lanes.values():
        stored = _by_turn(lane)
        for turn in lane.records:
            found.outside[turn] = sightings(stored[turn]) if turn in stored else asked.get(turn, Outside())
    for lane in evidence.lanes.values():
        story = Story()
        for record in sorted(lane.records.values(), key=lambda record: record.number):
            if record.into is not None:
                continue
            child = tree.children.get(record.turn) if lane.is_child else None
            for earlier in () if child is None else tree.kept_before(child):
                if earlier.prompt is not None:
                    played = story.play(earlier.prompt, lane.agent, found.outside[earlier.named.turn])
                    story.add(earlier.named.turn, played)
            found.before[record.turn] = (story.after, story.kept)
            prompt = tree.prompts.get(record.prompt)
            if prompt is None:
                if record.outcome == "committed":
                    found.violations.append(Violation("committed a prompt that nobody gave", record.turn, lane.name))
                continue
            if record.outcome != "committed":
                continue
            played = story.play(prompt, lane.agent, found.outside[record.turn])
            found.outputs[record.turn] = played.output
            found.outputs.update({taken: played.output for taken, _ in record.taken})
            story.add(record.turn, played)
        found.expected[lane.name] = story.messages
    return found


def _asked(evidence: Evidence) -> dict[str, Outside]:
    """By turn, what came to it from outside as its model's requests have it, all of them together."""
    results: dict[str, dict[str, list[str]]] = defaultdict(dict)
    for line in (line for lines in evidence.workers.values() for line in lines):
        if line["k"] == "model" and "turn" in line and "outside" in line:
            results[line["turn"]] |= line["outside"]["results"]
    return {turn: Outside(found) for turn, found in results.items()}


def _by_turn(lane: LaneLeft) -> Mapping[str, list[Message]]:
    """The messages of the head by turn, those of a graph as its model is shown them."""
    found: dict[str, list[Message]] = {}
    for message in _messages(lane.epochs.get(int(lane.head.get("e", 0)), [])) if lane.head else []:
        own = found.setdefault(str(message.get("run_id")), [])
        role, parts = _neutral(message)
        if own and own[-1][0] == role == "request" and lane.agent in GRAPHS:
            own[-1][1].extend(parts)
        else:
            own.append((role, parts))
    return {turn: own for turn, own in found.items() if own[0][0] == "request" and own[0][1]}


def judge_histories(evidence: Evidence, tree: Tree, played: Serial) -> Iterator[Violation]:
    yield from played.violations
    answers = [line for line in evidence.callers if line["k"] == "answer" and "output" in line]
    stands = tree.stands(evidence)
    for lane in evidence.lanes.values():
        for epoch, entries in lane.epochs.items():
            where = f"{lane.name} epoch {epoch}"
            yield from _chain(where, entries)
            yield from _orphans(where, _messages(entries))
        if not _is_dropped(lane, tree):  # else `judge_teams` looks at it
            yield from _head(lane, _runs_before(lane, tree))
            yield from _checkpoints(lane)
            yield from _serial(lane, played)
        yield from _leftovers(
            lane, is_dropped=_is_dropped(lane, tree), is_superseded=lane.is_child and _is_superseded(lane, tree, stands)
        )
        yield from _events(lane)
    for line in answers:
        if line["output"] != played.outputs.get(line["turn"], line["output"]):
            yield Violation("answer is not the serial one", line["turn"], str(line["output"]))


def _is_dropped(lane: LaneLeft, tree: Tree) -> bool:
    """Whether a lane is that of a child whose parent's turn came to nothing."""
    children = [tree.children[turn] for turn in lane.records if turn in tree.children]
    return lane.is_child and any(not tree.is_kept(child) for child in children)


def _is_superseded(lane: LaneLeft, tree: Tree, stands: Set[str]) -> bool:
    """Whether a lane is that of a kept conversation's run which nothing goes on from."""
    children = [tree.children[turn] for turn in lane.records if turn in tree.children]
    return any(child.named.kept is not None for child in children) and stands.isdisjoint(lane.records)


def _runs_before(lane: LaneLeft, tree: Tree) -> list[str]:
    """The earlier runs of the conversation that a child's lane begins with a copy of."""
    children = [tree.children[turn] for turn in lane.records if turn in tree.children]
    return [one.named.turn for child in children for one in tree.kept_before(child)]


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
                    "outcome": ("retried" if data["name"] == "shy" else "failed") if failed else "success",
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
    """A turn's messages as they are stored: for a graph, each part of a request is a message of its own."""
    if agent not in GRAPHS:
        return list(messages)
    apart: list[Message] = []
    for role, parts in messages:
        apart.extend((role, [part]) for part in parts) if role == "request" else apart.append((role, parts))
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


def _head(lane: LaneLeft, before: Sequence[str]) -> Iterator[Violation]:
    committed = [*before, *(record.turn for record in lane.committed)]
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
    if committed and lane.head["t"].decode() != committed[-1]:
        yield Violation("head's turn", lane.name, f"{lane.head['t'].decode()}, not {committed[-1]}")


def _checkpoints(lane: LaneLeft) -> Iterator[Violation]:
    for record in lane.committed:
        if record.checkpoint is None:
            yield Violation("record without a checkpoint", record.turn, lane.name)
            continue
        epoch, length, named = record.checkpoint
        entries = lane.epochs.get(epoch)
        if entries is not None and (len(entries) < length or entries[length - 1][:_DIGEST_BYTES].hex() != named):
            yield Violation("record's checkpoint", record.turn, f"{epoch}:{length} is not in {lane.name}")


def _serial(lane: LaneLeft, played: Serial) -> Iterator[Violation]:
    """What is stored is what the turns come to one after another."""
    expected: list[tuple[str, Message]] = []
    lengths: dict[str, int] = {}
    for turn, message in played.expected[lane.name]:
        expected += [(turn, one) for one in _stored_apart(lane.agent, [message])]
        lengths[turn] = len(expected)
    for record in lane.committed:
        length = lengths.get(record.turn)
        if length is not None and record.checkpoint is not None and record.checkpoint[1] != length:
            yield Violation("record's checkpoint", record.turn, f"length {record.checkpoint[1]}, serially {length}")
        output = played.outputs.get(record.turn, "")
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
                parts.append(["result", part["tool_name"], part["tool_call_id"], part["outcome"], _told(part)])
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
    return message["kind"], in_order(parts)


def _told(part: dict[str, Any]) -> str:
    """A tool result's content in the script's form."""
    content = part["content"]
    if part["tool_name"] == "delegate_to_kept" and part["outcome"] == "success":
        value = json.loads(content) if isinstance(content, str) else content
        return told_of_kept(value["child"], value["output"])
    return str(content)


def _leftovers(lane: LaneLeft, *, is_dropped: bool, is_superseded: bool) -> Iterator[Violation]:
    for stage in lane.stages:
        yield Violation("staged entries left behind", lane.name, stage)
    for turn in lane.unfinished:
        if turn in lane.records:
            yield Violation("data of an ended turn left behind", turn, lane.name)
        elif lane.ttl[f"turn:{turn}"] < 0:
            yield Violation("data without a time to live", turn, lane.name)
    if is_dropped:
        for key, ttl in lane.ttl.items():
            if ttl < 0:
                yield Violation("data without a time to live", lane.name, key)
        return
    current = f"epoch:{int(lane.head['e'])}" if lane.head else ""
    for key, ttl in lane.ttl.items():
        if key.startswith("epoch:") and key != current:
            if ttl < 0:
                yield Violation("data without a time to live", lane.name, key)
        elif key in ("head", "turns", current) and ttl >= 0 and not is_superseded:
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
