from __future__ import annotations

import pytest

from penstock.log.log import Log
from penstock.log.options import DEFAULTS
from tests.cli.command_line import Arrange, CommandLine


def test_an_empty_database_has_no_queues(cli: CommandLine) -> None:
    assert cli.json("queue", "list") == []
    assert cli("queue", "list").stdout == ""
    assert "penstock queue create" in cli("queue", "list").stderr


def test_a_new_queue_is_by_key_and_has_the_defaults(cli: CommandLine) -> None:
    made = cli.json("queue", "create", "orders")
    assert made["created"] is True
    assert (made["partitioning"], made["partition_count"]) == ("key", None)
    assert made["options"] == {**DEFAULTS, "dedup_window_seconds": 3600.0}


def test_partitions_mean_hash(cli: CommandLine) -> None:
    made = cli.json("queue", "create", "clicks", "--partitions", "4")
    assert (made["partitioning"], made["partition_count"]) == ("hash", 4)


def test_every_option_reaches_the_queue(cli: CommandLine) -> None:
    wanted: dict[str, object] = {
        "lease_seconds": 12.5,
        "retry_limit": 7,
        "retry_delay_ms": 20,
        "expiry_limit": 4,
        "delay_seconds": 1.0,
        "quiet_seconds": 2.0,
        "retention_seconds": 3600.0,
        "retention_drops_unread": True,
        "dedup_window_seconds": 60.0,
        "max_depth_events": 1000,
        "max_event_bytes": 2000,
        "max_redrives": 2,
        "overflow": "shed",
        "away_seconds": 600.0,
        "key_field": "tenant",
        "id_field": "order",
        "time_field": "at",
    }
    arguments: list[str] = []
    for name, value in wanted.items():
        arguments += [f"--{name.replace('_', '-')}", "yes" if value is True else str(value)]
    assert cli.json("queue", "create", "orders", *arguments)["options"] == wanted


def test_a_queue_is_created_once(cli: CommandLine) -> None:
    cli.ok("queue", "create", "orders")
    code, line = cli.refused("queue", "create", "orders")
    assert code == 1
    assert "exists already" in line


def test_a_queue_that_is_there_can_be_good_enough(cli: CommandLine) -> None:
    cli.ok("queue", "create", "orders", "--lease-seconds", "5")
    again = cli.json("queue", "create", "orders", "--lease-seconds", "9", "--if-missing")
    assert again["created"] is False
    assert again["options"]["lease_seconds"] == 5


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--lease-seconds", "-1"], "lease_seconds must be at least"),
        (["--lease-seconds", "soon"], "--lease-seconds"),
        (["--retention-seconds", "soon"], "--retention-seconds"),
        (["--by", "magic"], "--by"),
        (["--by", "key", "--partitions", "3"], "omit partitions"),
        (["--partitions", "0"], "partitions must be 1 to"),
    ],
)
def test_an_option_that_cannot_be_is_refused_by_name(cli: CommandLine, arguments: list[str], said: str) -> None:
    code, line = cli.refused("queue", "create", "orders", *arguments)
    assert code == 2
    assert said in line
    assert cli.json("queue", "list") == []


def test_a_list_counts_what_is_there(cli: CommandLine) -> None:
    cli.ok("queue", "create", "orders")
    cli.ok("queue", "create", "clicks", "--partitions", "3")
    cli.ok("queue", "push", "orders", "1", "2", "--key", "a")
    listed = cli.json("queue", "list")
    assert [(q["name"], q["partitions"], q["events"]) for q in listed] == [("clicks", 3, 0), ("orders", 1, 2)]
    first, *rows = cli.ok("queue", "list").splitlines()
    assert first.split()[:4] == ["queue", "by", "partitions", "events"]
    assert [row.split()[:4] for row in rows] == [["clicks", "hash", "3", "0"], ["orders", "key", "1", "2"]]


def test_show_tells_all_about_a_queue(cli: CommandLine, arrange: Arrange) -> None:
    cli.ok("queue", "create", "orders", "--lease-seconds", "7")
    for key, count in (("few", 1), ("many", 9), ("some", 4)):
        cli.ok("queue", "push", "orders", *map(str, range(count)), "--key", key)
    arrange(lambda log: log.subscribe("orders", "billing"))
    shown = cli.json("queue", "show", "orders")
    assert shown["options"]["lease_seconds"] == 7
    assert shown["size"]["events"] == 14
    assert [(p["partition"], p["events"]) for p in shown["busiest_partitions"]] == [
        ("many", 9),
        ("some", 4),
        ("few", 1),
    ]
    (group,) = shown["groups"]
    assert group.pop("seen_at")
    assert group == {
        "group": "billing",
        "lag": 14,
        "partitions_behind": 3,
        "leases": 0,
        "counts": True,
        "away": False,
    }
    assert shown["dead_letters"] == 0
    assert shown["advice"] is None
    text = cli.ok("queue", "show", "orders")
    for word in ("orders", "14 kept", "lease_seconds", "many", "billing"):
        assert word in text


