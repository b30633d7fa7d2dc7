"""Telemetry: spans and metrics through OpenTelemetry, where an application asks for them.

A turn is one trace. It begins with the caller's submit; what the worker does joins it by the context that goes with the
turn's prompt in Redis, since the lane's workflow outlives every trace. No text of prompts, answers, tools or histories
is in a span, unless `include_content` says so to the framework's own instrumentation.
"""

from __future__ import annotations

import time
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

from opentelemetry import metrics, trace
from opentelemetry.metrics import MeterProvider
from opentelemetry.trace import SpanKind, Status, StatusCode, TracerProvider
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from laneway.history.editing import EditReceipt
from laneway.history.given import check_flag, check_kind
from laneway.history.lanes import LaneKey
from laneway.history.observing import Pass, observer, observing
from laneway.history.records import TurnRecord

__all__ = ["Instruments", "StepTelemetry", "Telemetry", "telemetry_here"]

_NAME: Final = "laneway"
_PROPAGATOR: Final = TraceContextTextMapPropagator()
_COMPACTION: Final = "laneway:native_compaction"


@dataclass(frozen=True)
class Telemetry:
    """Where spans and metrics go. An application without one has none.

    Attributes:
        tracer_provider, meter_provider: OpenTelemetry's; None for the global ones.
        include_content: whether the framework's own spans hold prompts, answers and tool results.

    Raises:
        InvalidArgument: one of them is of another type.
    """

    tracer_provider: TracerProvider | None = None
    meter_provider: MeterProvider | None = None
    include_content: bool = False

    def __post_init__(self) -> None:
        own = "of OpenTelemetry's, or None for the global one"
        check_kind("Telemetry: tracer_provider", self.tracer_provider, TracerProvider, f"a TracerProvider {own}")
        check_kind("Telemetry: meter_provider", self.meter_provider, MeterProvider, f"a MeterProvider {own}")
        check_flag("Telemetry: include_content", self.include_content)


