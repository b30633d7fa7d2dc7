"""All that a test's servers hold, as bytes, to look for what must be nowhere."""

from __future__ import annotations

from redis.asyncio import Redis

from laneway import LanewayClient, Settings


async def everything_in(redis: Redis, settings: Settings) -> bytes:
    """All that the test's keys hold, and their names."""
    found: list[bytes] = []
    async for key in redis.scan_iter(f"{settings.redis_prefix}:*"):
        found += [key, await redis.dump(key) or b""]
        kind = (await redis.type(key)).decode()
        if kind == "hash":
            found.extend(part for pair in (await redis.hgetall(key)).items() for part in pair)
        elif kind == "list":
            found.extend(await redis.lrange(key, 0, -1))
        elif kind == "stream":
            found.extend(value for _, fields in await redis.xrange(key) for value in fields.values())
        elif kind == "zset":
            found.extend(await redis.zrange(key, 0, -1))
        elif kind == "set":
            found.extend(await redis.smembers(key))
        else:
            assert kind == "string", f"what is in a {kind} is not looked at"
            found.append(await redis.get(key))
    return b"\n".join(found)


async def temporal_history(client: LanewayClient, workflow_id: str) -> bytes:
    """All that Temporal's history of a workflow holds."""
    found = [
        event.SerializeToString()
        async for event in client.temporal.get_workflow_handle(workflow_id).fetch_history_events()
    ]
    return b"\n".join(found)


async def events_in(client: LanewayClient, workflow_id: str) -> list[str]:
    """The kinds of a workflow's events in Temporal, in order, without those of its workflow tasks.

    How many tasks there are is the server's matter: a worker that is late has its task given out anew.
    """
    handle = client.temporal.get_workflow_handle(workflow_id)
    kinds = [str(event.WhichOneof("attributes")) async for event in handle.fetch_history_events()]
    return [kind.removesuffix("_event_attributes") for kind in kinds if not kind.startswith("workflow_task_")]
