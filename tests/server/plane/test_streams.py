"""Streams that clients compute: registration, state, and cycles that happen whole, under a partition's lease."""

from __future__ import annotations

import subprocess
import sys
import uuid
from typing import Any

import psycopg
import pytest

from penstock.core.errors import Conflict
from penstock.engine.registry import Registry
from tests.log.logs import opened
from tests.server.plane.speaking import Plane, data

SEP = "\x1f"


class Query:
    """A query as the SDK drives it."""

    def __init__(self, plane: Plane, queue: str) -> None:
        self.plane, self.queue = plane, queue
        self.group = f"streams.{queue}-query"
        body = {"name": f"{queue}-query", "source_queue": queue, "sink_queue": f"{queue}-out", "config_hash": "h1"}
        self.id: str = plane.post("/streams/v1/queries", body)["query_id"]

    def pop(self, plane: Plane | None = None, **params: Any) -> list[dict[str, Any]]:
        params = {"batch": 100, "consumerGroup": self.group, "leaseSeconds": 60, **params}
        return (plane or self.plane).pop(self.queue, **params)

    def cycle(self, partition: str, ack: dict[str, Any] | None = None, **more: Any) -> dict[str, Any]:
        plane = more.pop("plane", self.plane)
        body = {"query_id": self.id, "partition_id": partition, "consumer_group": self.group, "ack": None, **more}
        if ack is not None:
            told = {"transactionId": ack["transactionId"], "leaseId": ack["leaseId"], "status": "completed", "count": 1}
            body["ack"] = {**told, **body.pop("said", {})}
        answer: dict[str, Any] = plane.post("/streams/v1/cycle", body)
        return answer

    def state(self, partition: str, **more: Any) -> dict[str, Any]:
        body = {"query_id": self.id, "partition_id": partition, "keys": [], **more}
        return {row["key"]: row["value"] for row in self.plane.post("/streams/v1/state/get", body)["rows"]}


def upsert(key: str, value: object) -> dict[str, Any]:
    return {"type": "upsert", "key": key, "value": value}


def window(end: int, total: int) -> dict[str, Any]:
    return {"acc": total, "windowStart": end - 60_000, "windowEnd": end}


@pytest.fixture
def query(plane: Plane, queue: str) -> Query:
    plane.push(queue, range(3), "p")
    return Query(plane, queue)


def test_a_query_is_registered_once_and_a_changed_one_is_refused(plane: Plane, query: Query) -> None:
    body = {"name": f"{query.queue}-query", "source_queue": query.queue, "config_hash": "h1", "reset": True}
    again = plane.post("/streams/v1/queries", body)
    assert (again["query_id"], again["fresh"], again["reset"]) == (query.id, False, False)
    (message,) = query.pop(batch=1)
    query.cycle(message["partitionId"], message, state_ops=[upsert("k", 1)])
    refused = plane.post("/streams/v1/queries", {**body, "config_hash": "h2", "reset": False}, 409)
    assert refused["success"] is False
    assert refused["error"].startswith(
        f"config_hash mismatch: operator chain changed for queryId '{query.queue}-query'"
    )
    assert query.state(message["partitionId"]) == {"k": 1}
    reset = plane.post("/streams/v1/queries", {**body, "config_hash": "h2"})
    assert (reset["query_id"], reset["fresh"], reset["reset"]) == (query.id, False, True)
    assert query.state(message["partitionId"]) == {}
    for name in ("name", "source_queue", "config_hash"):
        said = plane.post("/streams/v1/queries", {**body, name: ""}, 400)["error"]
        assert said == plane.post("/streams/v1/queries", {k: v for k, v in body.items() if k != name}, 400)["error"]
        assert said == f"{name} is required"


def test_a_cycle_changes_state_pushes_and_acks_together(query: Query, other: Plane) -> None:
    messages = query.pop()
    partition = messages[0]["partitionId"]
    done = query.cycle(
        partition,
        messages[2],
        plane=other,
        state_ops=[upsert("a", {"n": 1.5}), upsert("b", [1]), {"type": "delete", "key": "none"}, upsert("a", {"n": 2})],
        push_items=[{"queue": f"{query.queue}-out", "partition": "p", "payload": n} for n in (1, 2)],
    )
    assert done["success"] is True
    assert (done["state_ops_applied"], done["queueName"]) == (4, query.queue)
    assert done["ack_result"] == {"success": True, "count": 1, "lease_released": True, "dlq": False}
    assert [each["status"] for each in done["push_results"]] == ["queued", "queued"]
    assert query.state(partition) == {"a": {"n": 2}, "b": [1]}
    assert query.state(partition, keys=["b", "c"]) == {"b": [1]}
    assert query.state(partition, key_prefix="a") == {"a": {"n": 2}}
    assert data(query.plane.pop(f"{query.queue}-out", batch=5)) == [1, 2]
    assert query.pop() == []


