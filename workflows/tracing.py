"""Temporal's own spans, each in the trace of the turn that it is about.

Temporal's interceptor carries one context for the life of a workflow, and a lane lives through many turns. So the
context that comes with a turn's submit is kept under the turn's id, and is the current one where that turn's activities
and children are started. Nothing of it is state: a workflow that is replayed keeps the same contexts again, and one
that continues as new hands on those of the turns that it carries in a header, as Temporal does with its own.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from contextlib import contextmanager
from typing import Any, Final, NoReturn

import temporalio.worker
from opentelemetry import context as otel_context
from opentelemetry.context import Context
from temporalio.api.common.v1 import Payload
from temporalio.contrib.opentelemetry import TracingInterceptor, TracingWorkflowInboundInterceptor

from laneway.activities.wire import LaneInput

__all__ = ["TurnTracingInterceptor"]

_MAX_TURNS: Final = 1000
_CARRIED: Final = "_laneway-traces"


class TurnTracingInterceptor(TracingInterceptor):
    """Temporal's tracing, for clients and workers, by turns."""

    def workflow_interceptor_class(
        self, input: temporalio.worker.WorkflowInterceptorClassInput
    ) -> type[TracingWorkflowInboundInterceptor]:
        super().workflow_interceptor_class(input)
        return _Inbound


class _Inbound(TracingWorkflowInboundInterceptor):
    def __init__(self, next: temporalio.worker.WorkflowInboundInterceptor) -> None:
        self._turns: dict[str, Mapping[str, str]] = {}
        self._running: str | None = None
        super().__init__(_Innermost(next, self))

    async def execute_workflow(self, input: temporalio.worker.ExecuteWorkflowInput) -> Any:
        if carried := input.headers.get(_CARRIED):
            self._turns = {**self.payload_converter.from_payloads([carried])[0], **self._turns}
        return await super().execute_workflow(input)

    async def handle_update_handler(self, input: temporalio.worker.HandleUpdateInput) -> Any:
        turn_id = getattr(input.args[0], "id", None) if input.args else None
        header = input.headers.get(self.header_key)
        if not isinstance(turn_id, str) or not header:
            return await super().handle_update_handler(input)
        carrier: Mapping[str, str] = self.payload_converter.from_payloads([header])[0]
        # A turn that is submitted again stays in the trace of its first submit.
        self._turns.setdefault(turn_id, carrier)
        while len(self._turns) > _MAX_TURNS:
            self._turns.pop(next(iter(self._turns)))
        with attached(self._of(carrier)):
            self._completed_span(f"HandleUpdate:{input.update}")
            return await self.next.handle_update_handler(input)

    def context_of(self, arguments: Any) -> Context | None:
        """The context of the turn that an activity is started for."""
        turn_id = getattr(arguments[0], "t", None) if arguments else None
        return self._context(turn_id or "")

    def takes_step(self, arguments: Any) -> Context | None:
        """The same for an activity that takes a step: its turn is the one that children are started for."""
        self._running = getattr(arguments[0], "t", None) if arguments else None
        return self.of_running

    @property
    def of_running(self) -> Context | None:
        """The context of the turn that runs."""
        return self._context(self._running or "")

    def carried(self, arguments: Any) -> Mapping[str, Payload]:
        """The contexts of the turns that the next run is given, as headers."""
        lane: object = arguments[0] if arguments else None
        if not isinstance(lane, LaneInput):
            return {}
        turns = [*lane.queue, *(() if lane.waits is None else (lane.waits.turn, *lane.waits.s))]
        known = {turn.id: self._turns[turn.id] for turn in turns if turn.id in self._turns}
        return {_CARRIED: self.payload_converter.to_payloads([known])[0]} if known else {}

    def _context(self, turn_id: str) -> Context | None:
        carrier = self._turns.get(turn_id)
        return None if carrier is None else self._of(carrier)

    def _of(self, carrier: Mapping[str, str]) -> Context:
        return self._set_on_context(self.text_map_propagator.extract(carrier))


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
        with attached(self._root.takes_step(input.args)):
            return super().start_activity(input)

    def start_local_activity(self, input: temporalio.worker.StartLocalActivityInput) -> Any:
        with attached(self._root.context_of(input.args)):
            return super().start_local_activity(input)

    def continue_as_new(self, input: temporalio.worker.ContinueAsNewInput) -> NoReturn:
        input.headers = {**input.headers, **self._root.carried(input.args)}
        super().continue_as_new(input)

    async def start_child_workflow(self, input: temporalio.worker.StartChildWorkflowInput) -> Any:
        with attached(self._root.of_running):
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
