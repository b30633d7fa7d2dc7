"""The files of a small run in which all is well, made without servers: what violations are planted in."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from pathlib import Path
from typing import Any

from tests.chaos.script import GRAPHS, TEAMS, Message, Outside, Plan, Played, briefs, sightings, told_of_kept
from tests.chaos.tree import Story, prompt_digest

__all__ = ["encode", "write_good_run"]

_KINDS = {
    "prompt": "user-prompt",
    "text": "text",
    "call": "tool-call",
    "result": "tool-return",
    "feedback": "retry-feedback",
}


@dataclass
class _Lane:
    conversation: str
    agent: str
    story: Story = field(default_factory=Story)
    entries: list[bytes] = field(default_factory=list[bytes])
    records: dict[str, bytes] = field(default_factory=dict[str, bytes])
    events: list[list[Any]] = field(default_factory=list[list[Any]])
    accepted: list[list[str]] = field(default_factory=list[list[str]])
    kept: dict[str, list[Any]] = field(default_factory=dict[str, list[Any]])
    last: str = ""
    versions: int = 0
    ended: int = 0
    parent: str = ""
    is_dropped: bool = False
    is_superseded: bool = False

    @property
    def id(self) -> str:
        return blake2b(f"{self.conversation}/{self.agent}".encode(), digest_size=12).hexdigest()


@dataclass
class _Child:
    lane: _Lane
    delegate: str
    call: str
    turn: str
    told: list[str]
    kept: str | None
    runs: int

    def to_data(self) -> list[Any]:
        return [self.delegate, self.lane.conversation, self.lane.agent, "contract", self.turn, self.kept, self.runs]


@dataclass
class _Run:
    callers: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    answers: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    worker: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    lanes: list[_Lane] = field(default_factory=list[_Lane])
    clock: int = 0
    calls: int = 0

    def tick(self) -> int:
        self.clock += 1000
        return self.clock

    def lane(self, conversation: str, agent: str) -> _Lane:
        self.lanes.append(lane := _Lane(conversation, agent))
        return lane


def write_good_run(folder: Path, agent: str = "careful") -> None:
    """Two lanes and the children of one. On the first: three committed turns, one that failed, one that was cancelled,
    one that was refused. On the second: two that handed out work, one of which asked and one with a budget, one that
    was cancelled with its child, and one that two messages steered."""
    run = _Run()
    lane = run.lane("talk", agent)
    _turn(run, lane, Plan("t1"), "committed")
    _turn(run, lane, Plan("t2", [["fetch", "count"], ["shy"]]), "committed", again=True)
    _turn(run, lane, Plan("t3", [["broken"]]), "failed")
    _turn(run, lane, Plan("t4", [["fetch"]]), "cancelled")
    _turn(run, lane, Plan("t5", redo=True), "committed", contradict=True)
    _say(run, "busy", "t6", _submit(run, lane, Plan("t6")))
    team = run.lane("team", "plain")
    reader, scribe, kept = "delegate_to_reader", "delegate_to_scribe", "delegate_to_kept"
    _turn(run, team, Plan("u1", [[reader, kept, "sign"]], hands=[{}, {}]), "committed", asks="u1.0.2")
    _turn(run, team, Plan("u2", [[reader, kept]], hands=[{"fail": True}, {}]), "committed", budget=8)
    _turn(run, team, Plan("u3", [[scribe]], hands=[{}]), "cancelled")
    _turn(run, team, Plan("u4", [["fetch"]]), "committed", steered=[Plan("s1"), Plan("s2")])
    _write(folder, run)


# Clients --------------------------------------------------------------------------------------------------------------


def _say(run: _Run, kind: str, turn: str, call: int, **fields: object) -> None:
    run.callers.append({"k": kind, "t": run.tick(), "turn": turn, "call": call, **fields})


def _submit(
    run: _Run, lane: _Lane, plan: Plan, which: str = "first", *, busy: str = "enqueue", budget: int | None = None
) -> int:
    run.calls += 1
    where = {"caller": "c", "which": which, "conversation": lane.conversation, "agent": lane.agent}
    more = {"prompt": plan.to_prompt(), "timeout": None, "busy": busy, "waiting": False, "budget": budget}
    _say(run, "submit", plan.id, run.calls, **where, **more)
    return run.calls


def _accept(run: _Run, lane: _Lane, plan: Plan, *, busy: str = "enqueue", budget: int | None = None) -> int:
    call = _submit(run, lane, plan, busy=busy, budget=budget)
    _say(run, "accepted", plan.id, call)
    lane.accepted.append([plan.id, prompt_digest(plan.to_prompt(), lane.agent), busy])
    return call


def _answered(run: _Run, turn: str, call: str) -> list[str]:
    """Somebody approves of a call; somebody else comes late with another answer, and one goes to a wrong request."""
    comes_to = ["success", f"sign {call}"]
    for give, said, wrong, result in (
        (1, "unknown", "id", comes_to),
        (2, "unavailable", "", comes_to),
        (2, "ok", "", comes_to),
        (3, "already", "", ["denied", "no"]),
    ):
        line = {"give": give, "turn": turn, "request": f"of {call}", "call": call, "comes_to": result, "wrong": wrong}
        run.answers.append({"k": "give", "t": run.tick(), **line})
        run.answers.append({"k": "given", "t": run.tick(), "said": said, **line})
    return comes_to


# Turns ----------------------------------------------------------------------------------------------------------------


def _turn(
    run: _Run,
    lane: _Lane,
    plan: Plan,
    outcome: str,
    *,
    again: bool = False,
    contradict: bool = False,
    asks: str = "",
    budget: int | None = None,
    steered: Sequence[Plan] = (),
) -> None:
    call = _accept(run, lane, plan, budget=budget)
    steering = {one.id: _accept(run, lane, one, busy="steer") for one in steered}
    if contradict:
        other = _submit(run, lane, Plan(plan.id, other=True), "second")
        _say(run, "conflict", plan.id, other)
    children = [_child(run, lane, plan, *work, is_dropped=outcome != "committed") for work in briefs(plan.to_prompt())]
    results = {child.call: child.told for child in children}
    if asks:
        results[asks] = _answered(run, plan.id, asks)
    outside = Outside(results, {"1": [one.to_prompt() for one in steered]} if steered else {})
    played = lane.story.play(plan.to_prompt(), lane.agent, outside)
    steps = _work(run, lane, plan, plan.id, played, until_wait=outcome == "cancelled" and bool(children))
    digests = {one.id: prompt_digest(one.to_prompt(), lane.agent) for one in steered}
    _end(run, lane, plan, plan.id, played, outcome, steps, children=children, taken=digests)
    answer: dict[str, Any] = {"outcome": outcome}
    if outcome == "committed":
        answer |= {"output": played.output, "steps": steps}
    elif outcome == "failed":
        answer["error"] = played.failed
    else:
        run.calls += 1
        _say(run, "cancel", plan.id, run.calls)
        _say(run, "cancel_answer", plan.id, run.calls, answer="cancelled")
    _say(run, "answer", plan.id, call, **answer)
    for turn, submitted in steering.items():
        _say(run, "answer", turn, submitted, outcome="committed", output=played.output, steps=0)
    if again:
        repeated = _submit(run, lane, plan, "second")
        _say(run, "accepted", plan.id, repeated)
        _say(run, "answer", plan.id, repeated, **answer)


def _child(run: _Run, above: _Lane, plan: Plan, delegate: str, call: str, prompt: str, *, is_dropped: bool) -> _Child:
    known = TEAMS[above.agent][delegate]
    lane = run.lane(f"child-{call}", known.agent)
    lane.parent, lane.is_dropped = above.conversation, is_dropped
    kept, runs = None, 1
    if known.keep:
        kept = next(iter(above.kept), f"kept-{call}")
        if kept in above.kept:
            runs = above.kept[kept][6] + 1
            before = next(one for one in run.lanes if one.conversation == above.kept[kept][1])
            lane.story = Story(list(before.story.messages), before.story.after, before.story.kept)
            lane.entries, lane.versions, lane.last = list(before.entries), before.versions, before.last
            before.is_superseded = not is_dropped
    own, turn = Plan.from_prompt(prompt), f"turn-{call}"
    lane.accepted.append([turn, prompt_digest(prompt, known.agent), "enqueue"])
    played = lane.story.play(prompt, known.agent, Outside())
    steps = _work(run, lane, own, turn, played)
    outcome = "committed" if played.failed is None else "failed"
    _end(run, lane, own, turn, played, outcome, steps)
    lane.ended = run.tick() // 1000
    told = ["success", played.output if kept is None else told_of_kept(kept, played.output)]
    if played.failed is not None:
        told = ["failed", f"{delegate} failed: {played.failed}: broken"]
    child = _Child(lane, delegate, call, turn, told, kept, runs)
    if kept is not None and not is_dropped:
        above.kept[kept] = child.to_data()
    return child


def _end(
    run: _Run,
    lane: _Lane,
    plan: Plan,
    turn: str,
    played: Played,
    outcome: str,
    steps: int,
    *,
    children: Sequence[_Child] = (),
    taken: Mapping[str, str] | None = None,
) -> None:
    last = {"turn": turn, "step": steps - 1, "attempt": 1, "load": len(run.worker)}
    record: dict[str, Any] = {
        "o": outcome[0] if outcome != "cancelled" else "x",
        "p": prompt_digest(plan.to_prompt(), lane.agent),
        "s": steps,
        "t": [0, run.tick() // 1000],
    }
    if children:
        record["k"] = [child.to_data() for child in children]
    if outcome == "committed":
        run.worker.append({"k": "committed", "t": run.tick(), "number": len(lane.records) + 1, **last})
        _append(lane, turn, played.messages)
        lane.story.add(turn, played)
        lane.last, lane.versions = turn, lane.versions + 1
        record |= {"c": f"0:{len(lane.entries)}:{lane.entries[-1][:16].hex()}", "h": 1}
    else:
        run.worker.append({"k": "aborted", "t": run.tick(), "outcome": outcome, **last})
        if outcome == "failed":
            record["e"] = [played.failed, "broken"]
    if taken:
        record["m"] = list(taken.items())
    _keep(lane, turn, record)
    for one, digest in (taken or {}).items():
        _keep(lane, one, {"o": "c", "p": digest, "s": 0, "t": record["t"], "c": record["c"], "h": 1, "j": turn})
        lane.events.append(["turn.committed", one, 0, 1, {"into": turn}])
    lane.events.append([f"turn.{outcome}", turn, steps - 1, 1])


def _keep(lane: _Lane, turn: str, record: dict[str, Any]) -> None:
    lane.records[turn] = f"{len(lane.records) + 1}|".encode() + json.dumps(record).encode()


def _work(run: _Run, lane: _Lane, plan: Plan, turn: str, played: Played, *, until_wait: bool = False) -> int:
    """What a worker writes down of a turn; how many steps it took. A batch that waits is begun again."""
    lane.events.append(["turn.started", turn, 0, 1])
    messages, step, requests = played.messages, 0, iter(played.asked)
    for index, (role, parts) in enumerate(messages):
        calls = [part for part in parts if part[0] == "call"]
        if role != "response":
            continue
        who = _load(run, turn, step)
        _ask(run, plan, messages[:index], next(requests), who)
        if not calls:
            if index < len(messages) - 1:
                run.worker.append({"k": "staged", "t": run.tick(), "name": f"s{step}", "first": True, **who})
            step += 1
            continue
        run.worker.append({"k": "staged", "t": run.tick(), "name": f"s{step}", "first": True, **who})
        step += 1
        who = _load(run, turn, step)
        waits = any(tool == "sign" or tool.startswith("delegate_to") for _, tool, _, _ in calls)
        for _, tool, call, _ in calls:
            if tool != "sign" and not tool.startswith("delegate_to"):
                _tool(run, plan, turn, step, tool, call, who)
        if waits:
            run.worker.append({"k": "staged", "t": run.tick(), "name": f"s{step}", "first": True, **who})
            step += 1
            if until_wait:
                return step
            who = _load(run, turn, step)
            for _, tool, call, _ in calls:
                if tool == "sign":
                    _tool(run, plan, turn, step, tool, call, who)
        if index < len(messages) - 1:
            run.worker.append({"k": "staged", "t": run.tick(), "name": f"s{step}", "first": True, **who})
        step += 1
    for asked in requests:  # the model had no answer
        _ask(run, plan, messages, asked, _load(run, turn, step))
        step += 1
    return step


def _ask(run: _Run, plan: Plan, before: Sequence[Message], asked: str, who: dict[str, Any]) -> None:
    answers = sum(role == "response" for role, _ in before)
    model = {"k": "model", "of": plan.id, "asked": asked, "answers": answers, "outside": vars(sightings(before))}
    run.worker.append({"t": run.tick(), **model, **who})


def _tool(run: _Run, plan: Plan, turn: str, step: int, tool: str, call: str, who: dict[str, Any]) -> None:
    given = {"tool": tool, "call": call, "given": call}
    run.worker.append({"k": "tool", "t": run.tick(), "of": plan.id, "run": turn, **given, **who})
    if tool != "broken":
        run.worker.append({"k": "staged", "t": run.tick(), "name": f"j{step}:{call}:0", "first": True, **who})


def _load(run: _Run, turn: str, step: int) -> dict[str, Any]:
    begun = run.tick()
    who = {"turn": turn, "step": step, "attempt": 1, "load": len(run.worker) + 1}
    run.worker.append({"k": "load", "t": run.tick(), "begun": begun, **who})
    return who


# Histories ------------------------------------------------------------------------------------------------------------


def _append(lane: _Lane, turn: str, messages: Iterable[Message]) -> None:
    for role, parts in messages:
        if lane.agent in GRAPHS:
            stored, known = _of_a_graph(role, parts), json.dumps({"r": turn}).encode()
        else:
            stored, known = [{"kind": role, "run_id": turn, "parts": [_part(part) for part in parts]}], b""
        for one in stored:
            previous = lane.entries[-1][:16] if lane.entries else b""
            lane.entries.append(encode(json.dumps(one).encode(), previous, known))


def _of_a_graph(role: str, parts: list[list[str]]) -> list[dict[str, Any]]:
    """A message as a graph's is stored: as LangChain's, each result by itself."""
    if role == "request":
        return [{"type": "human" if part[0] == "prompt" else "tool", "data": _data(part)} for part in parts]
    calls = [{"name": part[1], "id": part[2], "args": json.loads(part[3])} for part in parts if part[0] == "call"]
    text = "".join(part[1] for part in parts if part[0] == "text")
    return [{"type": "ai", "data": {"content": text, **({"tool_calls": calls} if calls else {})}}]


def _data(part: list[str]) -> dict[str, Any]:
    if part[0] == "prompt":
        return {"content": part[1]}
    _, tool, call, outcome, content = part
    failed = {"status": "error"} if outcome == "retried" else {}
    return {"content": content, "name": tool, "tool_call_id": call, **failed}


def encode(payload: bytes, previous: bytes, known: bytes = b"") -> bytes:
    """An entry as `history/checkpoints.py` describes it."""
    body = len(known).to_bytes(2, "big") + known + payload
    return blake2b(body, digest_size=16, key=previous).digest() + body


def _part(part: list[str]) -> dict[str, Any]:
    kind = {"part_kind": _KINDS[part[0]]}
    match part:
        case ["call", tool, call, arguments]:
            return kind | {"tool_name": tool, "tool_call_id": call, "args": json.loads(arguments)}
        case ["result", tool, call, outcome, content]:
            value: object = content
            if tool == "delegate_to_kept":
                child, _, output = content.partition(": ")
                value = {"child": child, "output": output}
            return kind | {"tool_name": tool, "tool_call_id": call, "outcome": outcome, "content": value}
        case ["feedback"]:
            return kind | {"content": "redo"}
        case _:
            return kind | {"content": part[1]}


# Files ----------------------------------------------------------------------------------------------------------------


def _text(value: bytes | str) -> str:
    return b64encode(value.encode() if isinstance(value, str) else value).decode()


def _pairs(values: Mapping[str, Any]) -> list[list[str]]:
    return [[_text(name), _text(value)] for name, value in values.items()]


def _keys(lane: _Lane) -> dict[str, Any]:
    base, ttl = f"chaos:{{{lane.id}}}:", 1000 if lane.is_dropped or lane.is_superseded else -1
    found: dict[str, Any] = {
        base + "turns": {"type": "hash", "ttl": ttl, "value": _pairs(lane.records)},
        base + "events": {
            "type": "stream",
            "ttl": ttl,
            "value": [[f"{n}-0", _pairs({"e": json.dumps(event)})] for n, event in enumerate(lane.events)],
        },
    }
    if lane.entries and not lane.is_dropped:
        head = {"v": str(lane.versions), "e": "0", "n": str(len(lane.entries)), "d": lane.entries[-1][:16].hex()}
        head |= {"t": lane.last, "x": json.dumps({"kept": lane.kept} if lane.kept else {})}
        found[base + "head"] = {"type": "hash", "ttl": ttl, "value": _pairs(head)}
        entries = [_text(entry) for entry in lane.entries]
        found[base + "epoch:0"] = {"type": "list", "ttl": ttl, "value": entries}
    return found


def _write(folder: Path, run: _Run) -> None:
    keys: dict[str, Any] = {}
    runs: list[dict[str, Any]] = []
    for lane in run.lanes:
        name = [lane.conversation, lane.agent, "contract"]
        index = "chaos:lanes" if not lane.parent else f"chaos:conversation:{lane.id}"
        listed = keys.setdefault(index, {"type": "hash", "ttl": -1, "value": []})
        listed["value"] += _pairs({lane.id: json.dumps(name)})
        keys |= _keys(lane)
        half = len(lane.accepted) // 2 if not lane.parent else 0
        known = {"lane": name, "workflow": lane.conversation, "ended": lane.ended, "parent": lane.parent}
        runs += [known | {"accepted": part} for part in (lane.accepted[:half], lane.accepted[half:]) if part]
    (folder / "redis.json").write_text(json.dumps({"prefix": "chaos", "keys": keys}))
    (folder / "temporal.json").write_text(json.dumps(runs))
    ledgers = (("callers/c", run.callers), ("answerers/a", run.answers), ("workers/w", run.worker))
    for name, lines in ledgers:
        path = folder / f"{name}.jsonl"
        path.parent.mkdir(exist_ok=True)
        path.write_text("".join(json.dumps(line) + "\n" for line in lines))
