"""A client's token bucket is checked by the clock of the database, whatever the client's clock says."""

from __future__ import annotations

import time
from datetime import datetime, timedelta
from typing import Any

import psycopg
import pytest

from tests.server.queen.client import QueenClient, data
from tests.server.queen.streams.stream_query import StreamQuery, upsert


class Bucket:
    """A client with a bucket of 10 tokens. Its clock runs as the test says."""

    def __init__(self, query: StreamQuery, rate: float) -> None:
        self._query, self._rate = query, rate
        self._messages = query.pop()
        self.partition: str = self._messages[0]["partitionId"]
        self._state = {"tokens": 10.0, "lastRefillAt": 1000, "allowedTotal": 0, "consumedTotal": 0.0}
        self.stored = dict(self._state)

    def release(self, cost: float, after_ms: int = 0) -> dict[str, Any]:
        """Release one message, this long after the last release by the client's clock."""
        before = self.stored
        tokens = min(10.0, before["tokens"] + after_ms / 1000 * self._rate)
        assert tokens >= cost
        state = {
            "tokens": tokens - cost,
            "lastRefillAt": before["lastRefillAt"] + after_ms,
            "allowedTotal": before["allowedTotal"] + 1,
            "consumedTotal": before["consumedTotal"] + cost,
        }
        done = self._query.cycle(
            self.partition,
            self._messages[0],
            state_ops=[upsert("tenant", state)],
            push_items=[{"queue": f"{self._query.queue}-out", "partition": "p", "payload": cost}],
            release_lease=False,
        )
        if done["success"]:
            self.stored = state
            del self._messages[0]
        return done


def _release_time(url: str) -> datetime:
    """Return the time of the last release, by the clock of the database."""
    with psycopg.connect(url) as connection:
        row = connection.execute("SELECT max(updated_at) FROM penstock.client_query_state").fetchone()
    assert row is not None
    released_at: datetime = row[0]
    return released_at


@pytest.fixture
def gated(queen: QueenClient, queue: str) -> StreamQuery:
    queen.push(queue, range(10), "p")
    return StreamQuery(queen, queue)


def test_release_waits_until_the_bucket_is_full_enough(gated: StreamQuery, queen_url: str) -> None:
    bucket = Bucket(gated, rate=10)
    assert abs(bucket.release(10)["server_time_ms"] / 1000 - time.time()) < 60
    times = [_release_time(queen_url)]
    for _ in range(3):
        # By the client's clock 300 ms have passed each time. By the server's clock none have.
        assert bucket.release(3, after_ms=300)["success"] is True
        times.append(_release_time(queen_url))
    # A release that is late leaves tokens for the next one, so the gaps are compared with their sum.
    waits = [after - times[0] for after in times[1:]]
    assert all(wait >= timedelta(milliseconds=300 * n - 2) for n, wait in enumerate(waits, 1)), waits
    assert gated.state(bucket.partition)["tenant"] == bucket.stored
    assert data(gated.queen.pop(f"{gated.queue}-out", batch=10)) == [10, 3, 3, 3]


def test_unused_tokens_are_released_without_a_wait(gated: StreamQuery, queen_url: str) -> None:
    bucket = Bucket(gated, rate=1)
    assert bucket.release(2)["success"] is True
    assert bucket.release(8, after_ms=1)["success"] is True
    with psycopg.connect(queen_url) as connection:
        row = connection.execute(
            "SELECT bucket_capacity, round(bucket_rate::numeric, 6), bucket_tokens BETWEEN -0.01 AND 1 "
            "FROM penstock.client_query_state WHERE bucket_capacity IS NOT NULL ORDER BY updated_at DESC LIMIT 1"
        ).fetchone()
    assert row == (10, 1, True)


def test_release_by_a_clock_that_is_far_ahead_is_refused(gated: StreamQuery) -> None:
    bucket = Bucket(gated, rate=1)
    assert bucket.release(8)["success"] is True
    assert bucket.release(2, after_ms=100)["success"] is True
    refused = bucket.release(9, after_ms=9000)
    assert (refused["success"], "too early by the clock of the database" in refused["error"]) == (False, True)
    assert gated.state(bucket.partition)["tenant"] == bucket.stored
    assert data(gated.queen.pop(f"{gated.queue}-out", batch=10)) == [8, 2]


def test_other_state_is_not_taken_for_a_bucket(gated: StreamQuery) -> None:
    messages = gated.pop()
    partition = messages[0]["partitionId"]
    for index, value in enumerate(({"tokens": 1}, {"window": 5, "currentCount": 3, "previousCount": 0}, [1], "x")):
        assert gated.cycle(partition, messages[index], state_ops=[upsert("k", value)], release_lease=False)["success"]
