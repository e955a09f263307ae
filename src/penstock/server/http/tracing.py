"""Request traces (OpenTelemetry): from the caller's trace context to the commit and into the event's headers."""

from __future__ import annotations

import time

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from penstock.core.tracing import get_tracer_provider
from penstock.server.settings import ServerSettings


class TracingMiddleware:
    """Records a span per request. The provider exports spans in batches, in its own thread."""

    def __init__(self) -> None:
        # The provider reports a missing OpenTelemetry, so it comes before these imports.
        self._provider = get_tracer_provider()
        from opentelemetry import context, trace
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

        self._tracer = self._provider.get_tracer("penstock.server")
        self._trace, self._context = trace, context
        self._propagator = TraceContextTextMapPropagator()
        #: The application, set after its creation.
        self.app: ASGIApp | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle a request within a span, as part of the caller's trace if it has one.

        The span has the route instead of the path, which can contain an event's key, and the names of queue and query.
        """
        if self.app is None or scope["type"] not in ("http", "websocket"):
            return
        state = scope["state"]
        trace_headers = {
            name.decode("latin-1"): value.decode("latin-1")
            for name, value in scope["headers"]
            if name in (b"traceparent", b"tracestate")
        }
        method = scope.get("method", "GET")
        span = self._tracer.start_span(
            method,
            self._propagator.extract(trace_headers),
            self._trace.SpanKind.SERVER,
            {"http.request.method": method, "penstock.request_id": state["request_id"]},
        )

        async def send_traced(message: Message) -> None:
            if "status" in message:
                span.set_attribute("http.response.status_code", message["status"])
                if message["status"] >= 500:
                    span.set_status(self._trace.StatusCode.ERROR)
            await send(message)

        token = self._context.attach(self._trace.set_span_in_context(span))
        try:
            await self.app(scope, receive, send_traced)
        finally:
            if route := state.get("route"):
                span.update_name(f"{method} {route}")
                span.set_attribute("http.route", route)
            for name in ("queue", "query"):
                if value := scope.get("path_params", {}).get(name):
                    span.set_attribute(f"penstock.{name}", value)
            if problem := state.get("problem"):
                span.set_attribute("error.type", problem)
            self._context.detach(token)
            span.end()

    def record_commit(self, seconds: float) -> None:
        """Record a span for the commit of a push, below the span of its request."""
        now = time.time_ns()
        span = self._tracer.start_span("commit", start_time=now - int(seconds * 1e9))
        span.end(now)

    def trace_headers(self) -> dict[str, str]:
        """Return the headers by which events carry the trace of the current request to their consumers."""
        carrier: dict[str, str] = {}
        if self._trace.get_current_span().get_span_context().is_valid:
            self._propagator.inject(carrier)
        return carrier

    def close(self) -> None:
        """Export the remaining spans."""
        self._provider.shutdown()


def create_tracing(settings: ServerSettings) -> TracingMiddleware | None:
    return TracingMiddleware() if settings.core.tracing else None
