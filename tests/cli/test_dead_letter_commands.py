from __future__ import annotations

import re
from datetime import UTC, datetime
from pathlib import Path

import pytest

from penstock.log.log import Log
from penstock.log.read.pop_request import PopRequest
from tests.cli.command_line import Arrange, CommandLine

TRACEBACK = 'Traceback (most recent call last):\n  File "billing.py", line 1\nTimeout: no answer'


@pytest.fixture(autouse=True)
def failed_orders(cli: CommandLine, arrange: Arrange) -> None:
    cli.ok("queue", "create", "orders", "--max-redrives", "1")
    for n, key in enumerate("abc"):
        cli.ok("queue", "push", "orders", f'{{"n": {n}}}', "--key", key, "--id", f"order-{n}")
    arrange(dead_letter_all)


async def dead_letter_all(log: Log) -> None:
    """Dead-letter all unread events of the group billing."""
    for event in await log.pop(PopRequest("orders", "billing", batch=10, partitions=10)):
        error = "Timeout: no answer" if event.data["n"] < 2 else "ValueError: bad amount"
        await log.ack([event], "dead_letter", error=error, traceback=TRACEBACK)


def ids(cli: CommandLine, *arguments: str) -> list[int]:
    return [letter["id"] for letter in cli.json_lines("dlq", "list", *arguments)]


def test_list_is_newest_first(cli: CommandLine) -> None:
    letters = cli.json_lines("dlq", "list")
    assert [letter["data"]["n"] for letter in letters] == [2, 1, 0]
    assert {letter["group"] for letter in letters} == {"billing"}
    text = cli.ok("dlq", "list", "orders")
    assert "ValueError: bad amount" in text
    assert len(text.splitlines()) == 4


def test_filters_are_combined_with_and(cli: CommandLine) -> None:
    newest, middle, oldest = ids(cli)
    assert ids(cli, "--error", "Timeout") == [middle, oldest]
    assert ids(cli, "--error", "Timeout", "--key", "b") == [middle]
    assert ids(cli, "orders", "--group", "billing", "--key", "c") == [newest]
    assert ids(cli, "--group", "nobody") == []
    assert ids(cli, "--since", "1h") == [newest, middle, oldest]
    assert ids(cli, "--until", datetime.now(UTC).isoformat()) == [newest, middle, oldest]
    assert ids(cli, "--until", "1h") == []


def test_list_names_the_next_page(cli: CommandLine) -> None:
    assert ids(cli, "--limit", "1", "--offset", "1") == ids(cli)[1:2]
    assert "--offset 2" in cli("dlq", "list", "--limit", "2").stderr


def test_show_prints_event_error_and_traceback(cli: CommandLine) -> None:
    newest, *_ = ids(cli)
    letter = cli.json("dlq", "show", str(newest))
    assert letter["data"] == {"n": 2}
    assert (letter["key"], letter["event_id"], letter["attempts"]) == ("c", "order-2", 1)
    assert letter["traceback"] == TRACEBACK
    assert letter["history"] == []
    text = cli.ok("dlq", "show", str(newest))
    for part in ("ValueError: bad amount", "billing.py", "order-2", '"n": 2'):
        assert part in text


def test_redrive_replays_to_the_group_that_failed(cli: CommandLine) -> None:
    result = cli.json("dlq", "redrive", "orders", "--error", "Timeout")
    assert result == {"replayed": 2, "failed": 0, "problems": []}
    assert [group["lag"] for group in cli.json("group", "list")] == [2]
    assert len(ids(cli)) == 1


def test_redrive_replays_the_oldest_up_to_its_limit(cli: CommandLine) -> None:
    newest, middle, _ = ids(cli)
    result = cli("dlq", "redrive", "--limit", "1")
    assert result.stdout == "1 replayed, 0 failed.\n"
    assert "2 more match" in result.stderr
    assert "unchanged, and will fail again unless their cause is fixed" in result.stderr
    assert ids(cli) == [newest, middle]
    assert cli.json("dlq", "redrive", "--all")["replayed"] == 2


def test_redrive_by_id(cli: CommandLine) -> None:
    newest, middle, oldest = ids(cli)
    assert cli.json("dlq", "redrive", "--id", str(newest), "--id", str(oldest))["replayed"] == 2
    assert ids(cli) == [middle]


def test_failed_redrive_prints_each_dead_letter_with_the_reason(cli: CommandLine, arrange: Arrange) -> None:
    assert cli.json("dlq", "redrive", "--all")["replayed"] == 3
    arrange(dead_letter_all)
    again = cli("dlq", "redrive", "--all", "--json")
    assert again.exit_code == 1
    assert '"replayed":0,"failed":3' in again.stdout
    again = cli("dlq", "redrive", "--all")
    assert again.exit_code == 1
    assert again.stdout == "0 replayed, 3 failed.\n"
    assert again.stderr.count("raise max_redrives") == 3


