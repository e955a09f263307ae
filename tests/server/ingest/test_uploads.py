"""Bodies that are larger than one likes to hold in memory."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Iterator

import psutil
import pytest

from tests.client.conditions import soon
from tests.server.ingest.pushing import Door, problem
from tests.server.serving import Serving

NDJSON = {"Content-Type": "application/x-ndjson"}


def lines(count: int, first: int = 0) -> Iterator[bytes]:
    """Lines of about a hundred bytes, some thousand at a time."""
    for start in range(first, first + count, 1000):
        some = range(start, min(start + 1000, first + count))
        yield b"".join(b'{"n":%d,"k":"key-%d","text":"%s"}\n' % (n, n % 50, b"abcdefgh" * 8) for n in some)


def counted(queue: Door) -> int:
    return queue.store.queue(queue.queue).describe().size.appended


def test_an_upload_is_stored_whole(door: Callable[..., Door]) -> None:
    queue = door(partitions=4, key_field="k")
    answer = queue.http.post(queue.path, content=lines(50_000), headers=NDJSON)
    assert answer.status_code == 200, answer.text
    assert answer.json()["accepted"] == 50_000
    events = queue.events()
    assert sorted(event.data["n"] for event in events) == list(range(50_000))
    by_key: dict[str | None, list[int]] = {}
    for event in events:
        by_key.setdefault(event.key, []).append(event.data["n"])
    assert len(by_key) == 50
    assert all(numbers == sorted(numbers) for numbers in by_key.values())


def test_an_upload_with_a_bad_line_stores_nothing(door: Callable[..., Door]) -> None:
    queue = door(partitions=4)
    content = b"".join(lines(30_000)) + b"{\n" + b"".join(lines(1000))
    status, name, said = queue.refused(content, "application/x-ndjson")
    assert (status, name, said["index"]) == (422, "invalid-event", 30_000)
    assert counted(queue) == 0
    answer = queue.accepted(content, "application/x-ndjson", partial=True)
    assert (answer["accepted"], [each["index"] for each in answer["rejected"]]) == (31_000, [30_000])
    assert counted(queue) == 31_000
    assert len(queue.dead_letters()) == 1


def test_a_file_that_is_none_is_not_a_million_dead_letters(door: Callable[..., Door]) -> None:
    queue = door(partitions=4)
    status, name, said = queue.refused(b"no json\n" * 400_000, "application/x-ndjson", partial=True)
    assert (status, name) == (422, "invalid-event")
    assert "nothing was stored" in said["reason"]
    assert queue.dead_letters() == []


def test_an_upload_that_is_sent_again_stores_nothing(door: Callable[..., Door]) -> None:
    queue = door(partitions=4)
    said = {**NDJSON, "Idempotency-Key": "nightly", "Content-Encoding": "gzip"}
    body = gzip.compress(b"".join(lines(30_000)), 1)
    for replayed in (False, True):
        answer = queue.http.post(queue.path, content=body, headers=said).json()
        assert (answer["accepted"], answer["replayed"]) == (30_000, replayed)
    other = gzip.compress(b"".join(lines(30_000, 1)), 1)
    assert problem(queue.http.post(queue.path, content=other, headers=said))[1] == "idempotency-conflict"
    assert counted(queue) == 30_000


def test_a_sender_who_leaves_in_the_middle_leaves_nothing(door: Callable[..., Door], one_server: Serving) -> None:
    queue = door(partitions=4)

    def breaks_off() -> Iterator[bytes]:
        yield from lines(60_000)
        raise ConnectionError("gone")

    with pytest.raises(ConnectionError):
        queue.http.post(queue.path, content=breaks_off(), headers=NDJSON)
    soon(lambda: queue.store.queue(queue.queue).describe().size.bytes < 1_000_000 and counted(queue) == 0)


def test_ids_of_an_upload_are_recognised(door: Callable[..., Door]) -> None:
    queue = door(id_field="n", dedup_window_seconds=60)
    body = b"".join(b'{"n":"%d","text":"%s"}\n' % (n, b"x" * 500) for n in range(5000))
    assert queue.accepted(body, "application/x-ndjson")["accepted"] == 5000
    again = queue.accepted(body, "application/x-ndjson")
    assert (again["accepted"], again["duplicates"]) == (0, 5000)


@pytest.mark.slow
def test_a_large_upload_needs_little_memory(door: Callable[..., Door], one_server: Serving) -> None:
    queue = door(partitions=4)
    server = psutil.Process(one_server.process.pid)
    queue.http.post(queue.path, content=lines(30_000), headers=NDJSON)
    before, most = server.memory_info().rss, 0

    def watched() -> Iterator[bytes]:
        nonlocal most
        for some in lines(1_500_000):
            most = max(most, server.memory_info().rss)
            yield some

    answer = queue.http.post(queue.path, content=watched(), headers=NDJSON)
    assert answer.json()["accepted"] == 1_500_000
    assert counted(queue) == 1_530_000
    # 150 MB went through it.
    assert most - before < 40 << 20, json.dumps({"before": before, "most": most})
