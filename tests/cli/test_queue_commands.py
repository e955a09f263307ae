from __future__ import annotations

import base64

import pytest

from penstock.engine.query_registry import Registry
from penstock.log.log import Log
from penstock.log.queue_options import DEFAULTS, format_option
from tests.cli.command_line import Arrange, CommandLine


def test_list_of_an_empty_database(cli: CommandLine) -> None:
    assert cli.json("queue", "list") == []
    assert cli("queue", "list").stdout == ""
    assert "penstock queue create" in cli("queue", "list").stderr


def test_create_partitions_by_key_with_default_options(cli: CommandLine) -> None:
    created = cli.json("queue", "create", "orders")
    assert created["created"] is True
    assert (created["partitioning"], created["partition_count"]) == ("key", None)
    assert created["options"] == {**DEFAULTS, "dedup_window_seconds": 3600.0}


def test_create_with_partitions_partitions_by_hash(cli: CommandLine) -> None:
    created = cli.json("queue", "create", "clicks", "--partitions", "4")
    assert (created["partitioning"], created["partition_count"]) == ("hash", 4)


def test_create_passes_every_option(cli: CommandLine) -> None:
    options: dict[str, object] = {
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
        "max_unread_events": 2000,
        "max_event_bytes": 2000,
        "max_redrives": 2,
        "overflow": "shed",
        "invalid_events": "dead_letter",
        "away_seconds": 600.0,
        "key_field": "tenant",
        "id_field": "order",
        "time_field": "at",
        "encrypted": True,
        # SQL cannot read encrypted events.
        "readable_from_sql": False,
    }
    cli.environment["PENSTOCK_ENCRYPTION_KEYS"] = base64.b64encode(bytes(32)).decode()
    arguments: list[str] = []
    for name, value in options.items():
        arguments += [f"--{name.replace('_', '-')}", format_option(value)]
    assert cli.json("queue", "create", "orders", *arguments)["options"] == options


def test_create_fails_if_the_queue_exists(cli: CommandLine) -> None:
    cli.ok("queue", "create", "orders")
    code, line = cli.error("queue", "create", "orders")
    assert code == 1
    assert "exists already" in line


def test_create_if_missing_leaves_an_existing_queue(cli: CommandLine) -> None:
    cli.ok("queue", "create", "orders", "--lease-seconds", "5")
    again = cli.json("queue", "create", "orders", "--lease-seconds", "9", "--if-missing")
    assert again["created"] is False
    assert again["options"]["lease_seconds"] == 5


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--lease-seconds", "-1"], "--lease-seconds must be at least"),
        (["--lease-seconds", "soon"], "--lease-seconds"),
        (["--retention-seconds", "soon"], "--retention-seconds"),
        (["--by", "magic"], "--by"),
        (["--by", "key", "--partitions", "3"], "omit partitions"),
        (["--partitions", "0"], "partitions must be 1 to"),
    ],
)
def test_invalid_option_is_rejected_by_name(cli: CommandLine, arguments: list[str], message: str) -> None:
    code, line = cli.error("queue", "create", "orders", *arguments)
    assert code == 2
    assert message in line
    assert cli.json("queue", "list") == []


def test_list_counts_partitions_and_events(cli: CommandLine) -> None:
    cli.ok("queue", "create", "orders")
    cli.ok("queue", "create", "clicks", "--partitions", "3")
    cli.ok("queue", "push", "orders", "1", "2", "--key", "a")
    listed = cli.json("queue", "list")
    assert [(q["name"], q["partitions"], q["events"]) for q in listed] == [("clicks", 3, 0), ("orders", 1, 2)]
    first, *rows = cli.ok("queue", "list").splitlines()
    assert first.split()[:4] == ["queue", "by", "partitions", "events"]
    assert [row.split()[:4] for row in rows] == [["clicks", "hash", "3", "0"], ["orders", "key", "1", "2"]]


