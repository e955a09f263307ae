"""Simulated events: reproducible, with invalid, late and duplicate ones."""

from __future__ import annotations

import contextlib
import os
import pty
import select
import signal
import termios
from collections import Counter
from datetime import UTC, datetime, timedelta
from itertools import islice, pairwise
from pathlib import Path
from typing import Any

import pytest

from penstock import SyncPenstock
from penstock.core.errors import InvalidOption
from penstock.sources.simulate import KINDS, Traffic, events
from tests.cli.command_line import CommandLine
from tests.server.server_process import run_server

BEGIN = datetime(2026, 1, 31, 12, 0, tzinfo=UTC)


def take(count: int = 2000, /, **options: Any) -> list[tuple[float, dict[str, Any]]]:
    return list(islice(events(Traffic(**{"kind": "sensors", **options}), BEGIN), count))


@pytest.mark.parametrize("kind", KINDS)
def test_the_same_seed_gives_the_same_events(kind: str) -> None:
    options = {"kind": kind, "spikes": 0.5, "bad": 0.1, "late": 0.1, "duplicates": 0.1}
    assert take(seed=1, **options) == take(seed=1, **options)
    assert take(seed=1, **options) != take(seed=2, **options)


def test_events_are_due_at_the_rate_and_spread_over_the_keys() -> None:
    found = take(rate=100, keys=8)
    assert found[-1][0] == pytest.approx(19.99)
    assert set(Counter(event["key"] for _, event in found)) == {f"sensor-{i}" for i in range(8)}
    assert all(event["time"] == BEGIN + timedelta(seconds=due) for due, event in found)


def test_invalid_late_and_duplicate_events_have_the_requested_share() -> None:
    found = [event for _, event in take(10_000, bad=0.1, late=0.2, duplicates=0.05, rate=1000)]
    bad = sum(not isinstance(event["data"]["value"], float) for event in found)
    twice = sum(count - 1 for count in Counter(event["id"] for event in found).values())
    late = sum(later["time"] < before["time"] for before, later in pairwise(found))
    assert bad == pytest.approx(1000, rel=0.2)
    assert twice == pytest.approx(476, rel=0.3)
    assert late == pytest.approx(0.16 * 10_000, rel=0.3)


def test_spikes_are_much_larger_than_usual_values() -> None:
    found = take(60 * 50, spikes=0.25)
    usual = max(e["data"]["value"] for due, e in found if due < 25)
    assert max(e["data"]["value"] for due, e in found if 25 <= due < 30 and e["key"] == "sensor-0") > 3 * usual
    assert max(e["data"]["value"] for _, e in found if e["key"] != "sensor-0") <= usual


@pytest.mark.parametrize("options", [{"kind": "cats"}, {"rate": 0}, {"keys": 0}, {"bad": 1.1}])
def test_invalid_traffic_is_refused(options: dict[str, Any]) -> None:
    with pytest.raises(InvalidOption):
        Traffic(**{"kind": "sensors", **options})


def events_in(cli: CommandLine, queue: str) -> int:
    return sum(each["events"] for each in cli.json("queue", "list") if each["name"] == queue)


def test_simulate_creates_the_queue(sinks_url: str) -> None:
    cli = CommandLine(sinks_url)
    asked = ["simulate", "orders", "--rate", "1000", "--duration", "2", "--fast", "--queue", "simulated"]
    assert cli.json(*asked) == {"queue": "simulated", "pushed": 2000}
    assert events_in(cli, "simulated") == 2000
    assert cli.json("simulate", "sensors", "--rate", "100", "--duration", "0.5")["pushed"] == 50


@pytest.mark.slow
def test_simulate_pushes_to_a_server(sinks_url: str) -> None:
    cli = CommandLine(sinks_url)
    with run_server(sinks_url) as server:
        asked = ["simulate", "clicks", "--duration", "1", "--fast", "--queue", "over-http", "--server", server.url]
        assert cli.json(*asked)["pushed"] == 50
    assert events_in(cli, "over-http") == 50


def test_source_commands(sinks_url: str, tmp_path: Path) -> None:
    cli = CommandLine(sinks_url)
    path = tmp_path / "in.csv"
    path.write_text("who,n\nada,1\nbob,2\n")
    cli.ok("queue", "create", "from-file")

    assert cli.json("source", "file", "from-file", str(path), "--key-field", "who", "--name", "csv") == {
        "queue": "from-file",
        "pushed": 2,
        "rejected": 0,
    }
    assert [each["events"] for each in cli.json("source", "list") if each["name"] == "csv"] == [2]
    cli.ok("source", "forget", "csv", "--yes")
    assert cli.error("source", "forget", "csv", "--yes")[0] == 3
    result = cli.json("source", "table", "from-file", "penstock.queues", "--column", "id", "--once", "--name", "queues")
    assert result["pushed"] >= 1


def read_terminal(cli: CommandLine, arguments: list[str], until: bytes) -> bytes:
    """Run a command whose standard error is a terminal, and interrupt it when it has shown a text."""
    master, terminal = pty.openpty()
    termios.tcsetwinsize(terminal, (24, 200))
    shown = b""
    with cli.start(*arguments, stderr=terminal) as process, open(master, "rb", buffering=0) as output:
        os.close(terminal)
        while until not in shown and select.select([output], [], [], 30)[0]:
            shown += output.read(1000)
        process.send_signal(signal.SIGINT)
        # The command cannot end while its terminal is full.
        with contextlib.suppress(OSError):
            while output.read(1000):
                pass
    return shown


@pytest.mark.slow
def test_simulate_shows_progress_and_what_it_waits_for(sinks_url: str) -> None:
    cli = CommandLine(sinks_url)
    cli.ok("queue", "create", "narrow", "--max-depth-events", "10")
    with SyncPenstock(sinks_url) as q:
        q.queue("narrow").group("slow").pop()  # a group that does not read any more
    arguments = ["simulate", "orders", "--queue", "narrow", "--rate", "1000", "--duration", "10", "--fast"]
    shown = read_terminal(cli, arguments, until=b"warning: waiting")
    assert b" of 10,000 events pushed to narrow" in shown
    assert b"queue full for" in shown
