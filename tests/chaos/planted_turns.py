"""What is planted in the turns of one lane."""

from __future__ import annotations

from dataclasses import replace

from tests.chaos.evidence import Evidence, LaneLeft
from tests.chaos.good_run import encode
from tests.chaos.planting import Plants, again, change, line_of, rewrite, work_of
from tests.chaos.script import Plan

__all__ = ["plants"]

plants = Plants()


@plants("lost turn")
def _(evidence: Evidence, lane: LaneLeft) -> None:
    del lane.records["t3"]


@plants("accepted without an event")
def _(evidence: Evidence, lane: LaneLeft) -> None:
    lane.accepted = [one for one in lane.accepted if one[0] != "t2"]


@plants("numbers of ended turns")
def _(evidence: Evidence, lane: LaneLeft) -> None:
    change(lane, "t5", number=6)


@plants("record of an unknown turn")
def _(evidence: Evidence, lane: LaneLeft) -> None:
    lane.records["t9"] = replace(lane.records["t3"], turn="t9", number=6)


@plants("ended without being accepted")
def _(evidence: Evidence, lane: LaneLeft) -> None:
    prompt = lane.records["t3"]
    lane.records["t6"] = replace(prompt, turn="t6", number=6)


@plants("two prompts under one id")
def _(evidence: Evidence, lane: LaneLeft) -> None:
    line_of(evidence, "conflict", "t5")["k"] = "accepted"


@plants("client without an answer")
def _(evidence: Evidence, lane: LaneLeft) -> None:
    evidence.callers.remove(line_of(evidence, "answer", "t1"))


@plants("answer and record differ")
def _(evidence: Evidence, lane: LaneLeft) -> None:
    line_of(evidence, "answer", "t1")["outcome"] = "cancelled"


@plants("answer and record differ")
def _(evidence: Evidence, lane: LaneLeft) -> None:
    line_of(evidence, "answer", "t3")["error"] = "ValueError"


@plants("answer is not the serial one")
def _(evidence: Evidence, lane: LaneLeft) -> None:
    line_of(evidence, "answer", "t2")["output"] = "t2: 0"


@plants("undocumented error")
def _(evidence: Evidence, lane: LaneLeft) -> None:
    line_of(evidence, "busy", "t6").update(k="surprise", error="RuntimeError: event loop is closed")


@plants("known turn called busy")
def _(evidence: Evidence, lane: LaneLeft) -> None:
    line_of(evidence, "conflict", "t5")["k"] = "busy"


@plants("its own prompt called a conflict")
def _(evidence: Evidence, lane: LaneLeft) -> None:
    line_of(evidence, "busy", "t6")["k"] = "conflict"


@plants("cancel without an answer")
def _(evidence: Evidence, lane: LaneLeft) -> None:
    evidence.callers.remove(line_of(evidence, "cancel_answer", "t4"))


@plants("cancel's answer and record differ")
def _(evidence: Evidence, lane: LaneLeft) -> None:
    line_of(evidence, "cancel_answer", "t4")["answer"] = "already_committed"


@plants("cancel's answer and record differ")
def _(evidence: Evidence, lane: LaneLeft) -> None:
    line_of(evidence, "cancel_answer", "t4")["answer"] = "unknown"


@plants("cancelled by nobody")
def _(evidence: Evidence, lane: LaneLeft) -> None:
    evidence.callers = [line for line in evidence.callers if not line["k"].startswith("cancel")]


@plants("committed though it fails")
def _(evidence: Evidence, lane: LaneLeft) -> None:
    change(lane, "t3", outcome="committed")


@plants("failed without a reason")
def _(evidence: Evidence, lane: LaneLeft) -> None:
    change(lane, "t3", error="CheckpointLost")


@plants("not in the order of acceptance")
def _(evidence: Evidence, lane: LaneLeft) -> None:
    lane.accepted[0], lane.accepted[1] = lane.accepted[1], lane.accepted[0]


@plants("not in the order of the client's calls")
def _(evidence: Evidence, lane: LaneLeft) -> None:
    lane.accepted[2], lane.accepted[3] = lane.accepted[3], lane.accepted[2]


@plants("broken chain of digests")
def _(evidence: Evidence, lane: LaneLeft) -> None:
    entry = bytearray(lane.epochs[0][3])
    entry[-2] ^= 1
    lane.epochs[0][3] = bytes(entry)


@plants("orphan tool result")
def _(evidence: Evidence, lane: LaneLeft) -> None:
    rewrite(lane, lambda messages: messages[3]["parts"].pop(0))


