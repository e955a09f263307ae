from __future__ import annotations

import threading
from typing import Any

import psycopg

from tests.server.queen.client import QueenClient


def fetch(queen: QueenClient, *entries: dict[str, Any], **more: Any) -> list[dict[str, Any]]:
    results: list[dict[str, Any]] = queen.post("/api/v1/fetch", {"entries": entries, **more})["entries"]
    return results


def changed(queen: QueenClient, queue: str, **more: Any) -> Any:
    response = queen.post("/api/v1/partitions/changed", {"entries": [{"queue": queue, **more}]})
    return response["safeTime"], response["entries"][0]


def test_each_entry_is_read_from_its_offset(queen: QueenClient, queue: str) -> None:
    queen.push(queue, [0, 1, 2], "a")
    queen.push(queue, [0], "b")
    entries = fetch(
        queen,
        {"queue": queue, "partition": "a", "offset": 1},
        {"queue": queue, "partition": "b", "offset": 0},
        {"queue": queue, "partition": "a", "offset": 0},
        {"queue": queue, "partition": "a", "offset": 9},
        {"queue": queue, "partition": "none", "offset": 0},
        {"queue": f"{queue}-none", "partition": "a", "offset": 0},
    )
    assert [[record["payload"] for record in entry["records"]] for entry in entries] == [
        [1, 2],
        [0],
        [0, 1, 2],
        [],
        [],
        [],
    ]
    assert (entries[0]["highWatermark"], entries[0]["logStartOffset"]) == (3, 0)
    assert [record["transactionId"] for record in entries[2]["records"]] == ["t0", "t1", "t2"]
    unknown = "UNKNOWN_TOPIC_OR_PARTITION"
    assert [entry.get("error") for entry in entries[3:]] == ["OFFSET_OUT_OF_RANGE", unknown, unknown]
    assert len(queen.pop(queue, "a")) == 3, "no position has moved"


def test_a_full_response_returns_the_first_partitions(queen: QueenClient, queue: str) -> None:
    for partition in "abc":
        queen.push(queue, ["x" * 10_000] * 3, partition)
    entries = [{"queue": queue, "partition": partition, "offset": 0} for partition in "abc"]
    sizes = [len(entry["records"]) for entry in fetch(queen, *entries, maxBytes=35_000)]
    assert sizes == [3, 0, 0]
    other = {"queue": f"{queue}-other", "partition": "a", "offset": 0}
    queen.push(f"{queue}-other", [1], "a")
    assert [len(entry["records"]) for entry in fetch(queen, entries[0], other, maxBytes=20_000)] == [3, 0]
    assert [len(entry["records"]) for entry in fetch(queen, {**entries[0], "maxBytes": 15_000})] == [1]
    assert [len(entry["records"]) for entry in fetch(queen, *entries)] == [3, 3, 3]


def test_a_partition_that_cannot_exist_is_refused(queen: QueenClient, queue: str) -> None:
    queen.push(queue, [1], "a")
    body = {"entries": [{"queue": queue, "partition": "a\x00b", "offset": 0}]}
    assert "U+0000" in queen.post("/api/v1/fetch", body, 400)["error"]


def test_a_full_response_has_empty_pages_that_can_be_continued(queen: QueenClient, queue: str) -> None:
    names = [f"p{n:03}" for n in range(600)]
    queen.post("/api/v1/push", {"items": [{"queue": queue, "partition": name, "payload": 1} for name in names]}, 201)
    entries = [{"queue": queue, "limit": 600}] * 18
    pages = queen.post("/api/v1/partitions/changed", {"entries": entries})["entries"]
    assert [len(page["partitions"]) for page in pages] == [600] * 16 + [400, 0]
    assert [page["next"] is None for page in pages] == [True] * 16 + [False, False]
    for page in pages[16:]:
        _, rest = changed(queen, queue, after=page["next"])
        assert sorted(each["name"] for each in (*page["partitions"], *rest["partitions"])) == names


def test_pages_of_changed_partitions(queen: QueenClient, queue: str) -> None:
    for partition in "abc":
        queen.push(queue, [1], partition)
    _, page = changed(queen, queue, limit=2)
    _, rest = changed(queen, queue, limit=2, after=page["next"])
    assert [partition["name"] for partition in (*page["partitions"], *rest["partitions"])] == ["a", "b", "c"]
    assert rest["next"] is None
    assert changed(queen, f"{queue}-none")[1]["error"] == "UNKNOWN_TOPIC_OR_PARTITION"


def test_the_safe_time_waits_for_open_transactions(queen: QueenClient, queen_url: str, queue: str) -> None:
    """An append that is committed after the answer has a later time than the safe time of the answer."""
    queen.push(queue, [1], "a")
    table = "penstock.chunks_{}_{}"
    with psycopg.connect(queen_url) as conn, psycopg.connect(queen_url, autocommit=True) as other:
        row = other.execute("SELECT id, segment FROM penstock.queues WHERE name = %s", (queue,)).fetchone()
        assert row is not None
        chunks = table.format(*row)
        (before,) = conn.execute("SELECT clock_timestamp()").fetchone() or (None,)
        # What an append does, in a transaction that stays open.
        conn.execute(f"UPDATE {chunks} SET appended_at = clock_timestamp()")  # noqa: S608
        (written,) = conn.execute(f"SELECT max(appended_at) FROM {chunks}").fetchone() or (None,)  # noqa: S608
        safe_time, _ = changed(queen, queue)
        assert before is not None
        assert written is not None
        assert safe_time <= written.strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        conn.commit()
    later, entry = changed(queen, queue, since=safe_time)
    assert [partition["name"] for partition in entry["partitions"]] == ["a"]
    assert later > written.strftime("%Y-%m-%dT%H:%M:%S.%fZ"), "nothing is open any more"


def test_the_safe_time_counts_appends_to_a_new_segment(queen: QueenClient, queen_url: str, queue: str) -> None:
    """The server does not know a segment that another process has created just now."""
    queen.push(queue, [1], "a")
    with psycopg.connect(queen_url) as conn:
        (name,) = conn.execute(
            "SELECT format('penstock.chunks_%%s_%%s', id, segment + 1) FROM penstock.queues WHERE name = %s", (queue,)
        ).fetchone() or ("",)
        conn.execute(f"CREATE TABLE {name} (appended_at timestamptz)")
        conn.commit()
        conn.execute(f"INSERT INTO {name} VALUES (clock_timestamp()) RETURNING appended_at")  # noqa: S608
        (written,) = conn.execute(f"SELECT appended_at FROM {name}").fetchone() or (None,)  # noqa: S608
        safe_time, _ = changed(queen, queue)
        assert written is not None
        assert safe_time <= written.strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        conn.rollback()
        conn.execute(f"DROP TABLE {name}")


def test_no_write_is_missed_between_answers(queen: QueenClient, queue: str) -> None:
    queen.push(queue, [0], "start")
    done = threading.Event()

    def push() -> None:
        for n in range(60):
            queen.push(queue, [n], f"p{n}")
        done.set()

    thread = threading.Thread(target=push)
    thread.start()
    seen: set[str] = set()
    since = None
    while True:
        is_last = done.is_set()
        since, entry = changed(queen, queue, **({} if since is None else {"since": since}))
        seen |= {partition["name"] for partition in entry["partitions"]}
        if is_last:
            break
    thread.join()
    assert seen == {"start", *(f"p{n}" for n in range(60))}
