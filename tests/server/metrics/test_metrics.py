"""``/metrics`` and ``/v1/metrics`` of a real server."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import psycopg
import pytest
from prometheus_client.parser import text_string_to_metric_families

from penstock.log.log import Log
from penstock.log.read.pop_request import PopRequest
from penstock.log.write.encode.batch import Batch
from penstock.server.metrics.database_metrics import DATABASE_FAMILIES
from penstock.server.metrics.exposition import ALL_FAMILIES
from tests import servers
from tests.server.server_process import RunningServer, run_server
from tests.servers import Server

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def shared_url(pg18: Server) -> Iterator[str]:
    """A database of its own: the tests count everything in it, and make it unavailable."""
    with pg18.fresh_database(servers.TEMPLATE) as url:
        yield url


@pytest.fixture(scope="module")
def shared_server(shared_url: str) -> Iterator[RunningServer]:
    with run_server(shared_url) as running:
        yield running


DOCUMENTED = Path(__file__).parents[3] / "docs" / "reference" / "metrics.md"


async def scrape(http: httpx.AsyncClient) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    response = await http.get("/metrics")
    assert response.status_code == 200, response.text
    assert response.headers["content-type"].startswith("text/plain; version=")
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(response.text)
        for sample in family.samples
    }


def value(samples: dict[Any, float], name: str, **labels: str) -> float:
    return samples[name, frozenset(labels.items())]


async def wait_for(http: httpx.AsyncClient, condition: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
    """Return the metrics when they fulfil a condition. The server caches those of the database for a second."""
    async with asyncio.timeout(30):
        while True:
            details: dict[str, Any] = (await http.get("/v1/metrics")).json()
            if condition(details):
                return details
            await asyncio.sleep(0.02)


async def test_database_metrics(http: httpx.AsyncClient, log: Log) -> None:
    await log.configure("orders", {"retry_limit": 0}, partitioning="key")
    await log.push([Batch("orders", [{"data": n, "key": f"customer {n}"} for n in range(6)])])
    events = await log.pop(PopRequest("orders", "billing", batch=2))
    await log.ack(events[:1], "dead_letter", error="no such customer")
    details = await wait_for(http, lambda d: d["dlqSize"] == 1)
    samples = await scrape(http)
    assert value(samples, "penstock_queue_events", queue="orders") == 6
    assert value(samples, "penstock_queue_appended_events_total", queue="orders") == 6
    assert value(samples, "penstock_group_lag_events", queue="orders", group="billing") == 5
    assert value(samples, "penstock_dead_letters", queue="orders", group="billing") == 1
    assert value(samples, "penstock_group_oldest_seconds", queue="orders", group="billing") > 0
    assert value(samples, "penstock_database_reachable") == 1
    (queue,) = details["queues"]
    assert (queue["name"], queue["depth"], queue["deadLetters"]) == ("orders", 5, 1)
    assert details["queueDepth"] == 5
    assert details["dlqSize"] == 1


async def test_size_of_a_view_and_its_operators(http: httpx.AsyncClient, log: Log) -> None:
    view = {"state_names": ["aggregate by customer", "first 3"], "max_state_bytes": 10_000}
    async with log.database.connection() as conn:
        created = await conn.execute(
            "INSERT INTO penstock.queries (name, description, fingerprint, history_seconds, view) "
            "VALUES ('by_customer', '{}', '', 1, %s) RETURNING id",
            [json.dumps(view)],
        )
        (query,) = await created.fetchone() or (0,)
        for operator, is_current in ((1, True), (1, True), (1, False)):
            await conn.execute(
                "INSERT INTO penstock.state_runs (query_id, operator, shard, part, run_id, token, attempt, replaces, "
                "rows, data, is_current) VALUES (%s, %s, 0, 0, '', '', 1, '{}', 7, '12345', %s)",
                [query, operator, is_current],
            )
    details = await wait_for(http, lambda d: "by_customer" in [query["name"] for query in d["queries"]])
    (found,) = [query for query in details["queries"] if query["name"] == "by_customer"]
    assert found["operators"] == [
        {"operator": 1, "description": "aggregate by customer", "rows": 14, "bytes": 10},
        {"operator": 2, "description": "first 3", "rows": 0, "bytes": 0},
    ]
    assert (found["viewRows"], found["viewBytes"], found["viewStateLimitBytes"]) == (0, 0, 10_000)
    samples = await scrape(http)
    labels = {"query": "by_customer", "operator": "1", "description": "aggregate by customer"}
    assert value(samples, "penstock_view_operator_bytes", **labels) == 10


async def test_json_totals_have_documented_names(http: httpx.AsyncClient) -> None:
    document = (await http.get("/metrics", headers={"Accept": "application/json"})).json()
    processor = {
        "eventsReceived",
        "eventsProcessed",
        "eventsDropped",
        "windowsEmitted",
        "backpressureEvents",
        "uptimeMs",
    }
    pipeline = {"eventsAccepted", "eventsRejected", "dlqSize", "queueDepth", "throughputPerSecond"}
    assert processor | pipeline <= document.keys()


async def test_requests_are_counted_by_route(http: httpx.AsyncClient) -> None:
    requests = (
        "penstock_http_requests_total",
        frozenset({("method", "GET"), ("route", ""), ("status", "404")}),
    )
    problems = ("penstock_problems_total", frozenset({("kind", "no-such-route")}))
    before = await scrape(http)
    for secret in ("ada", "bob"):
        assert (await http.get(f"/v1/nowhere/{secret}")).status_code == 404
    samples = await scrape(http)
    assert samples[requests] - before.get(requests, 0) == 2
    assert samples[problems] - before.get(problems, 0) == 2
    # A request counts after its response, so the first scrape does not contain itself.
    again = await scrape(http)
    count = ("penstock_http_request_seconds_count", frozenset({("method", "GET"), ("route", "/metrics")}))
    assert again[count] > samples.get(count, 0)
    assert not [key for key in again if "ada" in repr(key)]


async def test_labels_contain_no_event_keys(http: httpx.AsyncClient, log: Log) -> None:
    await log.configure("orders")
    await log.push([Batch("orders", [{"data": 1, "key": "very-secret-key"}])])
    await log.pop(PopRequest("orders", "other"))
    await wait_for(http, lambda d: "other" in [group["group"] for group in d["groups"]])
    assert "very-secret-key" not in (await http.get("/metrics")).text
    assert "very-secret-key" not in (await http.get("/v1/metrics")).text
    assert {name for family in ALL_FAMILIES for name in family.labels} <= {
        "queue", "group", "query", "operator", "description", "status", "method", "route", "kind", "reason",
    }  # fmt: skip


async def test_events_are_counted_in_both_protocols(http: httpx.AsyncClient, log: Log) -> None:
    await log.configure("ways")
    assert (await http.post("/v1/queues/ways/events", json=[{"data": 1}, {"data": 2}])).is_success
    popped = await http.post("/v1/queues/ways/groups/g/pop", json={"batch": 2})
    first = popped.json()["events"][0]
    assert (await http.post("/v1/queues/ways/events", json=[{"nothing": "here"}])).status_code == 422
    items = [{"queue": "ways", "payload": n, "transactionId": "same"} for n in (3, 4)]
    assert (await http.post("/api/v1/push", json={"items": items})).status_code == 201
    messages = (await http.get("/api/v1/pop/queue/ways", params={"consumerGroup": "h", "batch": 10})).json()["messages"]
    message_id = {"transactionId": messages[0]["transactionId"], "partitionId": messages[0]["partitionId"]}
    acked = await http.post("/api/v1/ack", json={**message_id, "leaseId": messages[0]["leaseId"], "consumerGroup": "h"})
    assert acked.json()[0]["success"] is True
    samples = await scrape(http)
    counts = {
        name: value(samples, f"penstock_events_{name}_total", queue="ways")
        for name in ("received", "accepted", "duplicate", "rejected", "delivered")
    }
    delivered = len(popped.json()["events"]) + len(messages)
    assert counts == {"received": 5, "accepted": 3, "duplicate": 1, "rejected": 1, "delivered": delivered}
    assert value(samples, "penstock_events_acked_total", queue="ways", status="completed") == 1
    assert value(samples, "penstock_commit_seconds_count") == 2
    assert first["data"] == 1


def test_all_metrics_are_documented() -> None:
    documented = set(re.findall(r"`(penstock_\w+)`", DOCUMENTED.read_text()))
    assert documented == {family.exposed_name for family in ALL_FAMILIES}


async def test_openmetrics_format(http: httpx.AsyncClient) -> None:
    response = await http.get("/metrics", headers={"Accept": "application/openmetrics-text; version=1.0.0"})
    assert response.headers["content-type"].startswith("application/openmetrics-text")
    assert response.text.endswith("# EOF\n")


async def test_query_metrics(http: httpx.AsyncClient, shared_url: str) -> None:
    with psycopg.connect(shared_url, autocommit=True) as conn:
        conn.execute(
            """
            WITH q AS (
                INSERT INTO penstock.queries (name, description, fingerprint, history_seconds)
                VALUES ('totals', '{}', '', 1) RETURNING id
            ), t AS (
                INSERT INTO penstock.query_totals
                    (query_id, cycles, events_in, windows, late, cycle_counts, cycle_seconds)
                SELECT id, 2, 70, 3, 4, penstock.count_in(penstock.count_in(NULL, 0.15), 1000), 1000.15 FROM q
            )
            INSERT INTO penstock.cycles
                (query_id, cycle, fence, plan, planned, committed_at, events_in, watermark)
            SELECT id, 2, 1, '', 70, clock_timestamp(), 70, clock_timestamp() - interval '1 minute' FROM q
            """
        )
    await wait_for(http, lambda d: d["eventsProcessed"] == 70)
    samples = await scrape(http)
    assert value(samples, "penstock_query_events_total", query="totals") == 70
    assert value(samples, "penstock_query_late_events_total", query="totals") == 4
    assert value(samples, "penstock_query_watermark_lag_seconds", query="totals") >= 60
    bucket = "penstock_query_cycle_seconds_bucket"
    counts = [value(samples, bucket, query="totals", le=le) for le in ("0.1", "0.2", "300", "+Inf")]
    assert counts == [0, 1, 1, 2]


async def test_scrape_succeeds_without_the_database(http: httpx.AsyncClient, shared_url: str, pg18: Any) -> None:
    name = psycopg.conninfo.conninfo_to_dict(shared_url)["dbname"]
    with pg18.superuser() as conn:
        conn.execute(f'ALTER DATABASE "{name}" ALLOW_CONNECTIONS false')
        try:
            conn.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s", [name])
            await wait_for(http, lambda details: not details["databaseReachable"])
            samples = await scrape(http)
            assert value(samples, "penstock_database_reachable") == 0
            assert value(samples, "penstock_workers") == 1
            assert not [key for key in samples if key[0] == "penstock_queue_events"]
        finally:
            conn.execute(f'ALTER DATABASE "{name}" ALLOW_CONNECTIONS true')


def test_histogram_bounds_match_the_database(shared_url: str) -> None:
    bounds = {family.bounds for family in DATABASE_FAMILIES if family.kind == "histogram"}
    with psycopg.connect(shared_url) as conn:
        row = conn.execute("SELECT penstock.cycle_bounds()").fetchone()
    assert row is not None
    assert bounds == {tuple(row[0])}
