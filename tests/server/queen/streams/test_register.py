from __future__ import annotations

import subprocess
import sys
from typing import Any

import psycopg
import pytest

from penstock.core.errors import Conflict
from penstock.engine.query_registry import Registry
from tests.log.logs import opened
from tests.server.queen.client import QueenClient
from tests.server.queen.streams.stream_query import StreamQuery, upsert


def test_changed_query_needs_a_reset(queen: QueenClient, query: StreamQuery) -> None:
    body = {"name": f"{query.queue}-query", "source_queue": query.queue, "config_hash": "h1", "reset": True}
    again = queen.post("/streams/v1/queries", body)
    assert (again["query_id"], again["fresh"], again["reset"]) == (query.id, False, False)
    (message,) = query.pop(batch=1)
    query.cycle(message["partitionId"], message, state_ops=[upsert("k", 1)])
    refused = queen.post("/streams/v1/queries", {**body, "config_hash": "h2", "reset": False}, 409)
    assert refused["success"] is False
    assert refused["error"].startswith(
        f"config_hash mismatch: operator chain changed for queryId '{query.queue}-query'"
    )
    assert query.state(message["partitionId"]) == {"k": 1}
    reset = queen.post("/streams/v1/queries", {**body, "config_hash": "h2"})
    assert (reset["query_id"], reset["fresh"], reset["reset"]) == (query.id, False, True)
    assert query.state(message["partitionId"]) == {}
    for name in ("name", "source_queue", "config_hash"):
        error = queen.post("/streams/v1/queries", {**body, name: ""}, 400)["error"]
        assert error == queen.post("/streams/v1/queries", {k: v for k, v in body.items() if k != name}, 400)["error"]
        assert error == f"{name} is required"


def test_client_query_cannot_take_a_spark_query_name(queen: QueenClient, queue: str, queen_url: str) -> None:
    with psycopg.connect(queen_url) as connection:
        connection.execute(
            "INSERT INTO penstock.queries (name, description, fingerprint, history_seconds) VALUES (%s, '{}', '', 1)",
            [f"{queue}-spark"],
        )
    body = {"name": f"{queue}-spark", "source_queue": queue, "config_hash": "h"}
    assert "runs on Spark" in queen.post("/streams/v1/queries", body, 409)["error"]


async def test_spark_query_cannot_take_a_client_query_name(queen: QueenClient, queue: str, queen_url: str) -> None:
    StreamQuery(queen, queue)
    async with opened(queen_url) as log:
        with pytest.raises(Conflict, match="Queen clients already run a query"):
            await Registry(log).register(f"{queue}-query", [], "fingerprint", sink=None, history_seconds=1)


def test_routes_do_not_import_pyspark() -> None:
    check = "import sys, penstock.server.queen.routes; sys.exit('pyspark' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", check], check=False).returncode == 0


def test_client_query_is_listed_with_spark_queries_and_can_be_deleted(
    queen: QueenClient, query: StreamQuery, queen_url: str
) -> None:
    name = f"{query.queue}-query"

    def listed() -> dict[str, Any]:
        (found,) = [each for each in queen.get("/v1/queries")["queries"] if each["name"] == name]
        return dict(found)

    listing = listed()
    assert (listing["computed_by"], listing["state"], listing["lag"], listing["committed_at"]) == (
        "clients",
        "stopped",
        0,
        None,
    )
    assert (listing["queues"], listing["sink"]) == ([query.queue], f"{query.queue}-out")
    (message,) = query.pop(batch=1)
    query.cycle(message["partitionId"], message, state_ops=[upsert("k", 1), upsert("__wm__", 1)])
    details = queen.get(f"/v1/queries/{name}")
    assert (details["state"], details["lag"], details["open_windows"], details["lately"]) == ("running", 2, 1, None)
    assert details["committed_at"] is not None
    assert [group["group"] for group in details["groups"]] == [query.group]
    assert "GET /v1/queries" in queen.get(f"/v1/queries/{name}/cycles", 404)["detail"]
    for command in ("pause", "resume", "stop"):
        refused = queen.post(f"/v1/queries/{name}/{command}", None, 409)
        assert refused["detail"].endswith("stop them where they run")
    assert queen.http.delete(f"/v1/queries/{name}").json()["type"].endswith("/group-busy")
    with psycopg.connect(queen_url, autocommit=True) as conn:
        conn.execute(
            "UPDATE penstock.groups SET seen_at = clock_timestamp() - interval '1 hour' WHERE name = %s", [query.group]
        )
    assert listed()["state"] == "stopped"
    assert queen.http.delete(f"/v1/queries/{name}").status_code == 204
    assert queen.http.get(f"/v1/queries/{name}").status_code == 404
    assert queen.http.delete(f"/v1/queries/{name}").status_code == 404
    assert query.group not in [each["name"] for each in queen.get("/api/v1/consumer-groups")]
    assert StreamQuery(queen, query.queue).state(message["partitionId"]) == {}


def test_registration_with_another_source_replaces_it(queen: QueenClient, query: StreamQuery) -> None:
    body = {"name": f"{query.queue}-query", "source_queue": f"{query.queue}-out", "config_hash": "h1"}
    assert queen.post("/streams/v1/queries", body)["query_id"] == query.id
    details = queen.get(f"/v1/queries/{body['name']}")
    assert (details["queues"], details["sink"]) == ([f"{query.queue}-out"], None)