@plants("orphan tool call")
def _(evidence: Evidence, lane: LaneLeft) -> None:
    rewrite(lane, lambda messages: messages[4]["parts"].pop(0))


@plants("history is not the serial one")
def _(evidence: Evidence, lane: LaneLeft) -> None:
    rewrite(lane, lambda messages: messages[1]["parts"][0].update(content="t1: another answer"))


@plants("history is not the serial one")
def _(evidence: Evidence, lane: LaneLeft) -> None:
    """A message of the cancelled turn has come in."""
    prompt = {"part_kind": "user-prompt", "content": Plan("t4", [["fetch"]]).to_prompt()}
    rewrite(lane, lambda messages: messages.append({"kind": "request", "run_id": "t4", "parts": [prompt]}))


@plants("history is not the serial one")
def _(evidence: Evidence, lane: LaneLeft) -> None:
    """Two turns have changed places."""
    rewrite(lane, lambda messages: messages.extend([messages.pop(0), messages.pop(0)]))


@plants("no head")
def _(evidence: Evidence, lane: LaneLeft) -> None:
    lane.head = {}


@plants("head's version")
def _(evidence: Evidence, lane: LaneLeft) -> None:
    lane.head["v"] = b"4"


@plants("head's length")
def _(evidence: Evidence, lane: LaneLeft) -> None:
    lane.epochs[0].append(encode(b'{"kind": "request", "parts": []}', lane.epochs[0][-1][:16]))


@plants("head's digest")
def _(evidence: Evidence, lane: LaneLeft) -> None:
    lane.head["d"] = lane.epochs[0][0][:16].hex().encode()


@plants("head's turn")
def _(evidence: Evidence, lane: LaneLeft) -> None:
    lane.head["t"] = b"t2"


@plants("record's checkpoint")
def _(evidence: Evidence, lane: LaneLeft) -> None:
    change(lane, "t1", checkpoint=(0, 2, "00" * 16))


@plants("output is not the serial one")
def _(evidence: Evidence, lane: LaneLeft) -> None:
    change(lane, "t2", output_in_history=False, output='"another"')


@plants("staged entries left behind")
def _(evidence: Evidence, lane: LaneLeft) -> None:
    lane.stages.append("t4:0")


@plants("data of an ended turn left behind")
def _(evidence: Evidence, lane: LaneLeft) -> None:
    lane.unfinished.append("t4")
    lane.ttl["turn:t4"] = 1000


@plants("data without a time to live")
def _(evidence: Evidence, lane: LaneLeft) -> None:
    lane.unfinished.append("t6")
    lane.ttl["turn:t6"] = -1


@plants("data without a time to live")
def _(evidence: Evidence, lane: LaneLeft) -> None:
    lane.epochs[1], lane.ttl["epoch:1"] = [], -1


@plants("committed data with a time to live")
def _(evidence: Evidence, lane: LaneLeft) -> None:
    lane.ttl["epoch:0"] = 1000


@plants("event after the turn's end")
def _(evidence: Evidence, lane: LaneLeft) -> None:
    lane.events.append(["text.delta", "t1", 0, 1, {"text": "late"}])


@plants("not one end on the stream")
def _(evidence: Evidence, lane: LaneLeft) -> None:
    lane.events.append(["turn.committed", "t1", 0, 1])


@plants("not one end on the stream")
def _(evidence: Evidence, lane: LaneLeft) -> None:
    lane.events = [event for event in lane.events if event[:2] != ["turn.failed", "t3"]]


@plants("model call repeated")
def _(evidence: Evidence, lane: LaneLeft) -> None:
    again(evidence, "model", "s0")


@plants("tool call repeated")
def _(evidence: Evidence, lane: LaneLeft) -> None:
    again(evidence, "tool", "j1:t2.0.0")


@plants("called for an ended turn")
def _(evidence: Evidence, lane: LaneLeft) -> None:
    again(evidence, "model", "s0")
    for line in evidence.workers["w2"]:
        line.update(step=9, begun=2**40)


@plants("called outside of an attempt")
def _(evidence: Evidence, lane: LaneLeft) -> None:
    del work_of(evidence, "model", "t1")["load"]


@plants("called for another turn")
def _(evidence: Evidence, lane: LaneLeft) -> None:
    work_of(evidence, "tool", "t2")["run"] = "t1"


@plants("tool given another call's arguments")
def _(evidence: Evidence, lane: LaneLeft) -> None:
    work_of(evidence, "tool", "t2")["call"] = "t2.0.1"


@plants("model was not asked the serial history")
def _(evidence: Evidence, lane: LaneLeft) -> None:
    work_of(evidence, "model", "t5")["asked"] = "0"
