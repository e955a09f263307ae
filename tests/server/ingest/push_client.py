"""Pushes to one queue over HTTP, and reads its contents from the database."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import httpx

from penstock import Event, SyncPenstock


@dataclass
class QueueClient:
    """One queue, by its push endpoint and in the database."""

    http: httpx.Client
    store: SyncPenstock
    queue: str

    @property
    def path(self) -> str:
        return f"/v1/queues/{self.queue}/events"

    def push(
        self,
        body: Any,
        media_type: str | None = "application/json",
        headers: dict[str, str] | None = None,
        **query: object,
    ) -> httpx.Response:
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        content_type = {"Content-Type": media_type} if media_type is not None else {}
        params = {name: str(value).lower() if value is True else value for name, value in query.items()}
        return self.http.post(self.path, content=content, headers={**content_type, **(headers or {})}, params=params)  # type: ignore[arg-type]  # plain values

    def push_lines(
        self, values: Sequence[Any], headers: dict[str, str] | None = None, **query: object
    ) -> httpx.Response:
        body = b"\n".join(json.dumps(value).encode() for value in values)
        return self.push(body, "application/x-ndjson", headers, **query)

    def accepted(self, *args: Any, **kwargs: Any) -> dict[str, Any]:
        """Return the response of a push that must succeed."""
        response = self.push(*args, **kwargs)
        assert response.status_code == 200, response.text
        return dict(response.json())

    def refused(self, *args: Any, **kwargs: Any) -> tuple[int, str, dict[str, Any]]:
        """Return status, kind and body of the problem of a push that must fail."""
        return read_problem(self.push(*args, **kwargs))

    def events(self) -> list[Event]:
        """Return the events of the queue, ordered by partition and offset."""
        events = self.store.queue(self.queue).browse(limit=100_000)
        return sorted(events, key=lambda event: (event.partition, event.offset))

    def data(self) -> list[Any]:
        return [event.data for event in self.events()]

    def dead_letters(self) -> list[Any]:
        return list(self.store.queue(self.queue).dlq().list())


#: Creates a queue with these options.
CreateQueue: TypeAlias = Callable[..., QueueClient]


def read_problem(response: httpx.Response) -> tuple[int, str, dict[str, Any]]:
    assert response.headers["content-type"] == "application/problem+json", response.text
    problem = response.json()
    assert problem["status"] == response.status_code
    return response.status_code, problem["type"].rpartition("/")[2], problem
