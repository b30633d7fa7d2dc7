"""The demo's course: the turns, the three kills, the restart, and the gathering of evidence."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Literal, TypeAlias, cast

from redis.asyncio import Redis

from laneway import LanewayClient, LocalStack, Turn

from examples.demo.app import build_app
from examples.demo.evidence import costs_of, read_chain, tally, texts_in, verify_chain
from examples.demo.figures import Figure, Measured, closing_figures
from examples.demo.ledger import Gate, LineKind
from examples.demo.process import WorkerProcess
from examples.demo.questions import Expected, Ground, Question, compose, holds
from examples.demo.scratch import AGENT, DemoError, Framework, Scratch
from examples.demo.timeline import Timeline
from examples.demo.truth import Survey, Surveyor

__all__ = ["Demo", "Fault"]

Fault: TypeAlias = Literal["answer", "entry"]
"""What to plant, for the closing figures to find: a wrong expectation, or an altered entry in Redis."""

_CONVERSATION = "demo"
_GATES = {2: Gate.REQUEST, 4: Gate.TOOLS, 6: Gate.STAGED}
_TURNS_BEFORE_RESTART = 8
_SETTINGS: dict[str, object] = {
    # Not what the environment says: how soon a kill is noticed decides how long the demo takes, and a shorter time than
    # this would take a busy machine's silence for a death.
    "heartbeat_timeout": timedelta(seconds=5),
    "max_turns_per_run": 100,
    "idle_timeout": timedelta(hours=1),
}
_POLL_SECONDS = 0.02


class Demo:
    """One run of the demo.

    Args:
        root: the folder that is asked about.
        scratch: the demo's own files.
        model_name: `openai:…` or `anthropic:…`; None for the scripted model.
        framework: what the agent is written with.
        timeline: where it is shown.
        faults: faults to plant.
    """

    def __init__(
        self,
        root: Path,
        scratch: Scratch,
        *,
        model_name: str | None,
        framework: Framework,
        timeline: Timeline,
        faults: Sequence[Fault] = (),
    ) -> None:
        self._root = root
        self._scratch = scratch
        self._scripted = model_name is None
        self._turn_seconds = 120.0 if model_name is None else 240.0
        self._timeline = timeline
        self._faults = faults
        self._app = build_app(root, scratch, model_name, framework)
        self._surveyor = Surveyor(root)
        self._worker = WorkerProcess(scratch, root, framework)
        self._waiting: list[Gate] = []
        self._kills: list[str] = []
        self._disturbed: set[str] = set()
        self._ground: Ground = {}
        self._answers: list[str] = []
        self._wrong: dict[str, str] = {}
        self._steps: dict[str, int] = {}
        self._server_pids: list[set[int]] = []

    async def run(self) -> list[Figure]:
        """Give the demo.

        Raises:
            DemoError: it cannot be given.
        """
        survey = await self._survey()
        if not any(file.text for file in survey.files):
            raise DemoError(f"{str(self._root)!r} holds no text to ask about: give another folder (`make demo DIR=…`)")
        questions = list(enumerate(compose(survey), 1))
        size = sum(file.size_bytes for file in survey.files)
        self._timeline.say("folder", f"{self._root}: {len(survey.files)} files, {size:,} bytes", "bold")
        async with self._opened() as client:
            for number, question in questions[:_TURNS_BEFORE_RESTART]:
                await self._take(client, number, question)
            self._timeline.say("stop", "the worker, Temporal and Valkey are stopped", "bold yellow")
        self._disturbed |= {f"turn-{_TURNS_BEFORE_RESTART}", f"turn-{_TURNS_BEFORE_RESTART + 1}"}
        async with self._opened() as client:
            for number, question in questions[_TURNS_BEFORE_RESTART:]:
                await self._take(client, number, question)
            return closing_figures(await self._measure(client, [question for _, question in questions]))

    async def _survey(self) -> Survey:
        return await asyncio.to_thread(self._surveyor.survey)

    @asynccontextmanager
    async def _opened(self) -> AsyncIterator[LanewayClient]:
        """Servers, a worker process and a client; all of them stopped at the end."""
        async with self._worker.running(), LocalStack(self._scratch.data_dir, settings=_SETTINGS) as stack:
            pids = stack.pids
            self._server_pids.append(set(pids.values()))
            self._timeline.say(
                "servers", f"Temporal runs, pid {pids['temporal']}; Valkey too, {pids['valkey']}", "bold"
            )
            try:
                async with self._app.client(stack.settings) as client:
                    await self._worker.ready()
                    self._timeline.say("worker", f"pid {self._worker.pid} takes work", "bold")
                    yield client
            finally:
                # Before the servers, which it would miss.
                await self._worker.stop()

    # Turns ------------------------------------------------------------------------------------------------------------

    async def _take(self, client: LanewayClient, number: int, question: Question) -> None:
        turn_id = f"turn-{number}"
        if (gate := _GATES.get(number)) is not None:
            self._scratch.gates.arm(gate)
            self._waiting.append(gate)
        before = await self._expected(number, question)
        self._timeline.say(f"turn {number}", question.text, "bold blue")
        try:
            async with asyncio.timeout(self._turn_seconds):
                turn = await client.conversation(_CONVERSATION).submit(AGENT, question.text, turn_id=turn_id)
                await self._watch(turn)
                result = await turn.result()
        except TimeoutError:
            raise DemoError(
                f"{turn_id} did not end within {self._turn_seconds:g} s; the worker's log ends: {self._worker.log_tail}"
            ) from None
        answer = str(result.output)
        self._answers.append(answer)
        self._steps[turn_id] = result.steps
        # The folder may change while it is asked about: right is what was right before or after.
        expected = before
        if lacking := holds(answer, expected):
            expected = await self._expected(number, question)
            lacking = holds(answer, expected)
        if lacking:
            self._wrong[turn_id] = f"lacks {', '.join(map(repr, lacking[:3]))}"
        self._ground |= expected.settles
        steps = f"{result.steps} step{'s' * (result.steps > 1)}"
        verdict = "the answer is right" if not lacking else f"the answer {self._wrong[turn_id]}"
        self._timeline.say("", f"committed after {steps}; {verdict}", "dim" if not lacking else "bold red")

    async def _expected(self, number: int, question: Question) -> Expected:
        try:
            expected = question.expect(await self._survey(), self._ground)
        except (LookupError, StopIteration):
            return Expected(["(the folder was emptied meanwhile)"])
        if "answer" in self._faults and number == 5:
            return Expected([*expected.facts, "(planted)"], expected.settles)
        return expected

    async def _watch(self, turn: Turn) -> None:
        """Show the turn until it ends, and kill the worker where it waits for that."""
        shown = asyncio.create_task(self._show(turn))
        try:
            while not shown.done():
                _heed_cancellation()
                for gate in [gate for gate in self._waiting if self._scratch.gates.reached(gate)]:
                    self._waiting.remove(gate)
                    await self._kill(gate, turn.turn_id)
                self._worker.check()
                await asyncio.wait([shown], timeout=_POLL_SECONDS)
            await shown
        finally:
            shown.cancel()

    async def _show(self, turn: Turn) -> None:
        async for event in turn.events():
            self._timeline.event(event)

    async def _kill(self, gate: Gate, turn_id: str) -> None:
        for _ in range(250):
            if self._ripe(gate, turn_id):
                break
            await asyncio.sleep(_POLL_SECONDS)
        self._disturbed.add(turn_id)
        pid = self._worker.pid
        self._timeline.say("kill -9", f"worker {pid}, {gate}", "bold red")
        if self._worker.kill():
            self._kills.append(str(gate))
        self._worker.start()
        await self._worker.ready()
        self._timeline.say("worker", f"pid {self._worker.pid} takes its place", "bold")

    def _ripe(self, gate: Gate, turn_id: str) -> bool:
        """Whether all is seen of what goes on beside the call that waits."""
        match gate:
            case Gate.REQUEST:
                return self._timeline.has_text or not self._scripted
            case Gate.STAGED:
                return True
            case Gate.TOOLS:
                lines = [line for line in self._scratch.ledger.read() if line.turn == turn_id]
                staged = [line for line in lines if line.kind is LineKind.MODEL_STAGED][-1]
                step = 2 * int(staged.call) - 1
                kept = sum(line.kind is LineKind.TOOL_KEPT and line.call.startswith(f"j{step}:") for line in lines)
                return kept >= int(str(staged.data["tools"])) - 1

    # Evidence ---------------------------------------------------------------------------------------------------------

    async def _measure(self, client: LanewayClient, questions: Sequence[Question]) -> Measured:
        conversation = client.conversation(_CONVERSATION)
        lane = conversation.lane(AGENT)
        while (await conversation.status(AGENT)).turn is not None:  # noqa: ASYNC110 - its last task is about to be done
            await asyncio.sleep(_POLL_SECONDS)
        costs, history = await costs_of(client.temporal, client.workflow_id(lane))
        records = await client.turns(lane)
        async with Redis.from_url(client.settings.redis_url) as redis:
            base = f"{client.settings.redis_prefix}:{{{lane.lane_id}}}:"
            if "entry" in self._faults:
                entry = cast("bytes", await redis.lindex(f"{base}epoch:0", 3))
                await redis.lset(f"{base}epoch:0", 3, cast("str", entry[:-2] + b" " + entry[-1:]))
            verified, tampered = verify_chain(await read_chain(redis, base))
        return Measured(
            turns=len(questions),
            committed=sum(record.outcome == "committed" for record in records),
            kills=self._kills,
            kills_planned=len(_GATES),
            restarts=int(len(self._server_pids) == 2 and self._server_pids[0].isdisjoint(self._server_pids[1])),
            tally=tally(self._scratch.ledger.read()),
            costs=costs,
            steps=self._steps,
            disturbed=frozenset(self._disturbed),
            texts=texts_in(history, [*(question.text for question in questions), *self._answers]),
            verified=verified,
            tampered=tampered,
            wrong=self._wrong,
            lenient=not self._scripted,
        )


def _heed_cancellation() -> None:
    # On Python 3.11 `asyncio.wait_for`, through which redis-py sends, can swallow a cancellation. The task still knows.
    task = asyncio.current_task()
    if task is not None and task.cancelling():
        raise asyncio.CancelledError
