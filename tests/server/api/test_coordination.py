"""``/v1/timers``."""

from __future__ import annotations

import uuid
from urllib.parse import unquote

import httpx

from tests.server.problems import problem_kind


def test_timers_with_idempotency_key_are_scheduled_once(v1: httpx.Client, queue: str) -> None:
    operation = {"op": "schedule", "queue": unquote(queue), "key": "remind", "data": 1, "seconds": 3600}
    headers = {"Idempotency-Key": str(uuid.uuid4())}

    first, second = (v1.post("timers", json={"operations": [operation]}, headers=headers).json() for _ in range(2))

    assert first == second
    assert [result["status"] for result in first["results"]] == ["scheduled"]
    changed = {"operations": [{**operation, "data": 2}]}
    assert problem_kind(v1.post("timers", json=changed, headers=headers)) == (409, "idempotency-conflict")
