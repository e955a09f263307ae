"""Start of the server: errors that it reports, TLS, and its stop."""

from __future__ import annotations

import os
import signal
import ssl
import subprocess
import sys
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest

from tests.cli.command_line import CommandLine
from tests.server.server_process import RunningServer, run_server

pytestmark = pytest.mark.slow


def fail_to_start(*options: str, **environ: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, **environ}
    command = [sys.executable, "-m", "penstock", "serve", "--port", "0", *options]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.parametrize("workers", ["1", "2"])
def test_start_fails_without_a_database(workers: str) -> None:
    failed = fail_to_start("--workers", workers, PENSTOCK_DATABASE_URL="postgresql://localhost:1/nowhere")
    assert failed.returncode == 4
    assert "error: PostgreSQL cannot be reached" in failed.stderr
    assert "Traceback" not in failed.stderr


def test_start_beyond_loopback_needs_a_key(database_url: str) -> None:
    failed = fail_to_start("--host", "0.0.0.0", PENSTOCK_DATABASE_URL=database_url)  # noqa: S104
    assert failed.returncode == 2
    assert "penstock key create" in failed.stderr
    assert "travel unencrypted" in failed.stderr


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--tls-cert", "pyproject.toml"], "TLS needs both"),
        (["--tls-cert", "nowhere.pem", "--tls-key", "nowhere.key"], "there is no such file"),
        (["--cors-origin", "*"], "is not an origin"),
        (["--request-log", "some"], "it must be one of all, errors, none"),
        (["--host", "no.such.host.invalid"], "cannot listen on host"),
    ],
)
def test_invalid_settings_are_reported_at_start(options: list[str], message: str) -> None:
    ended = CommandLine("postgresql://localhost:1/nowhere")("serve", "--port", "0", *options)
    assert ended.exit_code == 2
    assert message in " ".join(ended.stderr.split())


def test_used_port_is_reported(shared_server: RunningServer) -> None:
    port = str(urlsplit(shared_server.url).port)
    ended = CommandLine("postgresql://localhost:1/nowhere")("serve", "--port", port)
    assert ended.exit_code == 2
    assert f"cannot listen on port {port} of 127.0.0.1" in " ".join(ended.stderr.split())


def test_https_and_stop_on_sigterm(shared_url: str, tmp_path: Path) -> None:
    cert, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    subject = ["-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1"]
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]
    subprocess.run([*command, "-keyout", key, "-out", cert, "-days", "1", *subject], check=True, capture_output=True)
    with run_server(shared_url, ["--tls-cert", str(cert), "--tls-key", str(key)]) as running:
        assert running.url.startswith("https://")
        assert httpx.get(f"{running.url}/healthz", verify=ssl.create_default_context(cafile=cert)).status_code == 200
        with pytest.raises(httpx.ConnectError):
            httpx.get(f"{running.url}/healthz")
        running.process.terminate()
        assert running.process.wait(20) == 0


def test_second_signal_exits_at_once(shared_url: str) -> None:
    with run_server(shared_url) as running:
        running.process.send_signal(signal.SIGINT)
        running.process.send_signal(signal.SIGTERM)
        assert running.process.wait(20) == 1


@pytest.mark.parametrize("options", [(), ("--workers", "2")], ids=["one worker", "two workers"])
def test_a_closed_terminal_stops_the_server(shared_url: str, options: tuple[str, ...]) -> None:
    with run_server(shared_url, options) as running:
        running.process.send_signal(signal.SIGHUP)
        assert running.process.wait(20) == 0