def test_a_cycle_without_a_valid_lease_changes_nothing(query: Query) -> None:
    messages = query.pop()
    partition = messages[0]["partitionId"]
    for told, word in (
        ({"leaseId": str(uuid.uuid4())}, "Invalid or expired lease"),
        ({"leaseId": None}, "Invalid or expired lease"),
        ({"transactionId": "never"}, "unresolv"),
        ({"status": "sung"}, "cannot be said"),
    ):
        done = query.cycle(
            partition,
            messages[0],
            said=told,
            state_ops=[upsert("a", 1)],
            push_items=[{"queue": f"{query.queue}-out", "payload": 1}],
        )
        assert done["success"] is False
        assert word in done["error"], done
    done = query.cycle(partition, messages[0], state_ops=[upsert("a", "\x00")])
    assert (done["success"], "cannot be stored" in done["error"]) == (False, True)
    assert query.state(partition) == {}
    assert query.plane.pop(f"{query.queue}-out") == []
    assert query.cycle(partition, messages[2], state_ops=[upsert("a", 1)])["success"] is True
    repeated = query.cycle(partition, messages[2], state_ops=[upsert("a", 2)])
    assert (repeated["success"], query.state(partition)) == (False, {"a": 1})


def test_what_a_gate_denies_stays_leased_or_comes_back_at_once(query: Query) -> None:
    messages = query.pop()
    kept = query.cycle(messages[0]["partitionId"], messages[0], release_lease=False)
    assert kept["ack_result"]["lease_released"] is False
    assert query.pop() == []
    assert query.cycle(messages[0]["partitionId"], messages[1])["ack_result"]["lease_released"] is True
    assert data(query.pop()) == [2]


def test_a_cycle_that_failed_buries_its_message(query: Query) -> None:
    messages = query.pop()
    done = query.cycle(messages[0]["partitionId"], messages[0], said={"status": "failed", "error": "no"})
    assert done["ack_result"] == {"success": True, "count": 1, "lease_released": True, "dlq": True}
    assert data(query.pop()) == [1, 2]
    assert query.plane.get("/api/v1/dlq", queue=query.queue)["messages"][0]["errorMessage"] == "no"


def test_idle_windows_are_closed_once_and_only_while_nothing_comes(query: Query) -> None:
    messages = query.pop()
    partition = messages[0]["partitionId"]
    old, new = f"tumb:60{SEP}w1{SEP}k", f"tumb:60{SEP}w2{SEP}k"
    ops = [upsert(old, window(60_000, 5)), upsert(new, window(120_000, 6)), upsert("__wm__", {"eventTimeMs": 1})]
    query.cycle(partition, messages[1], state_ops=ops, release_lease=False)
    ripe = {"key_prefix": f"tumb:60{SEP}", "ripe_at_or_before": 60_000}
    close = {"type": "delete", "key": old}
    # A worker has the partition: what it is about to write may be for this window.
    assert query.state(partition, **ripe) == {}
    assert "not idle" in query.cycle(partition, state_ops=[close])["error"]
    query.cycle(partition, messages[1], said={"transactionId": messages[2]["transactionId"]}, release_lease=True)
    assert query.state(partition, **ripe) == {old: window(60_000, 5)}
    while True:
        done = query.cycle(partition, state_ops=[close], push_items=[{"queue": f"{query.queue}-out", "payload": 5}])
        if done["success"]:
            break
        # The row was written a moment ago: its reader may not know.
        assert "just changed" in done["error"]
    again = query.cycle(partition, state_ops=[close], push_items=[{"queue": f"{query.queue}-out", "payload": 5}])
    assert "closed one of these windows" in again["error"]
    assert data(query.plane.pop(f"{query.queue}-out", batch=5)) == [5]
    query.plane.push(query.queue, ["more"], "p", ids=["more"])
    assert query.state(partition, key_prefix="tumb", ripe_at_or_before=1e12) == {}
    assert "not idle" in query.cycle(partition, state_ops=[{"type": "delete", "key": new}])["error"]


def test_state_lies_where_all_state_lies(query: Query, plane_url: str) -> None:
    messages = query.pop()
    partition = messages[0]["partitionId"]
    ops = [
        upsert(f"tumb:60{SEP}w1{SEP}alice", window(120_000, 7)),
        upsert(f"sess:30{SEP}open{SEP}bob", {"acc": 1, "windowStart": 1000, "windowEnd": 2000}),
        upsert(partition, {"tokens": 3}),
        upsert("__wm__", {"eventTimeMs": 5}),
        upsert("odd", 9),
    ]
    assert query.cycle(partition, messages[2], state_ops=ops)["success"] is True
    with psycopg.connect(plane_url) as connection:
        rows = connection.execute(
            "SELECT key, extract(epoch FROM window_start)::int, extract(epoch FROM window_end)::int, value "
            "FROM penstock.state WHERE query = %s ORDER BY key",
            [f"{query.queue}-query"],
        ).fetchall()
    assert rows == [("alice", 60, 120, 7), ("bob", 1, 2, 1), ("odd", None, None, 9), ("p", None, None, {"tokens": 3})]
    query.plane.http.delete(f"/api/v1/resources/queues/{query.queue}")
    with psycopg.connect(plane_url) as connection:
        assert not connection.execute(
            "SELECT FROM penstock.state WHERE query = %s", [f"{query.queue}-query"]
        ).fetchall()


