"""A consumer group over HTTP, without the client library."""

from __future__ import annotations

from typing import Any
from urllib.parse import unquote

import httpx


class GroupClient:
    """Pushes to a queue, and pops and acknowledges as one of its groups."""

    def __init__(self, v1: httpx.Client, queue: str, name: str = "g") -> None:
        self._v1 = v1
        self.queue = queue
        self.path = f"queues/{queue}/groups/{name}"

    def push(self, *events: Any) -> None:
        batch = {"queue": unquote(self.queue), "events": [{"data": event} for event in events]}
        assert self._v1.post("push", json={"batches": [batch]}).status_code == 200

    def pop(self, **options: Any) -> list[dict[str, Any]]:
        response = self._v1.post(f"{self.path}/pop", json=options)
        assert response.status_code == 200, response.text
        events: list[dict[str, Any]] = response.json()["events"]
        return events

    def ack(self, events: list[dict[str, Any]], **status: Any) -> list[dict[str, Any]]:
        acks = [{**lease_of(event), **status} for event in events]
        response = self._v1.post(f"{self.path}/ack", json={"acks": acks})
        assert response.status_code == 200, response.text
        results: list[dict[str, Any]] = response.json()["results"]
        return results

    @property
    def leases(self) -> int:
        groups = self._v1.get(f"queues/{self.queue}/groups").json()["groups"]
        return sum(group["leases"] for group in groups)


def lease_of(event: dict[str, Any]) -> dict[str, Any]:
    return {name: event[name] for name in ("partition_id", "offset", "lease_id")}
