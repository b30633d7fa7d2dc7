"""The floor under a turn: an update that runs one activity, or three. Temporal's sandbox imports this module."""

from __future__ import annotations

from datetime import timedelta

from temporalio import activity, workflow

_TIMEOUT = timedelta(seconds=30)


@activity.defn
async def echo(text: str) -> str:
    return text


@workflow.defn
class EchoWorkflow:
    """Answers each update with what its last activity returns."""

    def __init__(self) -> None:
        self._is_done = False

    @workflow.run
    async def run(self) -> None:
        await workflow.wait_condition(lambda: self._is_done)

    @workflow.update
    async def ask(self, text: str) -> str:
        return await workflow.execute_activity(echo, text, start_to_close_timeout=_TIMEOUT)

    @workflow.update
    async def ask_thrice(self, text: str) -> str:
        for _ in range(3):
            text = await workflow.execute_activity(echo, text, start_to_close_timeout=_TIMEOUT)
        return text

    @workflow.signal
    def end(self) -> None:
        self._is_done = True
