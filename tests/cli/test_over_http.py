"""Commands with --server: the queues are on a Penstock server."""

from __future__ import annotations

import gzip
import json
import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import zstandard

from penstock import SyncPenstock
from tests.cli.command_line import CommandLine
from tests.client.server_thread import serve_in_thread

pytestmark = pytest.mark.slow


@pytest.fixture
def server(database_url: str) -> Iterator[str]:
    with serve_in_thread(database_url) as url:
        yield url


@pytest.fixture
def cli(server: str) -> CommandLine:
    return CommandLine(None, server)


def test_create_show_change_and_delete_a_queue(cli: CommandLine) -> None:
    assert cli.json("queue", "create", "orders", "--lease-seconds", "60")["created"]
    assert not cli.json("queue", "create", "orders", "--if-missing")["created"]
    cli.ok("queue", "push", "orders", "1", "2", "--key", "a")

    shown = cli.json("queue", "show", "orders")
    assert (shown["size"]["events"], shown["options"]["lease_seconds"]) == (2, 60)
    assert [partition["events"] for partition in shown["busiest_partitions"]] == [2]
    assert [queue["name"] for queue in cli.json("queue", "list")] == ["orders"]
    assert cli.json("queue", "configure", "orders", "--retry-limit", "9")["options"]["retry_limit"] == 9
    assert cli.json("queue", "repartition", "orders", "--partitions", "4")["partition_count"] == 4
    assert [event["data"] for event in cli.json_lines("queue", "tail", "orders")] == [1, 2]
    assert cli.json("queue", "delete", "orders", "--yes")["deleted"]

    code, line = cli.error("queue", "show", "orders")
    assert code == 3
    assert "penstock queue create orders" in line


def test_manage_groups_and_dead_letters(cli: CommandLine, server: str) -> None:
    cli.ok("queue", "create", "orders", "--retry-limit", "0")
    cli.ok("queue", "push", "orders", "1", "2", "3")
    with SyncPenstock(server) as q:
        q.ack(q.queue("orders").group("billing").pop(), "dead_letter", error="no such account")

    assert cli.json("group", "show", "orders", "billing")["lag"] == 2
    assert cli.json("group", "seek", "orders", "billing", "--to", "end")["lag"] == 0
    assert cli.json("group", "configure", "orders", "billing", "--no-count")["counts"] is False
    (letter,) = cli.json_lines("dlq", "list", "orders", "--error", "account")
    assert cli.json("dlq", "show", str(letter["id"]))["data"] == 1
    assert cli.json("dlq", "redrive", "--id", str(letter["id"]))["replayed"] == 1
    assert cli.json("dlq", "purge", "orders", "--yes")["purged"] == 0
    assert cli.json("group", "delete", "orders", "billing", "--yes")["deleted"]
    assert cli.json("group", "list") == []


def plain(text: bytes) -> bytes:
    return text


@pytest.mark.parametrize(("name", "pack"), [("e", plain), ("e.gz", gzip.compress), ("e.zst", zstandard.compress)])
def test_push_once_of_a_plain_or_compressed_file(
    cli: CommandLine, tmp_path: Path, name: str, pack: Callable[[bytes], bytes]
) -> None:
    cli.ok("queue", "create", "orders")
    file = tmp_path / name
    rows = "".join(json.dumps({"n": n}) + "\n" for n in range(6_000))
    file.write_bytes(pack(rows.encode()))

    first = cli.json("push", "orders", "--file", str(file), "--once")
    again = cli.json("push", "orders", "--file", str(file), "--once")

    assert (first["accepted"], first["duplicates"]) == (6_000, 0)
    assert (again["accepted"], again["duplicates"]) == (0, 6_000)
    assert cli.json("queue", "show", "orders")["size"]["events"] == 6_000


def test_damaged_compressed_file_is_rejected(cli: CommandLine, tmp_path: Path) -> None:
    cli.ok("queue", "create", "orders")
    file = tmp_path / "e.gz"
    file.write_bytes(gzip.compress(b"1\n" * 10_000)[:-12])

    code, line = cli.error("push", "orders", "--file", str(file))

    assert code == 2
    assert "damaged" in line
    assert cli.error("push", "orders", "1", "--once")[0] == 2


def test_push_to_a_full_queue_fails_immediately(cli: CommandLine, server: str) -> None:
    cli.ok("queue", "create", "orders", "--max-depth-events", "2")
    with SyncPenstock(server) as q:
        q.queue("orders").group("slow").pop()
    cli.ok("push", "orders", "1", "2")

    code, line = cli.error("push", "orders", "3")

    assert code == 1
    assert "is full" in line


def test_server_option_excludes_a_database(server: str) -> None:
    unreachable = CommandLine("postgresql://localhost:1/nowhere")

    assert unreachable.json("queue", "list", "--server", server) == []
    assert "give one of them" in unreachable.error("queue", "list", "--server", server, "--database-url", "x")[1]
    assert "works on the database itself" in unreachable.error("db", "status", "--server", server)[1]
    assert "works on the database itself" in unreachable.error("query", "list", "--server", server)[1]


def test_unreachable_server_exits_with_4(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PENSTOCK_RETRY_SECONDS", "0")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        url = f"http://127.0.0.1:{taken.getsockname()[1]}"

    code, line = CommandLine(None, url).error("queue", "list")

    assert code == 4
    assert "penstock serve" in line