def test_only_the_busiest_partitions_are_shown(cli: CommandLine) -> None:
    cli.ok("queue", "create", "clicks", "--partitions", "20")
    assert len(cli.json("queue", "show", "clicks")["busiest_partitions"]) == 5


def test_very_many_lanes_come_with_advice(cli: CommandLine, arrange: Arrange) -> None:
    cli.ok("queue", "create", "orders")

    async def warn(log: Log) -> None:
        async with log.database.connection() as conn:
            await conn.execute("UPDATE penstock.queues SET lanes_warned_at = now()")

    arrange(warn)
    assert "penstock queue repartition orders" in cli.json("queue", "show", "orders")["advice"]
    assert "penstock queue repartition orders" in cli("queue", "show", "orders").stderr


def test_configure_changes_what_is_named_and_nothing_else(cli: CommandLine) -> None:
    before = cli.json("queue", "create", "orders", "--retry-limit", "9", "--retention-seconds", "60")["options"]
    after = cli.json("queue", "configure", "orders", "--lease-seconds", "8", "--retention-seconds", "none")["options"]
    assert after == {**before, "lease_seconds": 8, "retention_seconds": None}


def test_configure_says_what_changed(cli: CommandLine) -> None:
    cli.ok("queue", "create", "orders")
    assert cli.ok("queue", "configure", "orders", "--lease-seconds", "8") == "lease_seconds: 300 → 8\n"
    assert cli.ok("queue", "configure", "orders", "--lease-seconds", "8", "--quiet") == ""


def test_only_create_shows_what_an_option_is_without_it(cli: CommandLine) -> None:
    assert "default: (300)" in cli.ok("queue", "create", "--help")
    assert "default" not in cli.ok("queue", "configure", "--help")


def test_configure_wants_something_to_change(cli: CommandLine) -> None:
    cli.ok("queue", "create", "orders")
    assert cli.refused("queue", "configure", "orders")[0] == 2


def test_repartition_keeps_the_events(cli: CommandLine) -> None:
    cli.ok("queue", "create", "clicks", "--partitions", "2")
    cli.ok("queue", "push", "clicks", "1", "2", "3")
    assert cli.json("queue", "repartition", "clicks", "--partitions", "5")["partition_count"] == 5
    assert cli.json("queue", "repartition", "clicks", "--partitions", "5")["changed"] is False
    assert cli.json("queue", "repartition", "clicks", "--by", "key")["partitioning"] == "key"
    assert cli.json("queue", "show", "clicks")["size"]["events"] == 3
    assert cli.refused("queue", "repartition", "clicks")[0] == 2


def test_delete_asks_first(cli: CommandLine) -> None:
    cli.ok("queue", "create", "orders")
    cli.ok("queue", "push", "orders", "1", "2", "3")
    said_no = cli("queue", "delete", "orders", input="n\n")
    assert said_no.exit_code == 1
    assert "3 events" in said_no.stderr
    assert cli("queue", "delete", "orders", input="").exit_code == 1
    assert len(cli.json("queue", "list")) == 1
    assert cli("queue", "delete", "orders", input="y\n").exit_code == 0
    assert cli.json("queue", "list") == []


def test_delete_does_not_ask_who_said_yes(cli: CommandLine) -> None:
    cli.ok("queue", "create", "orders")
    assert cli.json("queue", "delete", "orders", "--yes") == {"queue": "orders", "deleted": True}


@pytest.mark.parametrize("command", ["show", "push", "tail", "configure", "repartition", "delete"])
def test_a_queue_that_is_not_there_is_not_found(cli: CommandLine, command: str) -> None:
    more = {"push": ["1"], "configure": ["--retry-limit", "1"], "repartition": ["--by", "key"], "delete": ["--yes"]}
    code, line = cli.refused("queue", command, "nowhere", *more.get(command, []))
    assert code == 3
    assert "penstock queue create nowhere" in line
