"""Runs the examples of all pages and compares what they print.

All pages share one database, as for a reader who goes through several of them. The blocks of a page run in order, in
one namespace:

* ``python``: with ``await`` outside of functions, as in ``python -m asyncio``;
* ``sql``: as the role that owns the schema. The result counts as printed, one line per row;
* ``console``: each ``penstock`` command that ends by itself. ``run`` of a file that the page shows, and ``simulate``,
  run in the background until the end of the page;
* a page that delivers to a webhook has a receiver on this machine, which has to get a request;
* ``sh``: on pages that mention the server, which runs meanwhile;
* ``output`` or ``json``: the expected output of the block before.

Times and sizes are not compared, and ``…`` stands for any text.

A comment on the line before a block says that the block does not run, ``<!-- not run: the reason -->``, that some of
its commands do not, ``<!-- partly run: the reason -->``, that it needs queries, which are registered without Spark,
``<!-- queries: query queue/query -->``, or that it is saved as a file, ``<!-- file: app.py -->``. A command that cannot
run, in a block without such a comment, fails the test.
"""

from __future__ import annotations

import ast
import asyncio
import dataclasses
import inspect
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Coroutine, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import CodeType
from typing import Any

import psycopg
import pytest

from penstock import Penstock, Query, SyncPenstock
from penstock.engine.query_registry import Registry
from tests import servers
from tests.client.server_thread import serve_in_thread
from tests.docs.console import Command, commands_in
from tests.docs.pages import PAGES, Block, blocks_of, name_of
from tests.log.logs import opened
from tests.servers import Server

pytestmark = pytest.mark.slow

#: Commands that run until Ctrl-C.
_UNTIL_STOPPED = ("console", "demo", "prepare", "run", "serve", "sink", "simulate", "sql")
#: Programs of every machine.
_TOOLS = ("cat", "curl", "gzip", "pytest")
#: Programs that install Penstock or prepare the shell, which is done.
_INSTALLATION = (".", "cd", "export", "make", "pip", "python3")
#: An example that takes longer than this hangs.
_EXAMPLE_SECONDS = 30.0
_START_SECONDS = 180.0
#: Grows with every push.
_EVENTS = "SELECT queue, appended FROM penstock.depth ORDER BY queue"
_VIEWS = "SELECT viewname FROM pg_views WHERE schemaname = 'penstock_live' ORDER BY viewname"
#: The exit status of a command that Ctrl-C ends, as it starts or later.
_INTERRUPTED = (130, -signal.SIGINT)
_LANGUAGES = ("python", "sql", "console", "sh", "output", "json")
#: Where a page says that the server is.
_SERVER = "http://127.0.0.1:6632"
#: The receiver of a page that delivers to a webhook.
_WEBHOOK = 'Webhook("https://example.com/hook"'
_RUNS_A_QUERY = re.compile(r"\.(start|run)\(\"|^\$ (pytest|penstock run \S+$)", re.MULTILINE)


def runnable() -> Iterator[Any]:
    """The pages with something to run; those that start Spark for it are few, and take their time."""
    for page in PAGES:
        blocks = [block for block in blocks_of(page, *_LANGUAGES) if block.not_run is None]
        on_spark = any(_RUNS_A_QUERY.search(block.text) for block in blocks)
        marks = [pytest.mark.slow, pytest.mark.timeout(400)] if on_spark else []
        if blocks:
            yield pytest.param(page, marks=marks, id=name_of(page))


@pytest.fixture(scope="module")
def readers_database(pg18: Server) -> Iterator[str]:
    """The database of a reader of all pages."""
    with pg18.fresh_database(servers.TEMPLATE) as url:
        yield url


@pytest.mark.parametrize("page", list(runnable()))
def test_the_examples_of_a_page_run(
    page: Path,
    readers_database: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("PENSTOCK_DATABASE_URL", readers_database)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    with (
        Session(readers_database) as session,
        serving(page, readers_database) as url,
        receiving(page) as webhook,
        BackgroundCommands(readers_database) as background,
    ):
        for block in blocks_of(page, *_LANGUAGES):
            if block.not_run is not None:
                continue
            if block.file is not None:
                Path(block.file).write_text(block.text)
                continue
            if block.queries:
                asyncio.run(register_queries(readers_database, block.queries.split()))
            block = dataclasses.replace(block, text=block.text.replace(_SERVER, url).replace(_WEBHOOK, webhook))
            if block.language == "python":
                capsys.readouterr()
                session.run_python(block)
            elif block.language == "sh":
                capsys.readouterr()
                print(subprocess.check_output(["bash", "-ec", block.text], text=True))
            elif block.language in ("output", "json"):
                assert_printed(block, capsys.readouterr().out, block.text)
            elif block.language == "sql":
                capsys.readouterr()
                session.run_sql(block)
            else:
                for command in commands_in(block):
                    if background.accepts(command):
                        background.start(command)
                    elif ends_by_itself(command):
                        printed = run(command)
                        if command.output:
                            assert_printed(block, printed, command.output)
                    elif command.simple_commands()[0][0] not in _INSTALLATION:
                        assert block.partly_run, f"{block}: {command.text!r} does not run, and no comment says why"


async def register_queries(database_url: str, names: Sequence[str]) -> None:
    """Register queries that no driver runs, so that commands find them, and create their queues."""
    async with opened(database_url) as log:
        for each in names:
            queue, _, name = each.rpartition("/")
            if queue:
                await log.configure(queue)
            await Registry(log).register(name, ["a stream of the page"], name, sink=None, history_seconds=60)


@contextmanager
def serving(page: Path, database_url: str) -> Iterator[str]:
    """A server, if the page is about one."""
    if _SERVER in page.read_text():
        with serve_in_thread(database_url) as url:
            yield url
    else:
        yield _SERVER


@contextmanager
def receiving(page: Path) -> Iterator[str]:
    """A receiver, if the page delivers to one. It has to get a request until the end of the page."""
    if not any(_WEBHOOK in block.text for block in blocks_of(page, "python")):
        yield _WEBHOOK
        return
    received = threading.Event()

    class Receiver(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["content-length"]))
            self.send_response(204)
            self.end_headers()
            received.set()

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Receiver) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield f'Webhook("http://127.0.0.1:{server.server_port}/hook", allow=["127.0.0.1"]'
            assert received.wait(_EXAMPLE_SECONDS), f"{name_of(page)} has delivered nothing"
        finally:
            server.shutdown()