def test_show_prints_options_size_partitions_and_groups(cli: CommandLine, arrange: Arrange) -> None:
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
    assert group.pop("created_at")
    assert group == {
        "queue": "orders",
        "group": "billing",
        "subscribed_from": "beginning",
        "query_id": None,
        "query_state": None,
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


def test_show_prints_the_largest_partitions_only(cli: CommandLine) -> None:
    cli.ok("queue", "create", "clicks", "--partitions", "20")
    assert len(cli.json("queue", "show", "clicks")["busiest_partitions"]) == 5


def test_show_advises_to_repartition_very_many_partitions(cli: CommandLine, arrange: Arrange) -> None:
    cli.ok("queue", "create", "orders")

    async def warn(log: Log) -> None:
        async with log.database.connection() as conn:
            await conn.execute("UPDATE penstock.queues SET partitions_warned_at = now()")

    arrange(warn)
    assert "penstock queue repartition orders" in cli.json("queue", "show", "orders")["advice"]
    assert "penstock queue repartition orders" in cli("queue", "show", "orders").stderr


def test_configure_changes_the_given_options_only(cli: CommandLine) -> None:
    before = cli.json("queue", "create", "orders", "--retry-limit", "9", "--retention-seconds", "60")["options"]
    after = cli.json("queue", "configure", "orders", "--lease-seconds", "8", "--retention-seconds", "none")["options"]
    assert after == {**before, "lease_seconds": 8, "retention_seconds": None}


def test_configure_prints_the_changes(cli: CommandLine) -> None:
    cli.ok("queue", "create", "orders")
    assert cli.ok("queue", "configure", "orders", "--lease-seconds", "8") == "lease_seconds: 300 → 8\n"
    assert cli.ok("queue", "configure", "orders", "--lease-seconds", "8", "--quiet") == ""


def test_help_shows_defaults_for_create_only(cli: CommandLine) -> None:
    assert "default: (300)" in cli.ok("queue", "create", "--help")
    assert "default" not in cli.ok("queue", "configure", "--help")


def test_configure_requires_an_option(cli: CommandLine) -> None:
    cli.ok("queue", "create", "orders")
    assert cli.error("queue", "configure", "orders")[0] == 2


def test_repartition_keeps_the_events(cli: CommandLine) -> None:
    cli.ok("queue", "create", "clicks", "--partitions", "2")
    cli.ok("queue", "push", "clicks", "1", "2", "3")
    assert cli.json("queue", "repartition", "clicks", "--partitions", "5")["partition_count"] == 5
    assert cli.json("queue", "repartition", "clicks", "--partitions", "5")["changed"] is False
    assert cli.json("queue", "repartition", "clicks", "--by", "key")["partitioning"] == "key"
    assert cli.json("queue", "show", "clicks")["size"]["events"] == 3
    assert cli.error("queue", "repartition", "clicks")[0] == 2


def test_delete_asks_for_confirmation(cli: CommandLine) -> None:
    cli.ok("queue", "create", "orders")
    cli.ok("queue", "push", "orders", "1", "2", "3")
    declined = cli("queue", "delete", "orders", input="n\n")
    assert declined.exit_code == 1
    assert "3 events" in declined.stderr
    assert cli("queue", "delete", "orders", input="").exit_code == 1
    assert len(cli.json("queue", "list")) == 1
    assert cli("queue", "delete", "orders", input="y\n").exit_code == 0
    assert cli.json("queue", "list") == []


def test_delete_with_yes_does_not_ask(cli: CommandLine) -> None:
    cli.ok("queue", "create", "orders")
    assert cli.json("queue", "delete", "orders", "--yes") == {"queue": "orders", "deleted": True}


@pytest.mark.parametrize("command", ["show", "push", "tail", "configure", "repartition", "delete"])
def test_unknown_queue_exits_with_3(cli: CommandLine, command: str) -> None:
    more = {"push": ["1"], "configure": ["--retry-limit", "1"], "repartition": ["--by", "key"], "delete": ["--yes"]}
    code, line = cli.error("queue", command, "nowhere", *more.get(command, []))
    assert code == 3
    assert "penstock queue create nowhere" in line


def test_show_warns_of_a_full_queue_that_no_group_reads(cli: CommandLine) -> None:
    cli.ok("queue", "create", "orders", "--max-unread-events", "2")
    cli.ok("queue", "push", "orders", "1")
    assert "full" not in cli("queue", "show", "orders").output
    cli.ok("queue", "push", "orders", "2")
    cli.error("queue", "push", "orders", "3")
    shown = cli("queue", "show", "orders").output
    assert "the queue is full: no group reads it, it holds 2 events and 2 are allowed" in shown


def test_show_names_the_group_that_holds_pushes_back(cli: CommandLine, arrange: Arrange) -> None:
    cli.ok("queue", "create", "orders", "--max-depth-events", "2")
    arrange(lambda log: log.subscribe("orders", "slow"))
    cli.ok("queue", "push", "orders", "1", "2")
    assert (
        "pushes wait for group 'slow': it is 2 events behind, and max_depth_events is 2. Let pushes pass it: "
        "`penstock group configure orders slow --no-count`"
    ) in cli("queue", "show", "orders").output
    cli.ok("group", "configure", "orders", "slow", "--no-count")
    assert "pushes wait" not in cli("queue", "show", "orders").output


def test_show_names_the_failed_query_that_holds_pushes_back(cli: CommandLine, arrange: Arrange) -> None:
    cli.ok("queue", "create", "orders", "--max-depth-events", "2")

    async def fail(log: Log) -> None:
        registry = Registry(log)
        query = await registry.register("sales", ["a"], "a", sink=None, history_seconds=60)
        fence = await registry.acquire_lease(query, "tests", 60)
        assert fence is not None
        await log.consumer_groups.subscribe(await log.catalog.refresh("orders"), "sales", query_id="sales")
        await registry.release_lease(query.id, fence, stopped=False)

    arrange(fail)
    cli.ok("queue", "push", "orders", "1", "2")
    shown = cli("queue", "show", "orders").output
    assert "a failed query" in shown
    assert (
        "pushes wait for failed query 'sales': it is 2 events behind, and max_depth_events is 2. Start it, or let "
        "pushes pass it: `penstock query stop sales`"
    ) in shown
    cli.ok("query", "stop", "sales")
    shown = cli("queue", "show", "orders").output
    assert "pushes wait" not in shown
    assert "a stopped query" in shown
    assert "no, stopped" in shown


def test_a_misspelt_queue_is_refused_with_similar_names(cli: CommandLine) -> None:
    cli.ok("queue", "create", "orders")
    code, line = cli.error("queue", "show", "ordres")
    assert code == 3
    assert "there is no queue 'ordres': did you mean 'orders'? If not, create it" in line
