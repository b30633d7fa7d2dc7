"""Workers that are killed, that run for long, and that have nothing to do."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

from laneway import Conversation, Laneway, LanewayClient, Settings
from laneway.connect import connect_redis

from bench.arms.worker import CALLS, app
from bench.crew import ROOT
from bench.measures.setting import Setting
from bench.report import Section, Table, Target, median, milliseconds, spread_ms
from bench.script import PROMPT

__all__ = ["idle", "kills", "memory"]

_START_SECONDS = 60.0
_CACHE_BYTES = 1_000_000
_WARM_UP_LANES = 1000
# What is freed goes back to the system by chance: a single figure is up to 2 % off.
_ROUNDS = 5
# As in the image of `deploy/`.
_ALLOCATOR = {"MALLOC_ARENA_MAX": "2", "MALLOC_MMAP_THRESHOLD_": "131072"}
_MEMORY_NOTE = (
    f"Resident memory of a worker process of its own. Its cache of histories is set to {_CACHE_BYTES / 1e6:g} MB; by "
    "default it is 256 MB. The allocator is set as in the image of `deploy/`. What stays short fits the cache, and "
    "the figure is what the worker itself takes; what grows does not, so it is read anew for each turn, and what 50 "
    "turns at once have in memory grows with it. All lanes begin at once: their workflows continue as new together. "
    f"Drift is between the medians of {_ROUNDS} rounds, the first ones after the turn that is named and the last ones."
)


@dataclass
class WorkerProcess:
    """A worker in a process of its own.

    Attributes:
        ready_at: when it said that it runs, in seconds since 1970.
    """

    process: asyncio.subprocess.Process
    ready_at: float

    @classmethod
    async def start(cls, settings: Settings, log: Path) -> WorkerProcess:
        with log.open("a") as errors:
            process = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "bench.arms.worker", settings.model_dump_json(),
                cwd=ROOT, env=os.environ | _ALLOCATOR,
                stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=errors,
            )  # fmt: skip
        assert process.stdout is not None
        async with asyncio.timeout(_START_SECONDS):
            line = await process.stdout.readline()
        return cls(process, float(line))

    @property
    def memory_bytes(self) -> int:
        """What of it is in the machine's memory."""
        pages = Path(f"/proc/{self.process.pid}/statm").read_text().split()[1]
        return int(pages) * os.sysconf("SC_PAGE_SIZE")

    async def kill(self) -> float:
        """SIGKILL; when that was."""
        at = time.time()
        if self.process.returncode is None:
            self.process.send_signal(signal.SIGKILL)
        await self.process.wait()
        return at


@dataclass
class Site:
    """A task queue with a client, and the workers that are started on it."""

    setting: Setting
    settings: Settings
    client: LanewayClient
    redis: Any
    stack: AsyncExitStack

    async def worker(self) -> WorkerProcess:
        worker = await WorkerProcess.start(self.settings, self.setting.folder / "workers.log")
        self.stack.push_async_callback(worker.kill)
        return worker

    async def call(self, conversation: str, number: int) -> float:
        """When the model was asked for the `number`th time in a conversation, in seconds since 1970."""
        async with asyncio.timeout(90):
            while True:
                calls = await self.redis.lrange(f"{self.settings.redis_prefix}:{CALLS}:{conversation}", 0, -1)
                if len(calls) >= number:
                    return float(json.loads(calls[number - 1])["at"])
                await asyncio.sleep(0.005)


@asynccontextmanager
async def _site(setting: Setting, **changed: object) -> AsyncIterator[Site]:
    name = f"bench-{uuid4().hex[:8]}"
    settings = setting.settings.model_copy(update={"task_queue": name, "redis_prefix": name, **changed})
    async with AsyncExitStack() as stack:
        redis = await connect_redis(settings)
        stack.push_async_callback(redis.aclose)
        application: Laneway = app(settings)
        client = await stack.enter_async_context(application.client(settings))
        yield Site(setting, settings, client, redis, stack)


async def kills(setting: Setting) -> Section:
    section = Section("kills", "Killed workers")
    between: list[float] = []
    during: list[float] = []
    async with _site(setting, heartbeat_timeout=timedelta(seconds=setting.sizes.heartbeat_seconds)) as site:
        worker = await site.worker()
        for _ in range(setting.sizes.kills):
            conversation = uuid4().hex
            await site.client.conversation(conversation).ask("noted", PROMPT)
            await worker.kill()
            worker = await site.worker()
            turn = await site.client.conversation(conversation).submit("noted", PROMPT)
            between.append(await site.call(conversation, 2) - worker.ready_at)
            await turn.result()
        # Several lanes lose their model request with one kill, at different moments after their last heartbeat.
        conversations = [uuid4().hex for _ in range(setting.sizes.kills)]
        for conversation in conversations:
            await site.client.conversation(conversation).submit("hangs_once", PROMPT)
            await site.call(conversation, 1)
            await asyncio.sleep(0.13)
        await asyncio.sleep(1)
        await site.worker()
        killed_at = await worker.kill()
        during += [await site.call(conversation, 2) - killed_at for conversation in conversations]
        heartbeat = site.settings.heartbeat_timeout.total_seconds()
    section.raw = {"between": between, "during": during}
    rows = [
        ["between two steps: from the new worker's start to the next step", *_summed(between)],
        ["during a model request: from the kill to the next request", *_summed(during)],
    ]
    note = (
        "SIGKILL of the only worker. Between two steps, the turn is submitted once the new worker runs, so that all of "
        "Temporal's wait for the dead one is in the figure. During a request, another worker runs already; the wait is "
        f"for the heartbeat timeout, {heartbeat:g} s by default."
    )
    section.tables.append(Table("Until work goes on", ["", "p50 ms", "p10 to p90 ms", "longest ms"], rows, note))
    section.targets += [
        Target.at_most("SIGKILL between steps: new worker up to next step", 1.2, max(between), unit=" s"),
        Target.at_most(
            f"SIGKILL during a model request, from the kill (heartbeat timeout {heartbeat:g} s + 0.5 s)",
            heartbeat + 0.5,
            max(during),
            unit=" s",
        ),
    ]
    return section


