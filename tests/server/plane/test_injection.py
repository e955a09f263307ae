"""Whatever clients of the message plane call things, the names are data and nothing else."""

from __future__ import annotations

from urllib.parse import quote

import pytest

from tests.corpus.hostile import NAMES
from tests.server.plane.speaking import Plane, data

#: Two dots are a way up, which clients take before anything is sent.
NAMED = [name for name in NAMES if name.isprintable() and name != ".."]


@pytest.mark.parametrize("name", NAMED, ids=lambda name: name[:20])
def test_any_name_is_a_name_wherever_it_stands(name: str, plane: Plane) -> None:
    plane.push(name, [{"n": 1}], partition=name, ids=[name])
    spelt = quote(name, safe="")
    (message,) = plane.pop(spelt, spelt, consumerGroup=name, leaseSeconds=60)
    assert (message["partition"], message["transactionId"], message["consumerGroup"]) == (name, name, name)
    body = {"partitionId": message["partitionId"], "transactionId": name, "consumerGroup": name, "data": {"text": name}}
    plane.post("/api/v1/traces", {**body, "traceNames": [name], "eventType": "info"}, 201)
    (trace,) = plane.get(f"/api/v1/traces/by-name/{spelt}")["traces"]
    assert (trace["queue_name"], trace["data"]) == (name, {"text": name})
    assert plane.ack(message, "dlq", error=name)["success"] is True
    listed = plane.get("/api/v1/messages", queue=name, partition=name)["messages"]
    assert [(each["transactionId"], each["status"]) for each in listed] == [(name, "dead_letter")]
    query = plane.post("/streams/v1/queries", {"name": name, "source_queue": name, "config_hash": name})["query_id"]
    group = f"streams.{name}"[:200]
    (held,) = plane.pop(spelt, batch=1, consumerGroup=group, leaseSeconds=60)
    told = {"transactionId": name, "leaseId": held["leaseId"], "status": "completed", "count": 1}
    cycle = {"query_id": query, "partition_id": held["partitionId"], "consumer_group": group, "ack": told}
    plane.post("/streams/v1/cycle", {**cycle, "state_ops": [{"type": "upsert", "key": name, "value": name}]})
    asked = {"query_id": query, "partition_id": held["partitionId"], "keys": [name]}
    assert [(row["key"], row["value"]) for row in plane.post("/streams/v1/state/get", asked)["rows"]] == [(name, name)]


def test_nothing_is_gone_after_all_of_them(plane: Plane, queue: str) -> None:
    plane.push(queue, [1])
    assert data(plane.pop(queue)) == [1]
