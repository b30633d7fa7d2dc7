"""A process that holds a stack until it is killed: `python stack_process.py FOLDER`.

It writes one key and starts one workflow, prints one line of JSON with the servers' pids, and waits.
"""

from __future__ import annotations

import asyncio
import json
import sys

from laneway.connect import connect_redis, connect_temporal
from laneway.local import LocalStack


async def main(data_dir: str) -> None:
    async with LocalStack(data_dir) as stack:
        redis = await connect_redis(stack.settings)
        await redis.set("written", "before the crash")
        await redis.aclose()
        client = await connect_temporal(stack.settings)
        await client.start_workflow("Waits", id="started-before-the-crash", task_queue="nobody")
        print(json.dumps(stack.pids), flush=True)
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
