"""Cycles commit state changes, pushes and an ack together, under the lease of a partition."""

from __future__ import annotations

import uuid
from typing import Any

import pytest

from tests.conditions import eventually
from tests.server.queen.client import QueenClient, data
from tests.server.queen.streams.stream_query import SEPARATOR, StreamQuery, upsert, window


def test_cycle_commits_state_pushes_and_ack_together(query: StreamQuery, other_queen: QueenClient) -> None:
    messages = query.pop()
    partition = messages[0]["partitionId"]
    done = query.cycle(
        partition,
        messages[2],
        queen=other_queen,
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
    assert data(query.queen.pop(f"{query.queue}-out", batch=5)) == [1, 2]
    assert query.pop() == []


def test_cycle_without_a_valid_lease_changes_nothing(query: StreamQuery) -> None:
    messages = query.pop()
    partition = messages[0]["partitionId"]
    for ack_fields, message in (
        ({"leaseId": str(uuid.uuid4())}, "Invalid or expired lease"),
        ({"leaseId": None}, "Invalid or expired lease"),
        ({"transactionId": "never"}, "unresolv"),
        ({"status": "sung"}, "is not a status"),
    ):
        done = query.cycle(
            partition,
            messages[0],
            ack_fields=ack_fields,
            state_ops=[upsert("a", 1)],
            push_items=[{"queue": f"{query.queue}-out", "payload": 1}],
        )
        assert done["success"] is False
        assert message in done["error"], done
    done = query.cycle(partition, messages[0], state_ops=[upsert("a", "\x00")])
    assert (done["success"], "cannot be stored" in done["error"]) == (False, True)
    assert query.state(partition) == {}
    assert query.queen.pop(f"{query.queue}-out") == []
    assert query.cycle(partition, messages[2], state_ops=[upsert("a", 1)])["success"] is True
    repeated = query.cycle(partition, messages[2], state_ops=[upsert("a", 2)])
    assert (repeated["success"], query.state(partition)) == (False, {"a": 1})


def test_rest_of_a_batch_stays_leased_or_is_released(query: StreamQuery) -> None:
    messages = query.pop()
    kept = query.cycle(messages[0]["partitionId"], messages[0], release_lease=False)
    assert kept["ack_result"]["lease_released"] is False
    assert query.pop() == []
    assert query.cycle(messages[0]["partitionId"], messages[1])["ack_result"]["lease_released"] is True
    assert data(query.pop()) == [2]


def test_failed_cycle_dead_letters_its_message(query: StreamQuery) -> None:
    messages = query.pop()
    done = query.cycle(messages[0]["partitionId"], messages[0], ack_fields={"status": "failed", "error": "no"})
    assert done["ack_result"] == {"success": True, "count": 1, "lease_released": True, "dlq": True}
    assert data(query.pop()) == [1, 2]
    assert query.queen.get("/api/v1/dlq", queue=query.queue)["messages"][0]["errorMessage"] == "no"


def test_idle_windows_are_closed_once_and_only_while_the_partition_is_idle(query: StreamQuery) -> None:
    messages = query.pop()
    partition = messages[0]["partitionId"]
    old, new = f"tumb:60{SEPARATOR}w1{SEPARATOR}k", f"tumb:60{SEPARATOR}w2{SEPARATOR}k"
    ops = [upsert(old, window(60_000, 5)), upsert(new, window(120_000, 6)), upsert("__wm__", {"eventTimeMs": 1})]
    query.cycle(partition, messages[1], state_ops=ops, release_lease=False)
    ripe = {"key_prefix": f"tumb:60{SEPARATOR}", "ripe_at_or_before": 60_000}
    close = {"type": "delete", "key": old}
    # A worker holds the partition: its messages may belong to this window.
    assert query.state(partition, **ripe) == {}
    assert "not idle" in query.cycle(partition, state_ops=[close])["error"]
    query.cycle(partition, messages[1], ack_fields={"transactionId": messages[2]["transactionId"]}, release_lease=True)
    # A row is listed as soon as a cycle may delete it, and not before.
    eventually(lambda: query.state(partition, **ripe) == {old: window(60_000, 5)})
    done = query.cycle(partition, state_ops=[close], push_items=[{"queue": f"{query.queue}-out", "payload": 5}])
    assert done["success"] is True
    again = query.cycle(partition, state_ops=[close], push_items=[{"queue": f"{query.queue}-out", "payload": 5}])
    assert "closed one of these windows" in again["error"]
    assert data(query.queen.pop(f"{query.queue}-out", batch=5)) == [5]
    query.queen.push(query.queue, ["more"], "p", ids=["more"])
    assert query.state(partition, key_prefix="tumb", ripe_at_or_before=1e12) == {}
    assert "not idle" in query.cycle(partition, state_ops=[{"type": "delete", "key": new}])["error"]


def test_unknown_queries_and_partitions_are_refused(query: StreamQuery) -> None:
    queen, (message, *_) = query.queen, query.pop()
    for path in ("/streams/v1/state/get", "/streams/v1/cycle"):
        body = {"query_id": query.id, "partition_id": message["partitionId"]}
        assert "query_id is required" in queen.post(path, {"partition_id": "x"}, 400)["error"]
        assert "query_id" in queen.post(path, {**body, "query_id": str(uuid.uuid4())}, 400)["error"]
        assert "partition_id" in queen.post(path, {**body, "partition_id": "none"}, 400)["error"]
    sung = {"query_id": query.id, "partition_id": message["partitionId"], "state_ops": [{"type": "sing", "key": "k"}]}
    assert "sing" in queen.post("/streams/v1/cycle", sung, 400)["error"]


def metrics_of(query: StreamQuery) -> dict[str, Any]:
    queries = {each["name"]: each for each in query.queen.get("/v1/metrics")["queries"]}
    return dict(queries.get(f"{query.queue}-query", {}))


def test_cycles_are_counted_in_the_metrics_of_the_query(query: StreamQuery) -> None:
    messages = query.pop()
    partition = messages[0]["partitionId"]
    closed, opened = (f"tumb:60{SEPARATOR}{name}{SEPARATOR}a" for name in ("w1", "w2"))
    out = {"queue": f"{query.queue}-out", "partition": "p"}
    first = query.cycle(
        partition, messages[1], ack_fields={"count": 2}, release_lease=False, state_ops=[upsert(closed, window(1, 1))]
    )
    last = query.cycle(
        partition,
        messages[2],
        state_ops=[{"type": "delete", "key": closed}, upsert(opened, window(2, 1))],
        push_items=[{**out, "payload": n} for n in range(2)],
    )
    assert (first["success"], last["success"]) == (True, True)

    eventually(lambda: metrics_of(query).get("cycles") == 2)  # the server caches them for a second
    names = ("running", "events", "outputs", "windows", "openWindows", "deadLetters")
    assert [metrics_of(query)[name] for name in names] == [True, 3, 2, 2, 1, 0]
    totals = query.queen.get("/v1/metrics")
    assert (totals["eventsProcessed"] >= 3, totals["windowsEmitted"] >= 2) == (True, True)


@pytest.mark.slow
def test_rate_of_a_query_is_that_of_the_last_whole_ten_seconds(query: StreamQuery) -> None:
    messages = query.pop()
    assert query.cycle(messages[0]["partitionId"], messages[2], ack_fields={"count": 3})["success"]
    eventually(lambda: metrics_of(query).get("eventsPerSecond") == 0.3)
    eventually(lambda: metrics_of(query).get("eventsPerSecond") == 0)