class Session:
    """One reader who goes through a page from top to bottom."""

    def __init__(self, database_url: str) -> None:
        self._database_url = database_url
        self._namespace: dict[str, Any] = {"__name__": "__main__"}

    def __enter__(self) -> Session:
        # A loop that goes on between blocks, as it does at the prompt of python -m asyncio.
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        for value in self._namespace.values():
            if isinstance(value, Penstock):
                self._run(value.close())
            elif isinstance(value, SyncPenstock):
                value.close()
            elif isinstance(value, Query):
                value.stop()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def run_python(self, block: Block) -> None:
        # As many empty lines before it as there are in the page, so that a traceback shows where it failed.
        source = "\n" * (block.line - 1) + block.text
        code: CodeType = compile(source, str(block.page), "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
        result = eval(code, self._namespace)  # noqa: S307 - it is our own
        if code.co_flags & inspect.CO_COROUTINE:
            self._run(result)

    def _run(self, coroutine: Coroutine[Any, Any, object]) -> None:
        asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(_EXAMPLE_SECONDS)

    def run_sql(self, block: Block) -> None:
        with psycopg.connect(self._database_url, autocommit=True) as connection:
            answer = self._execute(connection, block.text)
            if answer.description is not None:
                print(
                    *(" | ".join(map(cell, row)) for row in [[c.name for c in answer.description], *answer]), sep="\n"
                )

    def _execute(self, connection: psycopg.Connection, statement: str) -> psycopg.Cursor:
        """Execute a statement. The views of queries in the background exist soon."""
        deadline = time.monotonic() + _EXAMPLE_SECONDS
        while True:
            try:
                return connection.execute(statement.encode())
            except psycopg.errors.UndefinedTable:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.1)


def cell(value: object) -> str:
    """A value as psql shows it."""
    if isinstance(value, datetime):
        return value.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S+00")
    if isinstance(value, bool):
        return "t" if value else "f"
    return "" if value is None else str(value)


def ends_by_itself(command: Command) -> bool:
    """Return whether a command can run here: it is Penstock's, or a tool's, and does not run until Ctrl-C."""
    return all(
        words[1] not in _UNTIL_STOPPED or {"--available-now", "--check"} & set(words)
        if words[0] == "penstock"
        else words[0] in _TOOLS
        for words in command.simple_commands()
    )


def environment() -> dict[str, str]:
    """Return the variables of a shell in which this Python environment is activated."""
    return {**os.environ, "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])}


class BackgroundCommands:
    """Commands in other terminals of the reader, until the end of the page."""

    def __init__(self, database_url: str) -> None:
        self._database_url = database_url
        self._processes: list[subprocess.Popen[str]] = []

    def __enter__(self) -> BackgroundCommands:
        return self

    def __exit__(self, *_: object) -> None:
        for process in self._processes:
            process.send_signal(signal.SIGINT)
        for process in self._processes:
            printed = process.communicate(timeout=_START_SECONDS)[0]
            assert process.returncode in (0, *_INTERRUPTED), printed

    def accepts(self, command: Command) -> bool:
        (words, *others) = command.simple_commands()
        if others or words[0] != "penstock":
            return False
        return words[1] == "simulate" or (words[1] == "run" and len(words) == 3 and Path(words[2]).exists())

    def start(self, command: Command) -> None:
        """Start a command, and wait until it has pushed events, or the view of its query exists."""
        statement = _VIEWS if " run " in command.text else _EVENTS
        with psycopg.connect(self._database_url, autocommit=True) as connection:
            before = connection.execute(statement).fetchall()
            shell = ["bash", "-c", f"exec {command.text}"]
            process = subprocess.Popen(
                shell, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
            )
            self._processes.append(process)
            deadline = time.monotonic() + _START_SECONDS
            while connection.execute(statement).fetchall() == before:
                assert process.poll() is None, process.communicate()[0]
                assert time.monotonic() < deadline, f"{command.text} does nothing"
                time.sleep(0.1)


def run(command: Command) -> str:
    shell = ["bash", "-ec", command.text]
    # The reader confirms.
    done = subprocess.run(shell, env=environment(), input="y\n", capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{command.text}: {done.stderr}"
    return done.stdout


def assert_printed(block: Block, printed: str, expected: str) -> None:
    pattern = ".*".join(re.escape(part) for part in alike(expected).split("…"))
    assert re.fullmatch(pattern, alike(printed), re.DOTALL), f"{block} shows\n{expected}\nand it was\n{printed}"


def alike(text: str) -> str:
    """The text without what may differ from run to run: times, sizes on disk, the widths of columns."""
    text = re.sub(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(\.\d+)?Z", "TIME", text.strip())
    text = re.sub(r"[\d.]+ [kM]?B\b", "SIZE", text)
    return "\n".join(" ".join(line.split()) for line in text.splitlines())
