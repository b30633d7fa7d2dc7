"""The prompt language: without a script, the user's prompt says what the model does.

A prompt that says nothing is answered with ``turn N: PROMPT``. Lines that begin with ``!`` are orders;
orders up to a ``!then`` make one answer, so calls without one between them are parallel:

    !tool NAME {"json": "arguments"}   call a tool (arguments may be left out)
    !say TEXT                          say it
    !think TEXT                        reason first
    !long N                            say N characters
    !delay SECONDS                     wait before answering
    !chunk CHARS SECONDS               stream in pieces of CHARS, SECONDS apart
    !hold NAME                         wait until the gate NAME is released
    !fail CODE [TIMES [RETRY_AFTER]]   answer this request with an error status, TIMES times
    !cut [TIMES]                       break the answer off in the middle, TIMES times
    !then                              what follows is the answer after the tools have run

After the last of them the answer is ``done: NAME -> RESULT; …`` with the results of the last tools, or
``turn N: …`` if there were none. The step is counted in the request, so a retry is answered as before;
only the ``TIMES`` of a fault are remembered, by what the request says.
"""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace

from tests.support.provider.answers import Answer, Part, Text, Thinking, ToolCall, answer
from tests.support.provider.faults import Fault, cut, status
from tests.support.provider.scripts import Script
from tests.support.provider.signatures import digest
from tests.support.provider.transcript import ProviderRequest


def prompt_script() -> Script:
    """A script that follows the prompt. Each one counts its own faults."""
    struck: Counter[str] = Counter()

    def script(request: ProviderRequest) -> Answer:
        steps = _steps(request.prompt)
        if not steps or request.step >= len(steps):
            return answer(_closing(request))
        made, fault, times = _parse(steps[request.step])
        if not made.parts:
            made = replace(made, parts=(Text(_closing(request)),))
        if fault is not None:
            key = digest(*(f"{entry.role}:{entry.text}" for entry in request.transcript))
            struck[key] += 1
            if struck[key] <= times:
                return replace(made, fault=fault)
        return made

    return script


def _steps(prompt: str) -> list[list[str]]:
    orders = [line.strip() for line in prompt.splitlines() if line.strip().startswith("!")]
    if not orders:
        return []
    steps: list[list[str]] = [[]]
    for order in orders:
        if order == "!then":
            steps.append([])
        else:
            steps[-1].append(order)
    return steps


def _closing(request: ProviderRequest) -> str:
    if request.results:
        return "done: " + "; ".join(f"{result.name} -> {result.text}" for result in request.results)
    plain = [line for line in request.prompt.splitlines() if not line.strip().startswith("!")]
    return f"turn {request.turn}: " + " ".join(plain)


def _parse(orders: list[str]) -> tuple[Answer, Fault | None, int]:
    made = Answer(parts=())
    parts: list[Part] = []
    fault: Fault | None = None
    times = 0
    for order in orders:
        name, _, rest = order[1:].partition(" ")
        words = rest.split()
        match name:
            case "tool":
                tool, _, args = rest.partition(" ")
                parts.append(ToolCall(tool, json.loads(args) if args.strip() else {}))
            case "say":
                parts.append(Text(rest))
            case "think":
                parts.append(Thinking(rest))
            case "long":
                parts.append(Text(_long(int(words[0]))))
            case "delay":
                made = replace(made, delay_seconds=float(words[0]))
            case "chunk":
                made = replace(made, chunk_chars=int(words[0]), chunk_delay_seconds=float(words[1]))
            case "hold":
                made = replace(made, gate=words[0])
            case "fail":
                fault = status(int(words[0]), retry_after=float(words[2]) if len(words) > 2 else None)
                times = int(words[1]) if len(words) > 1 else 1
            case "cut":
                fault = cut()
                times = int(words[0]) if words else 1
            case _:
                raise ValueError(f"the prompt language has no order {order!r}")
    return replace(made, parts=tuple(parts)), fault, times


def _long(chars: int) -> str:
    line = "All work and no play makes a long and even text. "
    return (line * (chars // len(line) + 1))[:chars].rstrip().ljust(chars, ".")
