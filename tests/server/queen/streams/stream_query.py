"""A client-computed query, driven as the SDK of the clients drives it."""

from __future__ import annotations

from typing import Any

from tests.server.queen.client import QueenClient

SEPARATOR = "\x1f"


class StreamQuery:
    """A registered query on the queue ``queue`` with the sink ``<queue>-out``."""

    def __init__(self, queen: QueenClient, queue: str) -> None:
        self.queen, self.queue = queen, queue
        self.group = f"streams.{queue}-query"
        body = {"name": f"{queue}-query", "source_queue": queue, "sink_queue": f"{queue}-out", "config_hash": "h1"}
        self.id: str = queen.post("/streams/v1/queries", body)["query_id"]

    def pop(self, queen: QueenClient | None = None, **params: Any) -> list[dict[str, Any]]:
        params = {"batch": 100, "consumerGroup": self.group, "leaseSeconds": 60, **params}
        return (queen or self.queen).pop(self.queue, **params)

    def cycle(self, partition: str, ack: dict[str, Any] | None = None, **more: Any) -> dict[str, Any]:
        queen = more.pop("queen", self.queen)
        body = {"query_id": self.id, "partition_id": partition, "consumer_group": self.group, "ack": None, **more}
        if ack is not None:
            defaults = {
                "transactionId": ack["transactionId"],
                "leaseId": ack["leaseId"],
                "status": "completed",
                "count": 1,
            }
            body["ack"] = {**defaults, **body.pop("ack_fields", {})}
        answer: dict[str, Any] = queen.post("/streams/v1/cycle", body)
        return answer

    def state(self, partition: str, **more: Any) -> dict[str, Any]:
        body = {"query_id": self.id, "partition_id": partition, "keys": [], **more}
        return {row["key"]: row["value"] for row in self.queen.post("/streams/v1/state/get", body)["rows"]}


def upsert(key: str, value: object) -> dict[str, Any]:
    return {"type": "upsert", "key": key, "value": value}


def window(end: int, total: int) -> dict[str, Any]:
    return {"acc": total, "windowStart": end - 60_000, "windowEnd": end}
