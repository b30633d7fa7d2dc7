"""The floor under a delegation: an update that runs child workflows. Temporal's sandbox imports this module."""

from __future__ import annotations

import asyncio
from datetime import timedelta

from temporalio import workflow

with workflow.unsafe.imports_passed_through():
    from bench.arms.echo import echo

_TIMEOUT = timedelta(seconds=30)


@workflow.defn
class ChildWorkflow:
    """One activity."""

    @workflow.run
    async def run(self, text: str) -> str:
        return await workflow.execute_activity(echo, text, start_to_close_timeout=_TIMEOUT)


@workflow.defn
class ParentWorkflow:
    """Answers each update after an activity, some children, and an activity: a request, the work, a request."""

    def __init__(self) -> None:
        self._is_done = False

    @workflow.run
    async def run(self) -> None:
        await workflow.wait_condition(lambda: self._is_done)

    @workflow.update
    async def ask(self, text: str, children: int, at_a_time: int) -> str:
        text = await workflow.execute_activity(echo, text, start_to_close_timeout=_TIMEOUT)
        places = asyncio.Semaphore(at_a_time)

        async def work(number: int) -> str:
            async with places:
                name = f"{workflow.info().workflow_id}-{workflow.uuid4()}-{number}"
                found: str = await workflow.execute_child_workflow(ChildWorkflow.run, text, id=name)
                return found

        await asyncio.gather(*(work(number) for number in range(children)))
        return await workflow.execute_activity(echo, text, start_to_close_timeout=_TIMEOUT)

    @workflow.signal
    def end(self) -> None:
        self._is_done = True