def test_a_name_belongs_to_one_of_the_two_worlds(plane: Plane, queue: str, plane_url: str) -> None:
    with psycopg.connect(plane_url) as connection:
        connection.execute(
            "INSERT INTO penstock.queries (name, description, fingerprint, history_seconds) VALUES (%s, '{}', '', 1)",
            [f"{queue}-spark"],
        )
    body = {"name": f"{queue}-spark", "source_queue": queue, "config_hash": "h"}
    assert "runs on Spark" in plane.post("/streams/v1/queries", body, 409)["error"]


def test_what_is_asked_of_no_query_or_partition_is_refused(query: Query) -> None:
    plane, (message, *_) = query.plane, query.pop()
    for path in ("/streams/v1/state/get", "/streams/v1/cycle"):
        body = {"query_id": query.id, "partition_id": message["partitionId"]}
        assert "query_id is required" in plane.post(path, {"partition_id": "x"}, 400)["error"]
        assert "query_id" in plane.post(path, {**body, "query_id": str(uuid.uuid4())}, 400)["error"]
        assert "partition_id" in plane.post(path, {**body, "partition_id": "none"}, 400)["error"]
    sung = {"query_id": query.id, "partition_id": message["partitionId"], "state_ops": [{"type": "sing", "key": "k"}]}
    assert "sing" in plane.post("/streams/v1/cycle", sung, 400)["error"]


async def test_a_query_on_spark_cannot_have_the_name_of_a_shared_one(plane: Plane, queue: str, plane_url: str) -> None:
    Query(plane, queue)
    async with opened(plane_url) as log:
        with pytest.raises(Conflict, match="compute for themselves"):
            await Registry(log).register(f"{queue}-query", [], "fingerprint", sink=None, history_seconds=1)


def test_nothing_of_spark_is_loaded_for_the_plane() -> None:
    check = "import sys, penstock.server.queen.routes; sys.exit('pyspark' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", check], check=False).returncode == 0


def test_a_query_of_clients_is_listed_with_those_on_spark_and_can_be_forgotten(
    plane: Plane, query: Query, plane_url: str
) -> None:
    name = f"{query.queue}-query"

    def listed() -> dict[str, Any]:
        (found,) = [each for each in plane.get("/v1/queries")["queries"] if each["name"] == name]
        return dict(found)

    said = listed()
    assert (said["computed_by"], said["state"], said["lag"], said["committed_at"]) == ("clients", "stopped", 0, None)
    assert (said["queues"], said["sink"]) == ([query.queue], f"{query.queue}-out")
    (message,) = query.pop(batch=1)
    query.cycle(message["partitionId"], message, state_ops=[upsert("k", 1), upsert("__wm__", 1)])
    said = plane.get(f"/v1/queries/{name}")
    assert (said["state"], said["lag"], said["open_windows"], said["lately"]) == ("running", 2, 1, None)
    assert said["committed_at"] is not None
    assert [group["group"] for group in said["groups"]] == [query.group]
    assert "GET /v1/queries" in plane.get(f"/v1/queries/{name}/cycles", 404)["detail"]
    for what in ("pause", "resume", "stop"):
        refused = plane.post(f"/v1/queries/{name}/{what}", None, 409)
        assert refused["detail"].endswith("stop them where they run")
    assert plane.http.delete(f"/v1/queries/{name}").json()["type"].endswith("/group-busy")
    with psycopg.connect(plane_url, autocommit=True) as conn:
        conn.execute(
            "UPDATE penstock.groups SET seen_at = clock_timestamp() - interval '1 hour' WHERE name = %s", [query.group]
        )
    assert listed()["state"] == "stopped"
    assert plane.http.delete(f"/v1/queries/{name}").status_code == 204
    assert plane.http.get(f"/v1/queries/{name}").status_code == 404
    assert plane.http.delete(f"/v1/queries/{name}").status_code == 404
    assert query.group not in [each["name"] for each in plane.get("/api/v1/consumer-groups")]
    assert Query(plane, query.queue).state(message["partitionId"]) == {}


def test_a_query_that_is_registered_with_another_source_is_shown_with_that(plane: Plane, query: Query) -> None:
    body = {"name": f"{query.queue}-query", "source_queue": f"{query.queue}-out", "config_hash": "h1"}
    assert plane.post("/streams/v1/queries", body)["query_id"] == query.id
    said = plane.get(f"/v1/queries/{body['name']}")
    assert (said["queues"], said["sink"]) == ([f"{query.queue}-out"], None)
