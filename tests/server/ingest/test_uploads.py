"""NDJSON bodies that are staged as they arrive."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator

import psutil
import pytest

from tests.conditions import eventually
from tests.server.ingest.push_client import CreateQueue, QueueClient, read_problem
from tests.server.server_process import RunningServer

NDJSON = {"Content-Type": "application/x-ndjson"}


def lines(count: int, first: int = 0) -> Iterator[bytes]:
    """Yield lines of about a hundred bytes, a thousand at a time."""
    for start in range(first, first + count, 1000):
        numbers = range(start, min(start + 1000, first + count))
        yield b"".join(b'{"n":%d,"k":"key-%d","text":"%s"}\n' % (n, n % 50, b"abcdefgh" * 8) for n in numbers)


def counted(queue: QueueClient) -> int:
    return queue.store.queue(queue.queue).describe().size.appended


def test_upload_is_stored(create_queue: CreateQueue) -> None:
    queue = create_queue(partitions=4, key_field="k")
    response = queue.http.post(queue.path, content=lines(50_000), headers=NDJSON)
    assert response.status_code == 200, response.text
    assert response.json()["accepted"] == 50_000
    events = queue.events()
    assert sorted(event.data["n"] for event in events) == list(range(50_000))
    by_key: dict[str | None, list[int]] = {}
    for event in events:
        by_key.setdefault(event.key, []).append(event.data["n"])
    assert len(by_key) == 50
    assert all(numbers == sorted(numbers) for numbers in by_key.values())


def test_upload_with_an_invalid_line_stores_nothing(create_queue: CreateQueue) -> None:
    queue = create_queue(partitions=4)
    content = b"".join(lines(30_000)) + b"{\n" + b"".join(lines(1000))
    status, name, problem = queue.refused(content, "application/x-ndjson", partial="false")
    assert (status, name, problem["index"]) == (422, "invalid-event", 30_000)
    assert counted(queue) == 0
    response = queue.accepted(b"\n" + content, "application/x-ndjson")
    assert response["accepted"] == 31_000
    assert [(each["index"], each["line"]) for each in response["rejected"]] == [(30_000, 30_002)]
    assert counted(queue) == 31_000
    assert len(queue.dead_letters()) == 1


def test_number_of_dead_letters_of_an_upload_is_limited(create_queue: CreateQueue) -> None:
    queue = create_queue(partitions=4)
    status, name, problem = queue.refused(b"no json\n" * 400_000, "application/x-ndjson", partial=True)
    assert (status, name) == (422, "invalid-event")
    assert "nothing was stored" in problem["reason"]
    assert queue.dead_letters() == []


def test_repeated_upload_stores_nothing(create_queue: CreateQueue) -> None:
    queue = create_queue(partitions=4)
    problem = {**NDJSON, "Idempotency-Key": "nightly", "Content-Encoding": "gzip"}
    body = gzip.compress(b"".join(lines(30_000)), 1)
    for replayed in (False, True):
        response = queue.http.post(queue.path, content=body, headers=problem).json()
        assert (response["accepted"], response["replayed"]) == (30_000, replayed)
    other = gzip.compress(b"".join(lines(30_000, 1)), 1)
    assert read_problem(queue.http.post(queue.path, content=other, headers=problem))[1] == "idempotency-conflict"
    assert counted(queue) == 30_000


def test_aborted_upload_stores_nothing(create_queue: CreateQueue, shared_server: RunningServer) -> None:
    queue = create_queue(partitions=4)

    def breaks_off() -> Iterator[bytes]:
        yield from lines(60_000)
        raise ConnectionError("gone")

    with pytest.raises(ConnectionError):
        queue.http.post(queue.path, content=breaks_off(), headers=NDJSON)
    eventually(lambda: queue.store.queue(queue.queue).describe().size.bytes < 1_000_000 and counted(queue) == 0)


def test_ids_of_an_upload_are_deduplicated(create_queue: CreateQueue) -> None:
    queue = create_queue(id_field="n", dedup_window_seconds=60)
    body = b"".join(b'{"n":"%d","text":"%s"}\n' % (n, b"x" * 500) for n in range(5000))
    assert queue.accepted(body, "application/x-ndjson")["accepted"] == 5000
    again = queue.accepted(body, "application/x-ndjson")
    assert (again["accepted"], again["duplicates"]) == (0, 5000)


@pytest.mark.slow
def test_large_upload_needs_little_memory(create_queue: CreateQueue, shared_server: RunningServer) -> None:
    queue = create_queue(partitions=4)
    server = psutil.Process(shared_server.process.pid)
    queue.http.post(queue.path, content=lines(30_000), headers=NDJSON)
    before, most = server.memory_info().rss, 0

    def watched() -> Iterator[bytes]:
        nonlocal most
        for chunk in lines(1_500_000):
            most = max(most, server.memory_info().rss)
            yield chunk

    response = queue.http.post(queue.path, content=watched(), headers=NDJSON)
    assert response.json()["accepted"] == 1_500_000
    assert counted(queue) == 1_530_000
    # The upload has 150 MB.
    assert most - before < 40 << 20, json.dumps({"before": before, "most": most})
