"""Hostile names are stored and returned as data."""

from __future__ import annotations

from urllib.parse import quote

import pytest

from tests.corpus.hostile import NAMES
from tests.server.queen.client import QueenClient, data

#: HTTP clients resolve the path ".." before they send a request.
PATH_NAMES = [name for name in NAMES if name.isprintable() and name != ".."]


@pytest.mark.parametrize("name", PATH_NAMES, ids=lambda name: name[:20])
def test_hostile_name_of_every_object(name: str, queen: QueenClient) -> None:
    queen.push(name, [{"n": 1}], partition=name, ids=[name])
    quoted = quote(name, safe="")
    (message,) = queen.pop(quoted, quoted, consumerGroup=name, leaseSeconds=60)
    assert (message["partition"], message["transactionId"], message["consumerGroup"]) == (name, name, name)
    body = {"partitionId": message["partitionId"], "transactionId": name, "consumerGroup": name, "data": {"text": name}}
    queen.post("/api/v1/traces", {**body, "traceNames": [name], "eventType": "info"}, 201)
    (trace,) = queen.get(f"/api/v1/traces/by-name/{quoted}")["traces"]
    assert (trace["queue_name"], trace["data"]) == (name, {"text": name})
    assert queen.ack(message, "dlq", error=name)["success"] is True
    listed = queen.get("/api/v1/messages", queue=name, partition=name)["messages"]
    assert [(each["transactionId"], each["status"]) for each in listed] == [(name, "dead_letter")]
    query = queen.post("/streams/v1/queries", {"name": name, "source_queue": name, "config_hash": name})["query_id"]
    group = f"streams.{name}"[:200]
    (held,) = queen.pop(quoted, batch=1, consumerGroup=group, leaseSeconds=60)
    ack = {"transactionId": name, "leaseId": held["leaseId"], "status": "completed", "count": 1}
    cycle = {"query_id": query, "partition_id": held["partitionId"], "consumer_group": group, "ack": ack}
    queen.post("/streams/v1/cycle", {**cycle, "state_ops": [{"type": "upsert", "key": name, "value": name}]})
    selection = {"query_id": query, "partition_id": held["partitionId"], "keys": [name]}
    assert [(row["key"], row["value"]) for row in queen.post("/streams/v1/state/get", selection)["rows"]] == [
        (name, name)
    ]


def test_server_works_after_all_hostile_names(queen: QueenClient, queue: str) -> None:
    queen.push(queue, [1])
    assert data(queen.pop(queue)) == [1]
