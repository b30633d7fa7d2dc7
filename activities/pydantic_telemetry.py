"""Pydantic AI's own instrumentation, where an application has telemetry."""

from __future__ import annotations

from pydantic_ai.models.instrumented import InstrumentationSettings

from laneway.activities.telemetry import StepTelemetry

__all__ = ["instrumentation_of"]


def instrumentation_of(step: StepTelemetry) -> InstrumentationSettings:
    """The settings by which the framework makes its spans of a step."""
    telemetry = step.instruments.telemetry
    return InstrumentationSettings(
        tracer_provider=telemetry.tracer_provider,
        meter_provider=telemetry.meter_provider,
        include_content=telemetry.include_content,
        include_binary_content=telemetry.include_content,
    )
