"""An OTLP collector on loopback: what exporters send it over HTTP, taken apart."""

from __future__ import annotations

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self

from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor

from laneway import Telemetry


class Span:
    """A span as it was received."""

    def __init__(self, span: Any) -> None:
        self.name: str = span.name
        self.trace_id: str = span.trace_id.hex()
        self.span_id: str = span.span_id.hex()
        self.parent_id: str = span.parent_span_id.hex()
        self.attributes: dict[str, Any] = {one.key: _value(one.value) for one in span.attributes}
        self.events = [event.name for event in span.events]
        self.seconds = (span.end_time_unix_nano - span.start_time_unix_nano) / 1e9
        self.failed = span.status.code == 2
        self.text = str(span)


class Collector:
    """Listens while the context is open; `telemetry` sends to it."""

    def __init__(self) -> None:
        self.spans: list[Span] = []
        self.points: list[tuple[str, dict[str, Any], float]] = []
        collector = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                collector._take(self.path, body)
                self.send_response(200)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, format: str, *args: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)

    def _take(self, path: str, body: bytes) -> None:
        if path == "/v1/traces":
            request = ExportTraceServiceRequest.FromString(body)
            for resource in request.resource_spans:
                for scope in resource.scope_spans:
                    self.spans.extend(map(Span, scope.spans))
        else:
            metrics = ExportMetricsServiceRequest.FromString(body)
            self.points.clear()  # sums are cumulative
            for resource in metrics.resource_metrics:
                for scope in resource.scope_metrics:
                    for metric in scope.metrics:
                        self._points(metric)

    def _points(self, metric: Any) -> None:
        for point in metric.sum.data_points:
            attributes = {one.key: _value(one.value) for one in point.attributes}
            self.points.append((metric.name, attributes, point.as_int or point.as_double))
        for point in metric.histogram.data_points:
            attributes = {one.key: _value(one.value) for one in point.attributes}
            self.points.append((metric.name, attributes, point.sum))

    def __enter__(self) -> Self:
        self._thread.start()
        url = f"http://127.0.0.1:{self._server.server_port}"
        self._tracers = TracerProvider(shutdown_on_exit=False)
        self._tracers.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(f"{url}/v1/traces")))
        reader = PeriodicExportingMetricReader(OTLPMetricExporter(f"{url}/v1/metrics"), 3_600_000)
        self._meters = MeterProvider([reader], shutdown_on_exit=False)
        self.telemetry = Telemetry(self._tracers, self._meters)
        return self

    def flush(self) -> None:
        """Have everything sent that was measured so far."""
        self._tracers.force_flush()
        self._meters.force_flush()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._tracers.shutdown()
        self._meters.shutdown()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def named(self, name: str) -> list[Span]:
        return [span for span in self.spans if span.name == name]

    def metric(self, name: str) -> list[tuple[dict[str, Any], float]]:
        return [(attributes, value) for found, attributes, value in self.points if found == name]


def _value(value: Any) -> Any:
    return getattr(value, value.WhichOneof("value"))
