"""The protocol of the message plane as a test speaks it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import httpx


@dataclass
class Plane:
    """A server, by its message plane."""

    http: httpx.Client

    def post(self, path: str, body: Any, status: int = 200) -> Any:
        answer = self.http.post(path, json=body)
        assert answer.status_code == status, answer.text
        return answer.json()

    def get(self, path: str, status: int = 200, **params: Any) -> Any:
        answer = self.http.get(path, params=params)
        assert answer.status_code == status, answer.text
        return answer.json() if answer.content else None

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
        answer = self.http.get(path, params=params)
        assert answer.status_code in (200, 204), answer.text
        messages: list[dict[str, Any]] = answer.json()["messages"] if answer.content else []
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
        (answer,) = self.post("/api/v1/ack", body)
        found: dict[str, Any] = answer
        return found

    def ack_all(self, said: Iterable[tuple[dict[str, Any], str]]) -> list[dict[str, Any]]:
        items = list(said)
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
        answers: list[dict[str, Any]] = self.post("/api/v1/ack/batch", body)
        return answers


def data(messages: Iterable[dict[str, Any]]) -> list[Any]:
    return [message["data"] for message in messages]
