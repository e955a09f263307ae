from __future__ import annotations

import psycopg
import pytest

from tests.server.queen.streams.stream_query import SEPARATOR, StreamQuery, upsert, window


@pytest.mark.slow
def test_state_is_in_the_view_of_all_open_state(query: StreamQuery, queen_url: str) -> None:
    messages = query.pop()
    partition = messages[0]["partitionId"]
    ops = [
        upsert(f"tumb:60{SEPARATOR}w1{SEPARATOR}alice", window(120_000, 7)),
        upsert(f"sess:30{SEPARATOR}open{SEPARATOR}bob", {"acc": 1, "windowStart": 1000, "windowEnd": 2000}),
        upsert(partition, {"tokens": 3}),
        upsert("__wm__", {"eventTimeMs": 5}),
        upsert("odd", 9),
    ]
    assert query.cycle(partition, messages[2], state_ops=ops)["success"] is True
    with psycopg.connect(queen_url) as connection:
        rows = connection.execute(
            "SELECT key, extract(epoch FROM window_start)::int, extract(epoch FROM window_end)::int, value "
            "FROM penstock.state WHERE query = %s ORDER BY key",
            [f"{query.queue}-query"],
        ).fetchall()
    assert rows == [("alice", 60, 120, 7), ("bob", 1, 2, 1), ("odd", None, None, 9), ("p", None, None, {"tokens": 3})]
    query.queen.http.delete(f"/api/v1/resources/queues/{query.queue}")
    with psycopg.connect(queen_url) as connection:
        assert not connection.execute(
            "SELECT FROM penstock.state WHERE query = %s", [f"{query.queue}-query"]
        ).fetchall()
