from __future__ import annotations

import asyncio
import io
import json
import re
import signal
import time
from collections.abc import Collection
from pathlib import Path

import psutil
import pytest
from rich.console import Console

from penstock.cli.demo.demo_output import Step
from penstock.cli.demo.full_demo import DemoOptions, run_demo
from penstock.cli.demo.processes import ProcessFailed
from penstock.cli.output import Output
from penstock.core.errors import Conflict
from tests.cli.command_line import CommandLine
from tests.conditions import eventually_async
from tests.log.logs import ask, opened

pytestmark = pytest.mark.slow

LOG = ("demo", "log", "--events", "300", "--speed", "50")
EVERYTHING = ("demo", "--headless", "--rate", "200")


@pytest.fixture
def temporary(data_dir: Path) -> CommandLine:
    """A command line whose temporary files are in a directory of the test's own."""
    cli = CommandLine(None)
    cli.environment["TMPDIR"] = str(data_dir)
    return cli


def test_names_of_numbers_stay_readable_in_a_narrow_terminal() -> None:
    current = Step(Output())
    current.show(("dead letters", "x" * 200), ("views of pages", "1"))
    console = Console(width=60, file=io.StringIO())
    console.print(current.render())
    text = console.file.getvalue()  # type: ignore[attr-defined]  # a StringIO
    assert "dead letters xxx" in " ".join(text.split())
    assert "views of pages 1" in " ".join(text.split())


def test_the_demo_of_the_log_adds_up_and_leaves_nothing_behind(temporary: CommandLine, data_dir: Path) -> None:
    with temporary.start(*LOG) as process:
        text, errors = process.communicate(timeout=100)
    assert process.returncode == 0, text + errors
    assert "to the penny" in text
    assert re.search(r"Dead letters of billing.*ValueError", text, re.DOTALL)
    assert "penstock queue create mine" in text
    assert "\x1b" not in text
    assert errors == ""
    assert list(data_dir.iterdir()) == []


def test_the_database_of_the_log_demo_can_be_kept(temporary: CommandLine, data_dir: Path) -> None:
    with temporary.start(*LOG, "--keep", "--json") as process:
        text, _ = process.communicate(timeout=100)
    result = json.loads(text)
    assert result["succeeded"] is True
    assert all(check["holds"] for check in result["checks"])
    assert Path(result["data_dir"]).parent == data_dir
    (queue,) = temporary.json("queue", "list", "--data-dir", result["data_dir"])
    assert (queue["name"], queue["events"]) == ("orders", 303)


def test_an_interrupted_demo_of_the_log_cleans_up(temporary: CommandLine, data_dir: Path) -> None:
    with temporary.start("demo", "log", "--events", "300", "--speed", "0.1") as process:
        assert process.stdout is not None
        for line in process.stdout:
            if "A queue" in line:
                break
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=60)
    assert process.returncode == 130
    assert list(data_dir.iterdir()) == []


def children_of(pid: int) -> list[psutil.Process]:
    try:
        return psutil.Process(pid).children(recursive=True)
    except psutil.NoSuchProcess:
        return []


@pytest.mark.timeout(600)
def test_the_full_demo_is_exact_and_leaves_no_process(temporary: CommandLine, data_dir: Path) -> None:
    seen: set[psutil.Process] = set()
    with temporary.start(*EVERYTHING, "--duration", "10", "--json") as process:
        while process.poll() is None:
            seen.update(children_of(process.pid))
            time.sleep(0.2)
        text, errors = process.communicate(timeout=60)
    assert process.returncode == 0, text + errors
    result = json.loads(text)
    assert result["succeeded"] is True
    checks = {check["what"]: check for check in result["checks"]}
    assert all(check["holds"] for check in checks.values()), checks
    assert {"revenue, to the penny", "windows as computed in Python", "calls that the partner got, once"} <= set(checks)
    assert int(checks["calls that the partner got, once"]["found"]) > 0
    assert "calls sooner than the partner allows" in checks
    assert int(checks["dead letters of revenue"]["found"]) > 0
    assert result["refused"] > 0, "the overload was noticed"
    assert result["events"] > 500
    assert list(data_dir.iterdir()) == []
    assert len(seen) >= 2, "the server and the streams are processes of their own"
    assert_ended(seen, 60)


def assert_ended(processes: Collection[psutil.Process], seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while (alive := [process for process in processes if _lives(process)]) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not alive, [_arguments(process) for process in alive]


def _lives(process: psutil.Process) -> bool:
    """Return whether a process runs. One that has ended stays a zombie until its parent reaps it."""
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def _is_postgres(process: psutil.Process) -> bool:
    try:
        return "postgres" in process.name()
    except psutil.NoSuchProcess:  # a short-lived child
        return False


def _arguments(process: psutil.Process) -> list[str]:
    try:
        return process.cmdline()
    except psutil.Error:
        return []


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_a_demo_that_is_ended_while_it_starts_leaves_no_process(
    temporary: CommandLine, data_dir: Path, how: signal.Signals
) -> None:
    with temporary.start(*EVERYTHING) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if "Spark warms up" in line:
                break
        started = children_of(process.pid)
        assert len(started) >= 2
        others = [child for child in started if not _is_postgres(child)]
        assert others
        process.send_signal(how)
        process.communicate(timeout=120)
    assert_ended(others, 120)
    if how is not signal.SIGKILL:
        assert process.returncode == {signal.SIGINT: 130, signal.SIGTERM: 143}[how]
        assert list(data_dir.iterdir()) == []


@pytest.mark.parametrize("how", [pytest.param("a process fails", marks=pytest.mark.long), "it is in a hurry"])
async def test_a_demo_that_does_not_come_to_its_end_leaves_a_database_that_is_named_as_it_was(
    database_url: str, tmp_path: Path, how: str
) -> None:
    streams = tmp_path / "streams.py"
    streams.write_text("raise SystemExit('no')" if how == "a process fails" else "import time; time.sleep(60)")
    wishes = DemoOptions(streams, None, 100, 1, headless=True, port=0)
    playing = asyncio.create_task(run_demo(Output(quiet=True), wishes, database_url=database_url, keep=False))
    if how == "it is in a hurry":
        await eventually_async(lambda: _has(database_url, "calls.allowed"))
        playing.cancel()
    await asyncio.wait([playing])

    assert playing.cancelled() or isinstance(playing.exception(), ProcessFailed)
    async with opened(database_url) as log:
        assert await log.queues() == []
        await log.configure("orders")
    with pytest.raises(Conflict, match="has orders already"):
        await run_demo(Output(quiet=True), wishes, database_url=database_url, keep=False)
    assert await _has(database_url, "orders"), "somebody's"


async def _has(url: str, queue: str) -> bool:
    return bool(ask(url, "SELECT count(*) FROM penstock.queues WHERE name = %s", queue))


@pytest.mark.long
@pytest.mark.timeout(600)
def test_everything_runs_on_a_database_that_is_named_and_leaves_it_as_it_was(
    temporary: CommandLine, database_url: str
) -> None:
    with temporary.start(*EVERYTHING, "--duration", "20", "--json", "--database-url", database_url) as process:
        text, errors = process.communicate(timeout=500)
    assert process.returncode == 0, text + errors
    there = CommandLine(database_url)
    assert there.json("queue", "list") == []
    assert there.json("query", "list") == []
    there.ok("queue", "create", "orders")
    assert "has orders already" in there.error("demo", "--headless", "--database-url", database_url, "--json")[1]
