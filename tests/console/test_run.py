"""The process of the console, alone and as a child of the server."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import psutil
import pytest
from typer.testing import CliRunner

from penstock.cli.app import app

pytestmark = pytest.mark.slow


def start(database_url: str, *arguments: str) -> subprocess.Popen[str]:
    environment = {**os.environ, "PENSTOCK_DATABASE_URL": database_url}
    command = [sys.executable, "-m", "penstock", *arguments]
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


@contextmanager
def served(database_url: str, *options: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """Run a server with a console, and yield the process and the URL of the console."""
    ports = ("--port", "0", "--console", "--console-port", "0")
    process = start(database_url, "serve", *ports, "--request-log", "none", *options)
    assert process.stdout is not None
    try:
        lines = dict(process.stdout.readline().strip().split(" on ") for _ in range(2))
        yield process, lines["Console"]
    finally:
        process.kill()
        process.communicate()


def test_ctrl_c_stops_console_without_output(database_url: str) -> None:
    process = start(database_url, "console", "--port", "0")
    assert process.stdout is not None
    assert process.stdout.readline().startswith("Console on http://127.0.0.1:")
    process.send_signal(signal.SIGINT)
    _, stderr = process.communicate(timeout=60)
    assert (process.returncode, stderr) == (0, "")


def test_public_address_needs_an_api_key(database_url: str) -> None:
    process = start(database_url, "console", "--port", "0", "--host", "0.0.0.0")  # noqa: S104 - the test expects an error
    stdout, stderr = process.communicate(timeout=60)
    assert process.returncode == 2
    assert stdout == ""
    assert "penstock key create" in stderr


def test_missing_extra_names_the_package_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "nicegui", None)
    result = CliRunner().invoke(app, ["console"])
    assert result.exit_code == 2
    assert "pip install '.[console]'" in result.stderr


def test_console_of_a_server_with_tokens_needs_no_api_key_to_start(database_url: str, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("a secret that is long enough to sign tokens with")
    options = ("--require-access", "--jwt-secret-file", str(tmp_path / "secret"))
    with served(database_url, *options) as (_, url):
        response = httpx.get(url, follow_redirects=True)
        assert response.status_code == 200
        assert "penstock key create" in response.text


@pytest.mark.parametrize("signal_number", [signal.SIGTERM, signal.SIGKILL], ids=["stopped", "killed"])
def test_console_ends_with_its_server(database_url: str, signal_number: signal.Signals) -> None:
    with served(database_url) as (server, url):
        assert httpx.get(url).status_code == 200
        server.send_signal(signal_number)
        # The pipe closes when the last process that holds it exits.
        server.communicate(timeout=60)
        with pytest.raises(httpx.ConnectError):
            httpx.get(url)


def test_server_restarts_a_crashed_console(database_url: str) -> None:
    with served(database_url) as (server, url):
        assert server.stdout is not None
        (console,) = (child for child in psutil.Process(server.pid).children() if "console" in child.cmdline())
        console.kill()
        again = server.stdout.readline().strip().removeprefix("Console on ")
        assert again != url, "the console did not exit"
        assert httpx.get(again).status_code == 200
        server.terminate()
        _, log = server.communicate(timeout=60)
        assert server.returncode == 0
        with pytest.raises(httpx.ConnectError):
            httpx.get(again)
    (line,) = (json.loads(line) for line in log.splitlines() if "penstock.companion" in line)
    assert line["message"] == "console exited with an error and is restarted"
    assert (line["pid"], line["exit_code"]) == (console.pid, -signal.SIGKILL)


@pytest.mark.parametrize(
    ("variable", "value", "message"),
    [
        ("PENSTOCK_CONSOLE_SECRET", "short", "PENSTOCK_CONSOLE_SECRET is too short"),
        ("PENSTOCK_CONSOLE_PORT", "http", "PENSTOCK_CONSOLE_PORT is 'http'"),
    ],
)
def test_invalid_settings_are_refused(variable: str, value: str, message: str) -> None:
    result = CliRunner().invoke(app, ["console"], env={variable: value})
    assert result.exit_code == 2
    assert message in result.stderr