def _summed(seconds: list[float]) -> list[object]:
    return [milliseconds(median(seconds)), spread_ms(seconds), milliseconds(max(seconds))]


async def _at_once(limit: int, calls: list[Callable[[], Awaitable[Any]]]) -> None:
    slots = asyncio.Semaphore(limit)

    async def one(call: Callable[[], Awaitable[Any]]) -> None:
        async with slots:
            await call()

    await asyncio.gather(*map(one, calls))


async def memory(setting: Setting) -> Section:
    sizes = setting.sizes
    section = Section("memory", "A worker's memory")
    measure = "worker memory over many turns on many lanes"
    for agent, title, name in (
        ("brief", "histories that stay short", f"{measure}, histories that stay short"),
        ("agent", "histories that grow", "the same, histories that grow by 3 KB a turn"),
    ):
        points = await _over_turns(setting, agent)
        section.raw[f"points of {agent}"] = points
        step = max(len(points) // 5, 1)
        at = [point for index, point in enumerate(points) if index % step == 0 or point is points[-1]]
        rows = [[count, round(size / 2**20, 1)] for count, size in at]
        section.tables.append(Table(f"{sizes.memory_lanes} lanes, {title}", ["turns", "MB"], rows, _MEMORY_NOTE))
        target, early = "≤ 5 % drift", sizes.memory_lanes * sizes.memory_turns // 10
        later = [size for count, size in points if count >= early]
        if len(later) >= 2 * _ROUNDS:
            drift = median(later[-_ROUNDS:]) / median(later[:_ROUNDS]) - 1
            text = f"{drift:+.1%} after turn {early}, {points[-1][0]:,} turns"
            section.targets.append(Target(name, target, text, drift <= 0.05))
        else:
            section.targets.append(Target(name, target, "too few turns to tell", None))
    return section


async def _over_turns(setting: Setting, agent: str) -> list[tuple[int, int]]:
    """The memory of a worker of its own after each round of one turn on every lane: turns so far, and bytes."""
    sizes = setting.sizes
    points: list[tuple[int, int]] = []
    async with _site(setting, history_cache_bytes=_CACHE_BYTES) as site:
        worker = await site.worker()
        lanes = [site.client.conversation(uuid4().hex) for _ in range(sizes.memory_lanes)]
        for number in range(sizes.memory_turns):
            left = (sizes.memory_turns - number) * sizes.memory_lanes
            if not setting.clock.has(60, f"{left} turns of the memory measure, agent {agent!r}"):
                break
            await _at_once(50, [lambda lane=lane: lane.ask(agent, PROMPT) for lane in lanes])
            points.append(((number + 1) * sizes.memory_lanes, worker.memory_bytes))
    return points


async def _idled_out(site: Site, lanes: Sequence[Conversation]) -> None:
    """A turn on each lane; all of them have completed."""
    await _at_once(50, [lambda lane=lane: lane.ask("agent", PROMPT) for lane in lanes])
    query = f"TaskQueue = '{site.settings.task_queue}' AND ExecutionStatus = 'Running'"
    async with asyncio.timeout(60):
        while (await site.client.temporal.count_workflows(query)).count:  # noqa: ASYNC110 - only the server knows
            await asyncio.sleep(0.25)


async def idle(setting: Setting) -> Section:
    count = setting.sizes.idle_lanes
    section = Section("idle", "Lanes that have idled out")
    async with _site(setting, idle_timeout=timedelta(seconds=2), history_cache_bytes=_CACHE_BYTES) as site:
        worker = await site.worker()
        lanes = [site.client.conversation(uuid4().hex) for _ in range(count)]
        # What as many lanes at a time take as are open until they idle out is taken before that is looked at.
        await _idled_out(site, [site.client.conversation(uuid4().hex) for _ in range(min(count, _WARM_UP_LANES))])
        before = worker.memory_bytes
        await _idled_out(site, lanes)
        after = worker.memory_bytes
        woken: list[float] = []
        warm: list[float] = []
        for lane in lanes[:20]:
            for taken in (woken, warm):
                begun = time.perf_counter()
                await lane.ask("agent", PROMPT)
                taken.append(time.perf_counter() - begun)
    each = (after - before) / count
    section.raw = {"woken": woken, "warm": warm, "before": before, "after": after}
    rows = [
        ["the turn that wakes an idle lane", milliseconds(median(woken)), spread_ms(woken)],
        ["the turn after it", milliseconds(median(warm)), spread_ms(warm)],
    ]
    note = f"{count:,} lanes of one turn each, idle timeout 2 s; then 20 of them are woken."
    section.tables.append(Table("Waking", ["", "p50 ms", "p10 to p90 ms"], rows, note))
    section.targets += [
        Target(f"{count:,} lanes that have idled out: open workflows", "0", "0", True),
        Target(
            "the same, worker memory", "none", f"{each / 1024:+.1f} KB a lane, its cache (1 MB) included",
            each * count < 0.05 * before,
        ),
        Target.at_most("the same, next submit against a warm turn", 2, median(woken) / median(warm)),
    ]  # fmt: skip
    return section
