"""A small client of the protocol of Queen's clients."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import httpx

#: The options that the Python and JavaScript clients send with every create().
CLIENT_DEFAULTS: dict[str, Any] = {
    "leaseTime": 300,
    "retryLimit": 3,
    "priority": 0,
    "delayedProcessing": 0,
    "windowBuffer": 0,
    "maxSize": 0,
    "retentionSeconds": 0,
    "completedRetentionSeconds": 0,
    "encryptionEnabled": False,
}


@dataclass
class QueenClient:
    """Sends requests to one server and checks the status of each response."""

    http: httpx.Client

    def post(self, path: str, body: Any, status: int = 200) -> Any:
        response = self.http.post(path, json=body)
        assert response.status_code == status, response.text
        return response.json()

    def get(self, path: str, status: int = 200, **params: Any) -> Any:
        response = self.http.get(path, params=params)
        assert response.status_code == status, response.text
        return response.json() if response.content else None

    def configure(self, queue: str, **options: Any) -> Any:
        return self.post("/api/v1/configure", {"queue": queue, "options": options})

    def push(self, queue: str, payloads: Iterable[Any], partition: str | None = None, ids: Sequence[str] = ()) -> Any:
        items = [{"queue": queue, "payload": payload} for payload in payloads]
        for index, item in enumerate(items):
            item["transactionId"] = ids[index] if ids else f"t{index}"
            if partition is not None:
                item["partition"] = partition
        return self.post("/api/v1/push", {"items": items}, 201)

    def pop(self, queue: str, partition: str | None = None, **params: Any) -> list[dict[str, Any]]:
        path = f"/api/v1/pop/queue/{queue}" + ("" if partition is None else f"/partition/{partition}")
        response = self.http.get(path, params=params)
        assert response.status_code in (200, 204), response.text
        messages: list[dict[str, Any]] = response.json()["messages"] if response.content else []
        return messages

    def ack(self, message: dict[str, Any], status: str = "completed", **more: Any) -> dict[str, Any]:
        body = {
            "transactionId": message["transactionId"],
            "partitionId": message["partitionId"],
            "leaseId": message["leaseId"],
            "consumerGroup": message["consumerGroup"],
            "status": status,
            **more,
        }
        results: list[dict[str, Any]] = self.post("/api/v1/ack", body)
        (result,) = results
        return result

    def ack_all(self, statuses: Iterable[tuple[dict[str, Any], str]]) -> list[dict[str, Any]]:
        items = list(statuses)
        body = {
            "consumerGroup": items[0][0]["consumerGroup"],
            "acknowledgments": [
                {
                    "transactionId": message["transactionId"],
                    "partitionId": message["partitionId"],
                    "leaseId": message["leaseId"],
                    "status": status,
                    "error": None,
                }
                for message, status in items
            ],
        }
        results: list[dict[str, Any]] = self.post("/api/v1/ack/batch", body)
        return results


def data(messages: Iterable[dict[str, Any]]) -> list[Any]:
    return [message["data"] for message in messages]
