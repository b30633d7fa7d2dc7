"""The files of a small run in which all is well, made without servers: what violations are planted in."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Iterable
from dataclasses import dataclass, field
from hashlib import blake2b
from pathlib import Path
from typing import Any

from tests.chaos.judge_turns import prompt_digest
from tests.chaos.script import Message, Plan, digest, play

__all__ = ["write_good_run"]

_LANE_ID = "0123456789abcdef01234567"
_KINDS = {
    "prompt": "user-prompt",
    "text": "text",
    "call": "tool-call",
    "result": "tool-return",
    "feedback": "retry-feedback",
}


@dataclass
class _Run:
    callers: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    worker: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    entries: list[bytes] = field(default_factory=list[bytes])
    records: dict[str, bytes] = field(default_factory=dict[str, bytes])
    events: list[list[Any]] = field(default_factory=list[list[Any]])
    accepted: list[list[str]] = field(default_factory=list[list[str]])
    after: str = ""
    last: str = ""
    clock: int = 0
    calls: int = 0

    def tick(self) -> int:
        self.clock += 1000
        return self.clock


def write_good_run(folder: Path) -> None:
    """Three committed turns, one that failed, one that was cancelled, one that was refused."""
    run = _Run()
    _turn(run, Plan("t1"), "committed")
    _turn(run, Plan("t2", [["fetch", "count"], ["shy"]]), "committed", again=True)
    _turn(run, Plan("t3", [["broken"]]), "failed")
    _turn(run, Plan("t4", [["fetch"]]), "cancelled")
    _turn(run, Plan("t5", redo=True), "committed", contradict=True)
    _refused(run, Plan("t6"))
    _write(folder, run)


def _say(run: _Run, kind: str, turn: str, call: int, **fields: object) -> None:
    run.callers.append({"k": kind, "t": run.tick(), "turn": turn, "call": call, **fields})


def _submit(run: _Run, plan: Plan, which: str = "first") -> int:
    run.calls += 1
    where = {"caller": "c", "which": which, "conversation": "talk", "agent": "careful"}
    more = {"prompt": plan.to_prompt(), "timeout": None, "busy": "enqueue", "waiting": False}
    _say(run, "submit", plan.id, run.calls, **where, **more)
    return run.calls


def _refused(run: _Run, plan: Plan) -> None:
    _say(run, "busy", plan.id, _submit(run, plan))


def _turn(run: _Run, plan: Plan, outcome: str, *, again: bool = False, contradict: bool = False) -> None:
    prompt = plan.to_prompt()
    call = _submit(run, plan)
    _say(run, "accepted", plan.id, call)
    run.accepted.append([plan.id, prompt_digest(prompt, "careful"), "enqueue"])
    if contradict:
        other = _submit(run, Plan(plan.id, other=True), "second")
        _say(run, "conflict", plan.id, other)
    played = play(prompt, after=run.after, validates=True)
    run.events.append(["turn.started", plan.id, 0, 1])
    steps = _work(run, plan.id, played.messages, played.asked)
    last = {"turn": plan.id, "step": steps - 1, "attempt": 1, "load": len(run.worker)}
    if outcome == "committed":
        run.worker.append({"k": "committed", "t": run.tick(), "number": len(run.records) + 1, **last})
        _append(run, plan.id, played.messages)
        run.after, run.last = digest(played.messages, run.after), plan.id
    else:
        run.worker.append({"k": "aborted", "t": run.tick(), "outcome": outcome, **last})
    record: dict[str, Any] = {
        "o": outcome[0] if outcome != "cancelled" else "x",
        "p": prompt_digest(prompt, "careful"),
        "s": steps,
    }
    answer: dict[str, Any] = {"outcome": outcome}
    if outcome == "committed":
        record |= {"c": f"0:{len(run.entries)}:{run.entries[-1][:16].hex()}", "h": 1}
        answer |= {"output": played.messages[-1][1][0][1], "steps": steps}
    elif outcome == "failed":
        record["e"] = [played.failed, "broken"]
        answer["error"] = played.failed
    else:
        run.calls += 1
        _say(run, "cancel", plan.id, run.calls)
        _say(run, "cancel_answer", plan.id, run.calls, answer="cancelled")
    run.records[plan.id] = f"{len(run.records) + 1}|".encode() + json.dumps(record).encode()
    run.events.append([f"turn.{outcome}", plan.id, steps - 1, 1])
    _say(run, "answer", plan.id, call, **answer)
    if again:
        repeated = _submit(run, plan, "second")
        _say(run, "accepted", plan.id, repeated)
        _say(run, "answer", plan.id, repeated, **answer)


def _work(run: _Run, turn: str, messages: list[Message], asked: list[str]) -> int:
    """What a worker writes down of a turn; how many steps it took."""
    step, requests = 0, iter(asked)
    for index, (role, parts) in enumerate(messages):
        calls = [part for part in parts if part[0] == "call"]
        if role != "response":
            continue
        who = _load(run, turn, step)
        run.worker.append({"k": "model", "t": run.tick(), "of": turn, "asked": next(requests), "answers": 0, **who})
        if not calls:
            if index < len(messages) - 1:
                run.worker.append({"k": "staged", "t": run.tick(), "name": f"s{step}", "first": True, **who})
            step += 1
            continue
        run.worker.append({"k": "staged", "t": run.tick(), "name": f"s{step}", "first": True, **who})
        step += 1
        who = _load(run, turn, step)
        for _, tool, call, _ in calls:
            given = {"tool": tool, "call": call, "given": call}
            run.worker.append({"k": "tool", "t": run.tick(), "of": turn, "run": turn, **given, **who})
            if tool != "broken":
                run.worker.append({"k": "staged", "t": run.tick(), "name": f"j{step}:{call}:0", "first": True, **who})
        if index < len(messages) - 1:
            run.worker.append({"k": "staged", "t": run.tick(), "name": f"s{step}", "first": True, **who})
        step += 1
    return step


def _load(run: _Run, turn: str, step: int) -> dict[str, Any]:
    begun = run.tick()
    who = {"turn": turn, "step": step, "attempt": 1, "load": len(run.worker) + 1}
    run.worker.append({"k": "load", "t": run.tick(), "begun": begun, **who})
    return who


def _append(run: _Run, turn: str, messages: Iterable[Message]) -> None:
    for role, parts in messages:
        payload = json.dumps({"kind": role, "run_id": turn, "parts": [_part(part) for part in parts]}).encode()
        run.entries.append(encode(payload, run.entries[-1][:16] if run.entries else b""))


def encode(payload: bytes, previous: bytes) -> bytes:
    """An entry as `history/checkpoints.py` describes it."""
    body = b"\0\0" + payload
    return blake2b(body, digest_size=16, key=previous).digest() + body


def _part(part: list[str]) -> dict[str, Any]:
    kind = {"part_kind": _KINDS[part[0]]}
    match part:
        case ["call", tool, call, arguments]:
            return kind | {"tool_name": tool, "tool_call_id": call, "args": json.loads(arguments)}
        case ["result", tool, call, outcome, content]:
            return kind | {"tool_name": tool, "tool_call_id": call, "outcome": outcome, "content": content}
        case ["feedback"]:
            return kind | {"content": "redo"}
        case _:
            return kind | {"content": part[1]}


def _write(folder: Path, run: _Run) -> None:
    def text(value: bytes | str) -> str:
        return b64encode(value.encode() if isinstance(value, str) else value).decode()

    def pairs(values: dict[str, Any]) -> list[list[str]]:
        return [[text(name), text(value)] for name, value in values.items()]

    versions = sum(json.loads(blob.partition(b"|")[2])["o"] == "c" for blob in run.records.values())
    tip = run.entries[-1][:16].hex()
    head = {"v": str(versions), "e": "0", "n": str(len(run.entries)), "d": tip, "t": run.last, "x": "{}"}
    base = f"chaos:{{{_LANE_ID}}}:"
    lane = ["talk", "careful", "contract"]
    keys: dict[str, Any] = {
        "chaos:lanes": {"type": "hash", "ttl": -1, "value": pairs({_LANE_ID: json.dumps(lane)})},
        base + "head": {"type": "hash", "ttl": -1, "value": pairs(head)},
        base + "turns": {"type": "hash", "ttl": -1, "value": pairs(run.records)},
        base + "epoch:0": {"type": "list", "ttl": -1, "value": [text(entry) for entry in run.entries]},
        base + "events": {
            "type": "stream",
            "ttl": -1,
            "value": [[f"{n}-0", pairs({"e": json.dumps(event)})] for n, event in enumerate(run.events)],
        },
    }
    (folder / "redis.json").write_text(json.dumps({"prefix": "chaos", "keys": keys}))
    runs = [{"lane": lane, "accepted": run.accepted[:2]}, {"lane": lane, "accepted": run.accepted[2:]}]
    (folder / "temporal.json").write_text(json.dumps(runs))
    for name, lines in (("callers/c", run.callers), ("workers/w", run.worker)):
        path = folder / f"{name}.jsonl"
        path.parent.mkdir(exist_ok=True)
        path.write_text("".join(json.dumps(line) + "\n" for line in lines))
