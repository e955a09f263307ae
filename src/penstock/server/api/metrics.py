"""``/metrics`` in the Prometheus format or as JSON totals, ``/v1/metrics`` as detailed JSON."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from starlette.responses import Response

from penstock.server.auth.identity import Role
from penstock.server.http.responses import json_response
from penstock.server.metrics.exposition import MetricsSnapshot, render_text, take_snapshot
from penstock.server.metrics.json_metrics import (
    MetricDetails,
    MetricTotals,
    processor_totals,
    server_details,
    server_totals,
)
from penstock.server.routing.call import ApiCall
from penstock.server.routing.endpoint import EndpointGroup

routes = EndpointGroup("Metrics")
_TEXT_RESPONSE = {
    "responses": {"200": {"content": {"text/plain; version=1.0.0; charset=utf-8": {"schema": {"type": "string"}}}}}
}


@routes.get(
    "/metrics",
    "Get metrics for Prometheus",
    Role.READ,
    response=MetricTotals,
    checks_queues=True,
    openapi=_TEXT_RESPONSE,
)
async def get_metrics(call: ApiCall) -> Response:
    """Return all metrics: as text for Prometheus, or as JSON if the ``Accept`` header asks for it."""
    return await _respond(call, server_totals)


@routes.get(
    "/metrics/prometheus",
    "Get metrics for Prometheus",
    Role.READ,
    checks_queues=True,
    openapi=_TEXT_RESPONSE,
)
async def get_prometheus_metrics(call: ApiCall) -> Response:
    """Return the same metrics at the address of Queen's own server."""
    return _text_response(await _visible_metrics(call), call.request.headers.get("accept", ""))


async def get_processor_metrics(call: ApiCall) -> Response:
    """Return the metrics of a process that runs queries and receives no pushes."""
    return await _respond(call, processor_totals)


@routes.get("/v1/metrics", "Get metrics as JSON", Role.READ, checks_queues=True)
async def get_metric_details(call: ApiCall) -> MetricDetails:
    """Return all metrics by queue, group and query."""
    return server_details(await _visible_metrics(call))


async def _respond(call: ApiCall, totals: Callable[[MetricsSnapshot], MetricTotals]) -> Response:
    accept = call.request.headers.get("accept", "")
    snapshot = await _visible_metrics(call)
    if "application/json" in accept and "text/plain" not in accept and "openmetrics" not in accept:
        return json_response(totals(snapshot), headers={"Vary": "Accept"})
    return _text_response(snapshot, accept)


def _text_response(snapshot: MetricsSnapshot, accept: str) -> Response:
    body, media_type = render_text(snapshot, accept)
    return Response(body, headers={"Content-Type": media_type, "Vary": "Accept"})


async def _visible_metrics(call: ApiCall) -> MetricsSnapshot:
    snapshot = await take_snapshot(call.services.metrics, call.services.database_metrics)
    return snapshot if call.can_see_all() else snapshot.restrict(call.can_see)


#: The same routes in a process that runs queries and is not a server.
PROCESSOR_ENDPOINTS = tuple(
    replace(each, handler=get_processor_metrics) if each.handler is get_metrics else each for each in routes
)