def test_show_prints_earlier_failures(cli: CommandLine, arrange: Arrange) -> None:
    newest, *_ = ids(cli)
    cli.ok("dlq", "redrive", "--id", str(newest))
    arrange(dead_letter_all)
    letter = cli.json("dlq", "show", str(newest))
    assert [failure["error"] for failure in letter["history"]] == ["ValueError: bad amount"]
    assert letter["redrives"] == 1
    assert re.search(
        r"Failed 20.*, after 1 attempt \(.+\)\n  ValueError: bad amount", cli.ok("dlq", "show", str(newest))
    )


def test_purge_asks_for_confirmation(cli: CommandLine) -> None:
    declined = cli("dlq", "purge", "orders", "--error", "Timeout", input="n\n")
    assert declined.exit_code == 1
    assert "Delete 2 dead letters" in declined.stderr
    assert len(ids(cli)) == 3
    assert cli.json("dlq", "purge", "orders", "--error", "Timeout", "--yes") == {"purged": 2}
    assert len(ids(cli)) == 1


def test_purge_without_filter_requires_all(cli: CommandLine) -> None:
    assert cli.error("dlq", "purge", "--yes")[0] == 2
    assert len(ids(cli)) == 3
    assert cli.json("dlq", "purge", "--all", "--yes") == {"purged": 3}


@pytest.mark.parametrize(
    "command",
    [["show", "999"], ["redrive", "--id", "999"], ["purge", "--id", "999", "--yes"], ["list", "nowhere"]],
)
def test_unknown_dead_letter_exits_with_3(cli: CommandLine, command: list[str]) -> None:
    assert cli.error("dlq", *command)[0] == 3


def test_filters_by_stage_kind_and_partition(cli: CommandLine) -> None:
    newest, middle, oldest = ids(cli)
    assert ids(cli, "--stage", "consumer", "--kind", "Timeout: no answer") == [middle, oldest]
    assert ids(cli, "--stage", "parse") == []
    assert ids(cli, "orders", "--partition", "c") == [newest]


MAPPING = "*, n * 1.50 AS amount"


def test_a_mapping_is_previewed_without_replaying(cli: CommandLine) -> None:
    text = cli.ok("dlq", "redrive", "orders", "--map", MAPPING, "--preview")
    assert '- {"n":2}' in text
    assert '+ {"n":2,"amount":3.00}' in text
    (edit,) = cli.json_lines("dlq", "redrive", "orders", "--key", "c", "--map", "*", "--preview")
    assert (edit["before"], edit["after"], edit["changed"], edit["problem"]) == ({"n": 2}, {"n": 2}, False, None)
    assert len(ids(cli)) == 3


def test_a_mapping_is_shown_before_it_is_applied(cli: CommandLine, arrange: Arrange) -> None:
    refused = cli("dlq", "redrive", "orders", "--map", MAPPING, "--all", input="n\n")
    assert refused.exit_code == 1
    assert "Replay 3 dead letters with this mapping?" in refused.stderr
    assert len(ids(cli)) == 3

    assert "3 replayed, 0 failed" in cli.ok("dlq", "redrive", "orders", "--map", MAPPING, "--all", input="y\n")

    assert ids(cli) == []
    arrange(dead_letter_all)
    assert [letter["data"]["amount"] for letter in cli.json_lines("dlq", "list")] == [3.0, 1.5, 0.0]


def test_a_function_in_a_file_edits_dead_letters(cli: CommandLine, tmp_path: Path) -> None:
    file = tmp_path / "correct.py"
    file.write_text("def correct(order):\n    return {'n': 10 / order['n']}\n\nassert __name__ != '__main__'\n")

    shown = cli.ok("dlq", "redrive", "orders", "--map-python", f"{file}:correct", "--preview")
    assert "ZeroDivisionError" in shown
    assert '+ {"n":5.0}' in shown

    done = cli("dlq", "redrive", "orders", "--map-python", f"{file}:correct", "--yes")
    assert done.exit_code == 1
    assert "2 replayed, 1 failed" in done.stdout
    assert len(ids(cli)) == 1


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["--preview"], "give --map or --map-python"),
        (["--map", "*", "--map-python", "a.py:f"], "not both"),
        (["--map", "foo(n) AS a", "--yes"], "foo() is not available here"),
        (["--map-python", "correct"], "write it like correct.py:correct"),
        (["--map-python", "nothing.py:correct"], "there is no file nothing.py"),
    ],
)
def test_an_invalid_mapping_is_refused(cli: CommandLine, arguments: list[str], reason: str) -> None:
    done = cli("dlq", "redrive", "orders", *arguments)
    assert done.exit_code != 0
    assert reason in " ".join(done.stderr.replace("│", " ").split())
    assert len(ids(cli)) == 3
