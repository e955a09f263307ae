from __future__ import annotations

import json
import os
import signal
import socket
import time
from pathlib import Path
from typing import Any

import httpx
import psycopg
import pytest

from tests.cli.command_line import CommandLine

UNREACHABLE = CommandLine("postgresql://localhost:1/nowhere")


@pytest.fixture
def app(tmp_path: Path) -> Path:
    return tmp_path / "app.py"


def run_error(app: Path, text: str, *options: str) -> tuple[int, str]:
    app.write_text(text)
    return UNREACHABLE.error("run", str(app), *options)


# Errors that are reported before Spark starts.


def test_a_misspelt_queue_is_refused_with_similar_names(cli: CommandLine, app: Path) -> None:
    cli.ok("queue", "create", "orders")
    app.write_text("from penstock import Stream\ncopies = Stream.from_('ordres').to('copies')\n")
    code, line = cli.error("run", str(app))
    assert code == 3
    assert "there is no queue 'ordres': did you mean 'orders'?" in line


def test_missing_file_is_rejected(app: Path) -> None:
    code, line = UNREACHABLE.error("run", str(app))
    assert code == 2
    assert "does not exist" in line


def test_syntax_error_is_reported_with_its_line(app: Path) -> None:
    code, line = run_error(app, "x = 1\ny = (\n")
    assert code == 2
    assert f"{app}:2: not valid Python" in line


def test_file_without_streams_is_rejected(app: Path) -> None:
    code, line = run_error(app, "x = 1\n")
    assert code == 2
    assert "app.py neither defines a stream at its top level nor runs one" in line


def test_invalid_stream_is_reported_with_its_line(app: Path) -> None:
    code, line = run_error(app, "from penstock import Stream\n\norders = Stream.from_('orders').to('orders')\n")
    assert code == 2
    assert "app.py:3: the stream reads 'orders', so it would never end" in line


def test_stream_without_sink_is_reported_by_name(app: Path) -> None:
    code, line = run_error(app, "from penstock import Stream\nbase = Stream.from_('orders')\n")
    assert code == 2
    assert "app.py: base: the stream goes nowhere" in line
    assert "rename it to _base" in line


STREAMS = """
from penstock import Stream
_orders = Stream.from_("orders")
big = _orders.filter("amount > 10").to("big")
small = _orders.filter("amount <= 10").to("small")
"""


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--query", "huge=h"], "no stream 'huge'; it has big, small"),
        (["--query", "big=small"], "two streams have the query id 'small'"),
        (["--query", "big"], "write --query name=value"),
        (["--conf", "spark.executor.memory"], "write --conf name=value"),
        (["--py-files", "nowhere.zip"], "--py-files 'nowhere.zip' is not a file"),
        (["--from", "yesterday"], "is not a time"),
        (["--history-retention", "400"], "'400' is not a duration"),
        (["--metrics-port", "0", "--metrics-host", "nowhere.invalid"], "cannot listen on host"),
    ],
)
def test_invalid_options_are_rejected(app: Path, options: list[str], message: str) -> None:
    code, line = run_error(app, STREAMS, *options)
    assert code == 2
    assert message in line


def test_error_of_the_file_is_printed_as_a_traceback(app: Path) -> None:
    app.write_text("def f():\n    return 1 / 0\n\nf()\n")
    result = UNREACHABLE("run", str(app))
    assert result.exit_code == 1
    assert "line 4, in <module>" in result.stderr
    assert result.stderr.endswith("ZeroDivisionError: division by zero\n")
    assert "penstock/cli" not in result.stderr


def test_file_is_the_main_program(app: Path) -> None:
    (app.parent / "beside.py").write_text("VALUE = 7\n")
    app.write_text("import sys, beside\nif __name__ == '__main__':\n    sys.exit(f'{beside.VALUE} {sys.argv[1:]}')\n")
    result = UNREACHABLE("run", str(app), "--", "--day", "1")
    assert "7 ['--day', '1']" in result.output


# Tests with Spark.

TWO_STREAMS = """
from decimal import Decimal
from penstock import Stream, agg
import rates

def in_euros(event):
    return {**event, "amount": event["amount"] * rates.RATE}

_orders = Stream.from_("orders").map(in_euros)
totals = _orders.window_tumbling(seconds=3600).aggregate({"n": agg.count(), "total": "sum(amount)"})
copies = _orders.to("copies")
"""