class Instruments:
    """What an application's clients and workers measure with."""

    def __init__(self, telemetry: Telemetry) -> None:
        self.telemetry = telemetry
        self.tracer = trace.get_tracer(_NAME, tracer_provider=telemetry.tracer_provider)
        meter = metrics.get_meter(_NAME, meter_provider=telemetry.meter_provider)
        self._turns = meter.create_counter("laneway.turns", unit="{turn}", description="turns that ended, by outcome")
        self._turn_seconds = meter.create_histogram(
            "laneway.turn.duration", unit="s", description="how long turns took"
        )
        self._rewrites = meter.create_counter(
            "laneway.history.rewrites", unit="{rewrite}", description="histories written anew"
        )
        self._failures = meter.create_counter(
            "laneway.history.failures", unit="{failure}", description="history processing that failed"
        )
        self._seconds = meter.create_histogram(
            "laneway.history.compaction.duration", unit="s", description="how long history processing took"
        )
        self._before = meter.create_histogram(
            "laneway.history.tokens.before", unit="{token}", description="estimated size before a rewrite"
        )
        self._after = meter.create_histogram(
            "laneway.history.tokens.after", unit="{token}", description="estimated size after a rewrite"
        )
        self._reduction = meter.create_histogram(
            "laneway.history.reduction", unit="1", description="the share of its tokens that a rewrite took away"
        )
        self._request_seconds = meter.create_histogram(
            "gen_ai.client.operation.duration", unit="s", description="how long model requests took"
        )
        self._request_tokens = meter.create_histogram(
            "gen_ai.client.token.usage", unit="{token}", description="input and output tokens of model requests"
        )

    # The caller -------------------------------------------------------------------------------------------------------

    @contextmanager
    def submitting(self, lane: LaneKey, turn_id: str) -> Generator[Mapping[str, str]]:
        """The span of a submit, and the context by which the turn joins its trace."""
        with self.tracer.start_as_current_span(
            f"invoke_agent {lane.agent}", kind=SpanKind.CLIENT, attributes=_attributes(lane, turn_id)
        ):
            carrier: dict[str, str] = {}
            _PROPAGATOR.inject(carrier)
            yield carrier

    # The worker -------------------------------------------------------------------------------------------------------

    @contextmanager
    def step(self, lane: LaneKey, turn_id: str, step: int, carrier: Mapping[str, str]) -> Generator[StepTelemetry]:
        """The span of an attempt at a step, in the trace of its turn."""
        context = _PROPAGATOR.extract(carrier) if carrier else None
        here = trace.get_current_span().get_span_context()
        if context is not None and trace.get_current_span(context).get_span_context().trace_id == here.trace_id:
            context = None  # the activity's span is of the turn's trace already
        attributes = _attributes(lane, turn_id) | {"laneway.step": step}
        with self.tracer.start_as_current_span(f"step {lane.agent}", context=context, attributes=attributes):
            telemetry = StepTelemetry(self, attributes)
            with observing(telemetry):
                yield telemetry

    def ended(self, lane: LaneKey, record: TurnRecord, carrier: Mapping[str, str]) -> None:
        """A turn has ended: its span, from its first step to its end, and its figures."""
        outcome: dict[str, Any] = {"gen_ai.agent.name": lane.agent, "laneway.turn.outcome": record.outcome}
        if record.error_type is not None:
            outcome["error.type"] = record.error_type
        self._turns.add(1, outcome)
        started = record.ended_at if record.started_at is None else record.started_at
        self._turn_seconds.record(record.ended_at - started, outcome)
        usage = record.usage
        span = self.tracer.start_span(
            f"turn {lane.agent}",
            context=_PROPAGATOR.extract(carrier) if carrier else None,
            start_time=_nanoseconds(started),
            attributes=_attributes(lane, record.turn_id)
            | outcome
            | {
                "laneway.turn.steps": record.steps,
                "gen_ai.usage.input_tokens": usage.input_tokens,
                "gen_ai.usage.output_tokens": usage.output_tokens,
            },
        )
        if record.outcome == "failed":
            span.set_status(Status(StatusCode.ERROR, record.error_type))
        span.end(_nanoseconds(record.ended_at))

    def edited(self, receipt: EditReceipt, attributes: Mapping[str, Any]) -> None:
        """The figures of a rewrite."""
        if not receipt.is_rewrite:
            return
        named = {"gen_ai.agent.name": attributes["gen_ai.agent.name"], "laneway.history.processor": receipt.processor}
        self._rewrites.add(1, named)
        self._before.record(receipt.tokens_before, named)
        self._after.record(receipt.tokens_after, named)
        if receipt.tokens_before:
            self._reduction.record(1 - receipt.tokens_after / receipt.tokens_before, named)

    def processed(self, one: Pass, attributes: Mapping[str, Any]) -> None:
        """A pass of history processing: its span and its duration. One that came to nothing has neither."""
        if one.receipt is None and one.error is None:
            return
        named: dict[str, Any] = {
            "gen_ai.agent.name": attributes["gen_ai.agent.name"],
            "laneway.history.processor": one.processor,
        }
        span = self.tracer.start_span(
            "process history",
            start_time=one.started_ns,
            attributes={**attributes, **named, **_figures(one.receipt)},
        )
        if one.error is not None:
            named["error.type"] = type(one.error).__name__
            self._failures.add(1, named)
            # The type only: what a callback says may hold what it was editing.
            span.set_status(Status(StatusCode.ERROR, type(one.error).__name__))
        self._seconds.record((one.ended_ns - one.started_ns) / 1e9, named)
        span.end(one.ended_ns)

    def asked(self, seconds: float, attributes: Mapping[str, Any], *, input_tokens: int, output_tokens: int) -> None:
        """A model request of a framework that does not measure its own has ended."""
        self._request_seconds.record(seconds, attributes)
        for kind, tokens in (("input", input_tokens), ("output", output_tokens)):
            if tokens:
                self._request_tokens.record(tokens, {**attributes, "gen_ai.token.type": kind})

    def compacted(self, receipt: EditReceipt, attributes: Mapping[str, Any], started_ns: int) -> None:
        """A compaction by the provider, which came with an answer."""
        now = time.time_ns()
        named = {"gen_ai.agent.name": attributes["gen_ai.agent.name"], "laneway.history.processor": receipt.processor}
        span = self.tracer.start_span(
            "compact history", start_time=started_ns, attributes={**attributes, **named, **_figures(receipt)}
        )
        self._seconds.record((now - started_ns) / 1e9, named)
        span.end(now)


@dataclass
class StepTelemetry:
    """What a step is measured with.

    Attributes:
        instruments: the worker's.
        attributes: of the step's spans.
    """

    instruments: Instruments
    attributes: Mapping[str, Any]

    def __post_init__(self) -> None:
        self._started_ns = time.time_ns()

    def passed(self, one: Pass) -> None:
        """A history processor has run, or failed."""
        self.instruments.processed(one, self.attributes)

    def edited(self, receipt: EditReceipt) -> None:
        """A rewrite was accepted, or came from the provider."""
        self.instruments.edited(receipt, self.attributes)
        if receipt.processor == _COMPACTION:
            self.instruments.compacted(receipt, self.attributes, self._started_ns)


def telemetry_here() -> StepTelemetry | None:
    """What the step is measured with that this code is called in; None where it is not measured."""
    found = observer()
    return found if isinstance(found, StepTelemetry) else None


def _attributes(lane: LaneKey, turn_id: str) -> dict[str, Any]:
    return {
        "gen_ai.operation.name": "invoke_agent",
        "gen_ai.agent.name": lane.agent,
        "gen_ai.conversation.id": lane.conversation,
        "laneway.turn.id": turn_id,
    }


def _figures(receipt: EditReceipt | None) -> dict[str, Any]:
    if receipt is None:
        return {"laneway.history.rewritten": False}
    return {
        "laneway.history.rewritten": receipt.is_rewrite,
        "laneway.history.tokens.before": receipt.tokens_before,
        "laneway.history.tokens.after": receipt.tokens_after,
        "laneway.history.epoch": receipt.epoch_after,
    }


def _nanoseconds(seconds: float) -> int:
    return int(seconds * 1e9)
