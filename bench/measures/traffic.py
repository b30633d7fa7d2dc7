"""What a turn asks of Redis, as the server itself sees it: for whoever pays for it."""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import suppress
from typing import Any

from laneway.connect import connect_redis

from bench.arms.base import LANEWAY
from bench.measures.setting import Setting, new_lane
from bench.report import Section, Table

__all__ = ["traffic"]

_TURNS = 50


async def traffic(setting: Setting) -> Section:
    """Commands and bytes at Redis for a one-step turn and one with tools, worker and client together."""
    section = Section("traffic", "What a turn asks of Redis")
    turns = min(_TURNS, setting.sizes.latency_turns * 5)
    redis: Any = await connect_redis(setting.settings)
    rows: list[list[object]] = []
    try:
        for name, kind in (("one step", "turn"), ("two parallel tools", "tool_turn")):
            lane = new_lane()
            await setting.ask(LANEWAY, "turns", lane=lane, count=3, kind=kind)
            commands: Counter[str] = Counter()
            sent, received = await _network(redis)
            await setting.ask(LANEWAY, "turns", lane=lane, count=turns, kind=kind)
            sent, received = [
                after - before for after, before in zip(await _network(redis), (sent, received), strict=True)
            ]
            # Counted apart from the bytes: what is monitored is sent to whoever monitors.
            watching = asyncio.create_task(_watch(redis, commands))
            await asyncio.sleep(0.1)
            await setting.ask(LANEWAY, "turns", lane=lane, count=turns, kind=kind)
            await asyncio.sleep(0.1)
            watching.cancel()
            with suppress(asyncio.CancelledError):
                await watching
            scripts = commands.pop("EVALSHA", 0) + commands.pop("EVAL", 0)
            each = {
                "scripts": scripts / turns,
                "commands": commands.total() / turns,
                "sent": sent / turns,
                "received": received / turns,
                "by_name": dict(commands),
            }
            section.raw[kind] = each
            rows.append([name, *(round(each[what], 1) for what in ("scripts", "commands", "sent", "received"))])
    finally:
        await redis.aclose()
    note = (
        f"{turns} turns of a running lane, the client's waiting included. Scripts and plain commands are what was sent "
        "to the server, whatever else its scripts call inside; bytes are the server's network traffic."
    )
    columns = ["", "scripts", "plain commands", "bytes to Redis", "bytes from Redis"]
    section.tables.append(Table("Redis, a turn", columns, rows, note))
    return section


async def _network(redis: Any) -> tuple[int, int]:
    stats = await redis.info("stats")
    return stats["total_net_input_bytes"], stats["total_net_output_bytes"]


async def _watch(redis: Any, commands: Counter[str]) -> None:
    async with redis.monitor() as monitor:
        async for command in monitor.listen():
            if command["client_type"] != "lua":
                commands[command["command"].split(" ")[0].upper()] += 1
