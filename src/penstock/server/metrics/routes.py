"""``/metrics`` for Prometheus and for people, ``/v1/metrics`` for management."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from starlette.responses import Response

from penstock.server.http.endpoint import Call, Endpoint, Role, json_response
from penstock.server.metrics.exposition import Scrape, as_text, scrape
from penstock.server.metrics.json import Details, Totals, details, processor_totals, totals

_TEXT = "text/plain; version=1.0.0; charset=utf-8"


async def _seen(call: Call) -> Scrape:
    found = await scrape(call.services)
    return found if call.sees_all() else found.of(call.sees)


async def metrics(call: Call) -> Response:
    """Everything that is measured: as text for Prometheus, as JSON for who asks for that."""
    return await _shown(call, totals)


async def processor_metrics(call: Call) -> Response:
    """The same of a process that runs queries and takes no pushes."""
    return await _shown(call, processor_totals)


async def _shown(call: Call, document: Callable[[Scrape], Totals]) -> Response:
    accept = call.request.headers.get("accept", "")
    found = await _seen(call)
    if "application/json" in accept and "text/plain" not in accept and "openmetrics" not in accept:
        return json_response(document(found), headers={"Vary": "Accept"})
    body, media_type = as_text(found, accept)
    return Response(body, headers={"Content-Type": media_type, "Vary": "Accept"})


async def all_metrics(call: Call) -> Details:
    """Everything that is measured, by queue, group and query."""
    return details(await _seen(call))


_READ = frozenset({Role.READ})

ENDPOINTS = (
    Endpoint(
        "GET",
        "/metrics",
        metrics,
        "Metrics for Prometheus",
        "Metrics",
        roles=_READ,
        asks=True,
        answer=Totals,
        documented={
            "responses": {
                "200": {"content": {_TEXT: {"schema": {"type": "string"}}}},
            }
        },
    ),
    Endpoint("GET", "/v1/metrics", all_metrics, "Metrics as JSON", "Metrics", roles=_READ, asks=True, answer=Details),
)

#: For a process that runs queries and is no server.
PROCESSOR_ENDPOINTS = tuple(
    replace(each, handler=processor_metrics) if each.handler is metrics else each for each in ENDPOINTS
)
