"""Traces of requests: from what a caller says of its trace, over the commit, into the event's headers."""

from __future__ import annotations

import time

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from penstock.core.tracing import span_provider
from penstock.server.settings import ServerSettings


class Tracing:
    """Stands before the application, makes spans, and sends them a batch at a time, from a thread of its own."""

    def __init__(self) -> None:
        self._provider = span_provider()
        # After the provider, which says what to do where there is no OpenTelemetry.
        from opentelemetry import context, trace
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

        self._tracer = self._provider.get_tracer("penstock.server")
        self._trace, self._context = trace, context
        self._propagator = TraceContextTextMapPropagator()
        #: What answers requests; set when it is made.
        self.app: ASGIApp | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request within a span, as a part of the caller's trace if it names one.

        Of the path the span has the route, and of the names in it only the queue's and the query's: a key is none.
        """
        if self.app is None or scope["type"] not in ("http", "websocket"):
            return
        state = scope["state"]
        said = {
            name.decode("latin-1"): value.decode("latin-1")
            for name, value in scope["headers"]
            if name in (b"traceparent", b"tracestate")
        }
        method = scope.get("method", "GET")
        span = self._tracer.start_span(
            method,
            self._propagator.extract(said),
            self._trace.SpanKind.SERVER,
            {"http.request.method": method, "penstock.request_id": state["request_id"]},
        )

        async def send_noted(message: Message) -> None:
            if "status" in message:
                span.set_attribute("http.response.status_code", message["status"])
                if message["status"] >= 500:
                    span.set_status(self._trace.StatusCode.ERROR)
            await send(message)

        token = self._context.attach(self._trace.set_span_in_context(span))
        try:
            await self.app(scope, receive, send_noted)
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

    def committed(self, seconds: float) -> None:
        """A push was committed: a span of its own, under that of the request."""
        now = time.time_ns()
        span = self._tracer.start_span("commit", start_time=now - int(seconds * 1e9))
        span.end(now)

    def stamp(self) -> dict[str, str]:
        """What the events of the current request carry, so that whoever reads them can go on with the trace."""
        carrier: dict[str, str] = {}
        if self._trace.get_current_span().get_span_context().is_valid:
            self._propagator.inject(carrier)
        return carrier

    def close(self) -> None:
        """Send what is left."""
        self._provider.shutdown()


def tracing_of(settings: ServerSettings) -> Tracing | None:
    """Traces, if they are wanted."""
    return Tracing() if settings.core.tracing else None
