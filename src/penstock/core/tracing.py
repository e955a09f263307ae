"""Export of OpenTelemetry spans.

Tracing is off unless ``PENSTOCK_TRACING`` is 1. While it is off, OpenTelemetry is not imported. OpenTelemetry's own
variables set the collector, the sampling and the service name (``OTEL_EXPORTER_OTLP_ENDPOINT``,
``OTEL_TRACES_SAMPLER``, ``OTEL_SERVICE_NAME``).
"""

from __future__ import annotations

import threading
from functools import cache
from typing import TYPE_CHECKING

from penstock.core.errors import ConfigurationError

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import TracerProvider


@cache
def get_tracer_provider() -> TracerProvider:
    """Return the tracer provider of this process. It sends spans in batches from its own thread."""
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import SERVICE_NAME, OTELResourceDetector, Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    except ImportError:
        raise ConfigurationError(
            "PENSTOCK_TRACING needs OpenTelemetry: run `pip install '.[tracing]'` in a checkout of Penstock"
        ) from None
    resource = Resource.create({SERVICE_NAME: "penstock"}).merge(OTELResourceDetector().detect())
    provider = TracerProvider(resource=resource)
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    return provider


def flush_spans(seconds: float) -> None:
    """Send the remaining spans, for at most ``seconds``: the exporter retries an absent collector for minutes."""
    thread = threading.Thread(target=get_tracer_provider().force_flush, name="penstock spans", daemon=True)
    thread.start()
    thread.join(seconds)
