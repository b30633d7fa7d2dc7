"""Temporal's own spans, each in the trace of the turn that it is about.

Temporal's interceptor carries one context for the life of a workflow, and a lane lives through many turns. So the
context that comes with a turn's submit is kept under the turn's id, and is the current one where that turn's activities
and children are started. Nothing of it is state: a workflow that is replayed keeps the same contexts again.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from typing import Any, Final

import temporalio.worker
from opentelemetry import context as otel_context
from opentelemetry.context import Context
from temporalio.contrib.opentelemetry import TracingInterceptor, TracingWorkflowInboundInterceptor

__all__ = ["TurnTracingInterceptor"]

_MAX_TURNS: Final = 1000


class TurnTracingInterceptor(TracingInterceptor):
    """Temporal's tracing, for clients and workers, by turns."""

    def workflow_interceptor_class(
        self, input: temporalio.worker.WorkflowInterceptorClassInput
    ) -> type[TracingWorkflowInboundInterceptor]:
        super().workflow_interceptor_class(input)
        return _Inbound


class _Inbound(TracingWorkflowInboundInterceptor):
    def __init__(self, next: temporalio.worker.WorkflowInboundInterceptor) -> None:
        self._turns: dict[str, Context] = {}
        self._running: str | None = None
        super().__init__(_Innermost(next, self))

    async def handle_update_handler(self, input: temporalio.worker.HandleUpdateInput) -> Any:
        turn_id = getattr(input.args[0], "id", None) if input.args else None
        header = input.headers.get(self.header_key)
        if not isinstance(turn_id, str) or not header:
            return await super().handle_update_handler(input)
        carrier: dict[str, str] = self.payload_converter.from_payloads([header])[0]
        context = self._turns[turn_id] = self._set_on_context(self.text_map_propagator.extract(carrier))
        while len(self._turns) > _MAX_TURNS:
            self._turns.pop(next(iter(self._turns)))
        with attached(context):
            self._completed_span(f"HandleUpdate:{input.update}")
            return await self.next.handle_update_handler(input)

    def context_of(self, arguments: Any) -> Context | None:
        """The context of the turn that an activity or a child is started for."""
        turn_id = getattr(arguments[0], "t", None) if arguments else None
        if isinstance(turn_id, str):
            self._running = turn_id
        return self._turns.get(self._running or "")


class _Innermost(temporalio.worker.WorkflowInboundInterceptor):
    """Puts the choice of context before Temporal's own outbound interceptor, which is made after this one is asked."""

    def __init__(self, next: temporalio.worker.WorkflowInboundInterceptor, root: _Inbound) -> None:
        super().__init__(next)
        self._root = root

    def init(self, outbound: temporalio.worker.WorkflowOutboundInterceptor) -> None:
        super().init(_Outbound(outbound, self._root))


class _Outbound(temporalio.worker.WorkflowOutboundInterceptor):
    def __init__(self, next: temporalio.worker.WorkflowOutboundInterceptor, root: _Inbound) -> None:
        super().__init__(next)
        self._root = root

    def start_activity(self, input: temporalio.worker.StartActivityInput) -> Any:
        with attached(self._root.context_of(input.args)):
            return super().start_activity(input)

    def start_local_activity(self, input: temporalio.worker.StartLocalActivityInput) -> Any:
        with attached(self._root.context_of(input.args)):
            return super().start_local_activity(input)

    async def start_child_workflow(self, input: temporalio.worker.StartChildWorkflowInput) -> Any:
        with attached(self._root.context_of(())):
            return await super().start_child_workflow(input)


@contextmanager
def attached(context: Context | None) -> Generator[None]:
    """Make a context the current one."""
    if context is None:
        yield
        return
    token = otel_context.attach(context)
    try:
        yield
    finally:
        otel_context.detach(token)
