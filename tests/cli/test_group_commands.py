from __future__ import annotations

from datetime import UTC, datetime

import pytest

from penstock.log.log import Log
from penstock.log.read.pop_request import PopRequest
from tests.cli.command_line import Arrange, CommandLine


@pytest.fixture(autouse=True)
def billing_has_read_four_of_six(cli: CommandLine, arrange: Arrange) -> None:
    cli.ok("queue", "create", "orders")
    cli.ok("queue", "push", "orders", "1", "2", "3", "--key", "a")
    cli.ok("queue", "push", "orders", "1", "2", "3", "--key", "b")

    async def read(log: Log) -> None:
        events = await log.pop(PopRequest("orders", "billing", batch=4, partitions=2))
        await log.ack(events)

    arrange(read)


def lags(cli: CommandLine) -> dict[str, int]:
    return {group["group"]: group["lag"] for group in cli.json("group", "list", "orders")}


def test_groups_are_listed_with_their_lag(cli: CommandLine, arrange: Arrange) -> None:
    arrange(lambda log: log.subscribe("orders", "late", "end"))
    assert lags(cli) == {"billing": 2, "late": 0}
    cli.ok("queue", "create", "other")
    assert cli.json("group", "list", "other") == []
    assert len(cli.json("group", "list")) == 2
    first, *rows = cli.ok("group", "list").splitlines()
    assert first.split()[:3] == ["queue", "group", "lag"]
    assert [row.split()[:3] for row in rows] == [["orders", "billing", "2"], ["orders", "late", "0"]]


def test_show_begins_with_the_partition_most_behind(cli: CommandLine) -> None:
    shown = cli.json("group", "show", "orders", "billing")
    assert (shown["lag"], shown["partitions_behind"]) == (2, 1)
    assert [(lane["partition"], lane["next_offset"], lane["lag"]) for lane in shown["partitions"]] == [
        ("b", 1, 2),
        ("a", 3, 0),
    ]
    assert "2 events in 1 partitions" in cli.ok("group", "show", "orders", "billing")


def test_show_works_for_a_group_that_was_just_moved(cli: CommandLine) -> None:
    cli.ok("group", "seek", "orders", "billing", "--to", "beginning")
    assert cli.json("group", "show", "orders", "billing")["lag"] == 6


def test_seek_moves_to_either_end(cli: CommandLine) -> None:
    moved = cli.json("group", "seek", "orders", "billing", "--to", "beginning")
    assert moved == {"queue": "orders", "group": "billing", "partitions": 2, "lag": 6}
    assert cli.json("group", "seek", "orders", "billing", "--to", "end")["lag"] == 0
    assert "0 events to read" in cli.ok("group", "seek", "orders", "billing", "--to", "end")


def test_seek_moves_to_a_time(cli: CommandLine) -> None:
    noon = datetime.now(UTC).isoformat()
    cli.ok("queue", "push", "orders", "4", "--key", "a")
    assert cli.json("group", "seek", "orders", "billing", "--to", noon)["lag"] == 1
    assert cli.json("group", "seek", "orders", "billing", "--to", "1h")["lag"] == 7
    assert cli.json("group", "seek", "orders", "billing", "--to", "0s")["lag"] == 0


def test_seek_moves_to_an_offset_of_a_partition(cli: CommandLine) -> None:
    moved = cli.json("group", "seek", "orders", "billing", "--to", "1", "--partition", "a")
    assert (moved["partitions"], moved["lag"]) == (1, 4)


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["--to", "nowhere"], 2, "is not a time"),
        (["--to", "2026-01-01T00:00:00"], 2, "has no time zone"),
        (["--to", "1"], 2, "name the partition"),
        (["--to", "1", "--partition", "zzz"], 3, "no partition 'zzz'"),
        ([], 2, "--to"),
    ],
)
def test_a_place_that_is_none_is_refused(cli: CommandLine, arguments: list[str], code: int, said: str) -> None:
    before = lags(cli)
    refused = cli.refused("group", "seek", "orders", "billing", *arguments)
    assert refused[0] == code
    assert said in refused[1]
    assert lags(cli) == before


def test_a_group_is_forgotten_after_a_question(cli: CommandLine) -> None:
    assert cli("group", "delete", "orders", "billing", input="n\n").exit_code == 1
    assert lags(cli) == {"billing": 2}
    assert cli.json("group", "delete", "orders", "billing", "--yes")["deleted"] is True
    assert lags(cli) == {}


@pytest.mark.parametrize("command", [["show"], ["seek", "--to", "end"], ["delete", "--yes"]])
def test_a_group_that_is_not_there_is_not_found(cli: CommandLine, command: list[str]) -> None:
    name, *more = command
    assert cli.refused("group", name, "orders", "nobody", *more)[0] == 3
    assert cli.refused("group", name, "nowhere", "billing", *more)[0] == 3
