"""``penstock rule``: save, try, silence and delete."""

from __future__ import annotations

import json

import psycopg

from tests.cli.command_line import CommandLine

HOT = ("--on", "readings", "--value", "avg", "--above", "80")


def push(cli: CommandLine, *values: float) -> None:
    cli.ok("queue", "create", "readings")
    for value in values:
        cli.ok("queue", "push", "readings", f'{{"avg": {value}}}', "--key", "boiler")


def test_a_misspelt_field_is_refused_with_the_nearest_name(cli: CommandLine) -> None:
    push(cli, 70)
    _, error = cli.error("rule", "save", "hot", "--on", "readings", "--value", "agv", "--above", "80")
    assert "no recent result in queue 'readings' has the field 'agv'; did you mean 'avg'?" in error
    cli.ok("rule", "save", "hot", "--on", "readings", "--value", "agv", "--above", "80", "--no-strict")


def test_save_tells_who_evaluates_the_rule(cli: CommandLine, database_url: str) -> None:
    push(cli)
    assert "`penstock rule run` evaluates it" in cli("rule", "save", "hot", *HOT).output
    with psycopg.connect(database_url) as conn:
        conn.execute(
            "INSERT INTO penstock.queries (name, description, fingerprint, history_seconds, sink_queue) "
            "VALUES ('readings_5s', ARRAY['window: 5 s'], 'x', 1, 'readings')"
        )
    saved = cli("rule", "save", "hot", *HOT).output
    assert "Query 'readings_5s' evaluates it when it closes windows" in saved
    assert "rule run" not in saved
    assert (
        "`penstock rule run` evaluates it" in cli("rule", "save", "gone", "--on", "readings", "--absent", "30").output
    )


def test_try_shows_past_alerts_and_stores_nothing(cli: CommandLine) -> None:
    push(cli, 70, 85, 90, 60)
    tried = cli.json("rule", "try", "hot", *HOT)
    assert tried["results"] == 4
    assert [each["state"] for each in tried["alerts"]] == ["firing", "cleared"]
    assert cli.json("rule", "list")["rules"] == []


def test_try_shows_the_start_of_the_window_as_the_console_sink_does(cli: CommandLine) -> None:
    cli.ok("queue", "create", "readings")
    window = {"avg": 90, "window_start": "2026-01-31T12:00:00+00:00", "window_end": "2026-01-31T12:01:00+00:00"}
    cli.ok("queue", "push", "readings", json.dumps(window), "--key", "boiler")
    tried = cli("rule", "try", "hot", *HOT).output
    assert "2026-01-31 12:00:00Z" in tried
    assert "1 result, 1 alert." in tried
    (alert,) = cli.json("rule", "try", "hot", *HOT)["alerts"]
    assert (alert["window_start"], alert["at"]) == ("2026-01-31T12:00:00Z", "2026-01-31T12:01:00Z")


def test_silence_and_its_end(cli: CommandLine) -> None:
    push(cli)
    cli.ok("rule", "save", "hot", *HOT)
    cli.ok("rule", "silence", "hot", "--for", "600")
    cli.ok("rule", "silence", "hot", "--for", "600", "--key", "boiler")
    (rule,) = cli.json("rule", "list")["rules"]
    assert rule["silenced_until"]
    assert list(rule["silenced_keys"]) == ["boiler"]
    cli.ok("rule", "silence", "hot", "--for", "0")
    assert cli.json("rule", "list")["rules"][0]["silenced_until"] is None
    assert "there is no rule 'cold'" in cli.error("rule", "silence", "cold", "--for", "1")[1]


def test_delete_of_a_missing_rule_does_not_ask(cli: CommandLine) -> None:
    assert "there is no rule 'cold'" in cli.error("rule", "delete", "cold")[1]
