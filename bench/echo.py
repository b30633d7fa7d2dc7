"""The floor under a turn: an update that runs one activity. A module of its own, which Temporal's sandbox imports."""

from __future__ import annotations

from datetime import timedelta

from temporalio import activity, workflow


@activity.defn
async def echo(text: str) -> str:
    return text


@workflow.defn
class EchoWorkflow:
    """Answers each update with what one activity returns."""

    def __init__(self) -> None:
        self._is_done = False

    @workflow.run
    async def run(self) -> None:
        await workflow.wait_condition(lambda: self._is_done)

    @workflow.update
    async def ask(self, text: str) -> str:
        return await workflow.execute_activity(echo, text, start_to_close_timeout=timedelta(seconds=30))

    @workflow.signal
    def end(self) -> None:
        self._is_done = True
