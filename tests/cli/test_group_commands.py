from __future__ import annotations

from datetime import UTC, datetime

import pytest

from penstock.log.log import Log
from penstock.log.read.pop_request import PopRequest
from tests.cli.command_line import Arrange, CommandLine


@pytest.fixture(autouse=True)
def partly_read_queue(cli: CommandLine, arrange: Arrange) -> None:
    cli.ok("queue", "create", "orders")
    cli.ok("queue", "push", "orders", "1", "2", "3", "--key", "a")
    cli.ok("queue", "push", "orders", "1", "2", "3", "--key", "b")

    async def read(log: Log) -> None:
        events = await log.pop(PopRequest("orders", "billing", batch=4, partitions=2))
        await log.ack(events)

    arrange(read)


def lags(cli: CommandLine) -> dict[str, int]:
    return {group["group"]: group["lag"] for group in cli.json("group", "list", "orders")}


def test_list_prints_the_lag(cli: CommandLine, arrange: Arrange) -> None:
    arrange(lambda log: log.subscribe("orders", "late", "end"))
    assert lags(cli) == {"billing": 2, "late": 0}
    cli.ok("queue", "create", "other")
    assert cli.json("group", "list", "other") == []
    assert len(cli.json("group", "list")) == 2
    first, *rows = cli.ok("group", "list").splitlines()
    assert first.split()[:3] == ["queue", "group", "lag"]
    assert [row.split()[:3] for row in rows] == [["orders", "billing", "2"], ["orders", "late", "0"]]


def test_show_starts_with_the_largest_lag(cli: CommandLine) -> None:
    shown = cli.json("group", "show", "orders", "billing")
    assert (shown["lag"], shown["partitions_behind"]) == (2, 1)
    assert [
        (partition["partition"], partition["next_offset"], partition["lag"]) for partition in shown["partitions"]
    ] == [
        ("b", 1, 2),
        ("a", 3, 0),
    ]
    assert "2 events in 1 partition" in cli.ok("group", "show", "orders", "billing")


def test_show_after_seek(cli: CommandLine) -> None:
    cli.ok("group", "seek", "orders", "billing", "--to", "beginning")
    assert cli.json("group", "show", "orders", "billing")["lag"] == 6


def test_seek_to_beginning_and_end(cli: CommandLine) -> None:
    moved = cli.json("group", "seek", "orders", "billing", "--to", "beginning")
    assert moved == {"queue": "orders", "group": "billing", "partitions": 2, "lag": 6}
    assert cli.json("group", "seek", "orders", "billing", "--to", "end")["lag"] == 0
    assert "0 events to read" in cli.ok("group", "seek", "orders", "billing", "--to", "end")


def test_seek_to_a_time(cli: CommandLine) -> None:
    noon = datetime.now(UTC).isoformat()
    cli.ok("queue", "push", "orders", "4", "--key", "a")
    assert cli.json("group", "seek", "orders", "billing", "--to", noon)["lag"] == 1
    assert cli.json("group", "seek", "orders", "billing", "--to", "1h")["lag"] == 7
    assert cli.json("group", "seek", "orders", "billing", "--to", "0s")["lag"] == 0


def test_seek_to_an_offset_of_a_partition(cli: CommandLine) -> None:
    moved = cli.json("group", "seek", "orders", "billing", "--to", "1", "--partition", "a")
    assert (moved["partitions"], moved["lag"]) == (1, 4)


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["--to", "nowhere"], 2, "is not a time"),
        (["--to", "2026-01-01T00:00:00"], 2, "has no time zone"),
        (["--to", "1"], 2, "name the partition"),
        (["--to", "1", "--partition", "zzz"], 3, "no partition 'zzz'"),
        ([], 2, "--to"),
    ],
)
def test_seek_to_an_invalid_position_is_rejected(
    cli: CommandLine, arguments: list[str], code: int, message: str
) -> None:
    before = lags(cli)
    error = cli.error("group", "seek", "orders", "billing", *arguments)
    assert error[0] == code
    assert message in error[1]
    assert lags(cli) == before


def test_delete_asks_for_confirmation(cli: CommandLine) -> None:
    assert cli("group", "delete", "orders", "billing", input="n\n").exit_code == 1
    assert lags(cli) == {"billing": 2}
    assert cli.json("group", "delete", "orders", "billing", "--yes")["deleted"] is True
    assert lags(cli) == {}


@pytest.mark.parametrize("command", [["show"], ["seek", "--to", "end"], ["delete", "--yes"]])
def test_unknown_group_exits_with_3(cli: CommandLine, command: list[str]) -> None:
    name, *more = command
    assert cli.error("group", name, "orders", "nobody", *more)[0] == 3
    assert cli.error("group", name, "nowhere", "billing", *more)[0] == 3
