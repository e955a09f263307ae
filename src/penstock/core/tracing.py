"""Traces (OpenTelemetry), where they are wanted: one way for a process to send its spans.

Off unless ``PENSTOCK_TRACING`` is 1, and then nothing of it is imported. Where spans are sent, how they are sampled and
what the service is called is said by OpenTelemetry's own variables (``OTEL_EXPORTER_OTLP_ENDPOINT``,
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
def span_provider() -> TracerProvider:
    """What makes this process's spans; it sends them a batch at a time, from a thread of its own."""
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import SERVICE_NAME, OTELResourceDetector, Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    except ImportError:
        raise ConfigurationError(
            "PENSTOCK_TRACING needs OpenTelemetry: install it with `pip install 'penstock[tracing]'`"
        ) from None
    resource = Resource.create({SERVICE_NAME: "penstock"}).merge(OTELResourceDetector().detect())
    provider = TracerProvider(resource=resource)
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    return provider


def send_spans(seconds: float) -> None:
    """Send what is left, and wait for that no longer than this: a collector that is away would be tried for minutes."""
    sending = threading.Thread(target=span_provider().force_flush, name="penstock spans", daemon=True)
    sending.start()
    sending.join(seconds)
