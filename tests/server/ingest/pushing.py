"""Pushing to one queue over HTTP, and looking at what is in it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import httpx

from penstock import Event, SyncPenstock


@dataclass
class Door:
    """The way into one queue."""

    http: httpx.Client
    store: SyncPenstock
    queue: str

    @property
    def path(self) -> str:
        return f"/v1/queues/{self.queue}/events"

    def push(
        self,
        body: Any,
        kind: str | None = "application/json",
        headers: dict[str, str] | None = None,
        **query: object,
    ) -> httpx.Response:
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        said = {"Content-Type": kind} if kind is not None else {}
        asked = {name: str(value).lower() if value is True else value for name, value in query.items()}
        return self.http.post(self.path, content=content, headers={**said, **(headers or {})}, params=asked)  # type: ignore[arg-type]  # plain values

    def lines(self, values: Sequence[Any], headers: dict[str, str] | None = None, **query: object) -> httpx.Response:
        body = b"\n".join(json.dumps(value).encode() for value in values)
        return self.push(body, "application/x-ndjson", headers, **query)

    def accepted(self, *args: Any, **kwargs: Any) -> dict[str, Any]:
        answer = self.push(*args, **kwargs)
        assert answer.status_code == 200, answer.text
        return dict(answer.json())

    def refused(self, *args: Any, **kwargs: Any) -> tuple[int, str, dict[str, Any]]:
        """Status, kind and the whole problem of a push that must not go through."""
        return problem(self.push(*args, **kwargs))

    def events(self) -> list[Event]:
        """What is in the queue, in the order of partitions and offsets."""
        found = self.store.queue(self.queue).browse(limit=100_000)
        return sorted(found, key=lambda event: (event.partition, event.offset))

    def data(self) -> list[Any]:
        return [event.data for event in self.events()]

    def dead_letters(self) -> list[Any]:
        return list(self.store.queue(self.queue).dlq().list())


def problem(answer: httpx.Response) -> tuple[int, str, dict[str, Any]]:
    assert answer.headers["content-type"] == "application/problem+json", answer.text
    said = answer.json()
    assert said["status"] == answer.status_code
    return answer.status_code, said["type"].rpartition("/")[2], said
