from __future__ import annotations

from datetime import UTC, datetime

import pytest

from penstock.log.log import Log
from penstock.log.read.pop_request import PopRequest
from tests.cli.command_line import Arrange, CommandLine

TRACEBACK = 'Traceback (most recent call last):\n  File "billing.py", line 1\nTimeout: no answer'


@pytest.fixture(autouse=True)
def three_orders_have_failed(cli: CommandLine, arrange: Arrange) -> None:
    cli.ok("queue", "create", "orders", "--max-redrives", "1")
    for n, key in enumerate("abc"):
        cli.ok("queue", "push", "orders", f'{{"n": {n}}}', "--key", key, "--id", f"order-{n}")
    arrange(fail)


async def fail(log: Log) -> None:
    """Whatever there is to read for billing, it fails."""
    for event in await log.pop(PopRequest("orders", "billing", batch=10, partitions=10)):
        error = "Timeout: no answer" if event.data["n"] < 2 else "ValueError: bad amount"
        await log.ack([event], "dead_letter", error=error, traceback=TRACEBACK)


def ids(cli: CommandLine, *arguments: str) -> list[int]:
    return [letter["id"] for letter in cli.json_lines("dlq", "list", *arguments)]


def test_dead_letters_are_listed_newest_first(cli: CommandLine) -> None:
    found = cli.json_lines("dlq", "list")
    assert [letter["data"]["n"] for letter in found] == [2, 1, 0]
    assert {letter["group"] for letter in found} == {"billing"}
    text = cli.ok("dlq", "list", "orders")
    assert "ValueError: bad amount" in text
    assert len(text.splitlines()) == 4


def test_conditions_add_up(cli: CommandLine) -> None:
    newest, middle, oldest = ids(cli)
    assert ids(cli, "--error", "Timeout") == [middle, oldest]
    assert ids(cli, "--error", "Timeout", "--key", "b") == [middle]
    assert ids(cli, "orders", "--group", "billing", "--key", "c") == [newest]
    assert ids(cli, "--group", "nobody") == []
    assert ids(cli, "--since", "1h") == [newest, middle, oldest]
    assert ids(cli, "--until", datetime.now(UTC).isoformat()) == [newest, middle, oldest]
    assert ids(cli, "--until", "1h") == []


def test_a_page_says_that_there_are_more(cli: CommandLine) -> None:
    assert ids(cli, "--limit", "1", "--offset", "1") == ids(cli)[1:2]
    assert "--offset 2" in cli("dlq", "list", "--limit", "2").stderr


def test_show_has_everything(cli: CommandLine) -> None:
    newest, *_ = ids(cli)
    letter = cli.json("dlq", "show", str(newest))
    assert letter["data"] == {"n": 2}
    assert (letter["key"], letter["event_id"], letter["attempts"]) == ("c", "order-2", 1)
    assert letter["traceback"] == TRACEBACK
    assert letter["history"] == []
    text = cli.ok("dlq", "show", str(newest))
    for part in ("ValueError: bad amount", "billing.py", "order-2", '"n": 2'):
        assert part in text


def test_a_redrive_goes_to_the_group_that_failed(cli: CommandLine) -> None:
    outcome = cli.json("dlq", "redrive", "orders", "--error", "Timeout")
    assert outcome == {"replayed": 2, "failed": 0, "problems": []}
    assert [group["lag"] for group in cli.json("group", "list")] == [2]
    assert len(ids(cli)) == 1


def test_a_redrive_takes_the_oldest_up_to_its_limit(cli: CommandLine) -> None:
    newest, middle, _ = ids(cli)
    result = cli("dlq", "redrive", "--limit", "1")
    assert result.stdout == "1 replayed, 0 failed.\n"
    assert "2 more match" in result.stderr
    assert ids(cli) == [newest, middle]
    assert cli.json("dlq", "redrive", "--all")["replayed"] == 2


def test_named_dead_letters_are_redriven(cli: CommandLine) -> None:
    newest, middle, oldest = ids(cli)
    assert cli.json("dlq", "redrive", "--id", str(newest), "--id", str(oldest))["replayed"] == 2
    assert ids(cli) == [middle]


def test_a_redrive_that_fails_says_which_and_why(cli: CommandLine, arrange: Arrange) -> None:
    assert cli.json("dlq", "redrive", "--all")["replayed"] == 3
    arrange(fail)
    again = cli("dlq", "redrive", "--all", "--json")
    assert again.exit_code == 1
    assert '"replayed":0,"failed":3' in again.stdout
    again = cli("dlq", "redrive", "--all")
    assert again.exit_code == 1
    assert again.stdout == "0 replayed, 3 failed.\n"
    assert again.stderr.count("raise max_redrives") == 3


def test_what_happened_before_is_kept(cli: CommandLine, arrange: Arrange) -> None:
    newest, *_ = ids(cli)
    cli.ok("dlq", "redrive", "--id", str(newest))
    arrange(fail)
    letter = cli.json("dlq", "show", str(newest))
    assert [before["error"] for before in letter["history"]] == ["ValueError: bad amount"]
    assert letter["redrives"] == 1
    assert "Before" in cli.ok("dlq", "show", str(newest))


def test_a_purge_asks_first(cli: CommandLine) -> None:
    refused = cli("dlq", "purge", "orders", "--error", "Timeout", input="n\n")
    assert refused.exit_code == 1
    assert "Delete 2 dead letters" in refused.stderr
    assert len(ids(cli)) == 3
    assert cli.json("dlq", "purge", "orders", "--error", "Timeout", "--yes") == {"purged": 2}
    assert len(ids(cli)) == 1


def test_a_purge_of_everything_has_to_be_said(cli: CommandLine) -> None:
    assert cli.refused("dlq", "purge", "--yes")[0] == 2
    assert len(ids(cli)) == 3
    assert cli.json("dlq", "purge", "--all", "--yes") == {"purged": 3}


@pytest.mark.parametrize(
    "command",
    [["show", "999"], ["redrive", "--id", "999"], ["purge", "--id", "999", "--yes"], ["list", "nowhere"]],
)
def test_what_is_not_there_is_not_found(cli: CommandLine, command: list[str]) -> None:
    assert cli.refused("dlq", *command)[0] == 3