def read_metrics(port: int) -> tuple[dict[str, Any], str]:
    """Return the metrics as JSON and in the format of Prometheus."""
    url = f"http://127.0.0.1:{port}/metrics"
    return httpx.get(url, headers={"Accept": "application/json"}).json(), httpx.get(url).text


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_streams_of_a_file_run_in_one_spark_until_a_signal(cli: CommandLine, app: Path) -> None:
    (app.parent / "rates.py").write_text("RATE = 2\n")
    app.write_text(TWO_STREAMS)
    cli.ok("queue", "create", "orders")
    cli.ok("queue", "push", "orders", '{"amount": 1}', '{"amount": 2}')
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    options = ["--query", "totals=hourly", "--master", "local[1]", "--conf", "spark.app.name=mine", "--json"]
    options += ["--metrics-port", str(port), "--history-retention", "90d"]
    with cli.start("run", str(app), *options) as process, psycopg.connect(str(cli.database_url), autocommit=True) as db:
        deadline = time.monotonic() + 300
        done = False
        while not done and process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.1)
            # Both queries have read both events, and one driver holds both leases.
            (done,) = db.execute(
                "SELECT (SELECT coalesce(sum(events_in), 0) FROM penstock.cycles) = 4 AND "
                "(SELECT count(*) FILTER (WHERE lease_until > now()) = 2 AND count(DISTINCT driver) = 1 "
                "FROM penstock.queries)"
            ).fetchone() or (False,)
        numbers, text = read_metrics(port)
        process.send_signal(signal.SIGTERM)
        output, errors = process.communicate(timeout=90)

        assert (done, process.returncode) == (True, 0), output + errors
        message = {line["query"]: line for line in map(json.loads, output.splitlines())}
        assert {name: line["events_in"] for name, line in message.items()} == {"hourly": 2, "copies": 2}
        # The port served metrics while the queries ran, and is closed now.
        assert (numbers["eventsReceived"], numbers["eventsProcessed"], numbers["eventsDropped"]) == (2, 4, 0)
        assert {"windowsEmitted", "backpressureEvents", "uptimeMs", "dlqSize", "queueDepth"} <= numbers.keys()
        assert 'penstock_query_events_total{query="hourly"} 2.0' in text
        with pytest.raises(httpx.ConnectError):
            read_metrics(port)
        # The leases were released, and the open window is kept for the next start.
        assert {query["state"] for query in cli.json("query", "list")} == {"stopped"}
        assert cli.json("query", "show", "hourly")["history_seconds"] == 90 * 86_400
        assert db.execute("SELECT n, total FROM penstock_live.hourly").fetchone() == (2, 6)
    assert [event["data"]["amount"] for event in cli.json_lines("queue", "tail", "copies")] == [2, 4]


TOTALS = """
from penstock import Stream, agg
totals = Stream.from_("orders").window_tumbling(seconds=3600).aggregate({"total": agg.sum("amount")})
"""


OWN_RUN = """
from penstock import Stream
copies = Stream.from_("orders").to("copies")

if __name__ == "__main__":
    print(copies.run("own_name", available_now=True).status.events_in, "events")
"""


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_file_that_runs_its_own_streams(cli: CommandLine, app: Path) -> None:
    app.write_text(OWN_RUN)
    cli.ok("queue", "create", "orders")
    cli.ok("queue", "push", "orders", "1", "2", "3")
    with cli.start("run", str(app), "--master", "local[1]") as process:
        output, errors = process.communicate(timeout=300)
    assert (process.returncode, output) == (0, "3 events\n"), errors
    assert [query["name"] for query in cli.json("query", "list")] == ["own_name"]


@pytest.mark.slow
@pytest.mark.timeout(400)
@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_to_the_process_group_stops_without_a_java_stack(
    cli: CommandLine, app: Path, signum: signal.Signals
) -> None:
    """A supervisor, a shell or a closed terminal may signal all processes of a group, so the JVM too."""
    app.write_text(TOTALS)
    cli.ok("queue", "create", "orders")
    with (
        psycopg.connect(str(cli.database_url), autocommit=True) as db,
        cli.start("run", str(app), "--master", "local[1]", start_new_session=True) as process,
    ):
        deadline = time.monotonic() + 300
        read = 0
        # Cycles run all the time, so that the signal comes during one.
        while read < 20 and process.poll() is None and time.monotonic() < deadline:
            cli.ok("queue", "push", "orders", '{"amount": 1}')
            (read,) = db.execute("SELECT coalesce(sum(events_in), 0)::int FROM penstock.cycles").fetchone() or (0,)
        os.killpg(process.pid, signum)
        output, errors = process.communicate(timeout=90)
    assert (read >= 20, process.returncode) == (True, 0), output + errors
    for word in ("Exception", "Traceback", "\tat ", "WARN", "ERROR"):
        assert word not in errors, errors
    assert {query["state"] for query in cli.json("query", "list")} == {"stopped"}
