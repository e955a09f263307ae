"""Traces, exported to a local collector as OTLP over HTTP."""

from __future__ import annotations

import httpx
import pytest

from penstock.core.settings import Settings
from penstock.db.pool import Database
from penstock.log.log import Log
from penstock.log.read.pop_request import PopRequest
from tests.server.server_process import run_server
from tests.span_collector import run_collector

TRACE = "0af7651916cd43dd8448eb211c80319c"
PARENT = "b7ad6b7169203331"


@pytest.mark.slow
async def test_push_trace_reaches_the_commit_and_the_event(database_url: str) -> None:
    log = await Log(Database(Settings(database_url=database_url))).open()
    await log.configure("orders")
    with run_collector() as (collector, endpoint):
        environ = {
            "PENSTOCK_TRACING": "1",
            "OTEL_EXPORTER_OTLP_ENDPOINT": endpoint,
            "OTEL_EXPORTER_OTLP_COMPRESSION": "none",
            "OTEL_SERVICE_NAME": "shop",
        }
        with run_server(database_url, environ=environ) as running:
            async with httpx.AsyncClient(base_url=running.url, timeout=30) as http:
                response = await http.post(
                    "/v1/queues/orders/events",
                    json=[{"data": "secret payload", "key": "secret key"}],
                    headers={"traceparent": f"00-{TRACE}-{PARENT}-01"},
                )
                assert response.status_code in (200, 201, 202), response.text
        by_name = {span.name: span for span in collector.spans}
    request, commit = by_name["POST /v1/queues/{queue}/events"], by_name["commit"]
    assert collector.services == {"shop"}
    assert (request.trace_id.hex(), request.parent_span_id.hex()) == (TRACE, PARENT)
    assert (commit.trace_id.hex(), commit.parent_span_id) == (TRACE, request.span_id)
    assert request.start_time_unix_nano <= commit.start_time_unix_nano <= commit.end_time_unix_nano
    assert "secret" not in str(collector.spans)
    (event,) = await log.pop(PopRequest("orders", "billing"))
    assert event.headers["traceparent"] == f"00-{TRACE}-{request.span_id.hex()}-01"
    await log.close()
