"""The supervisor: starts several worker processes on one socket, and replaces those that die."""

from __future__ import annotations

import contextlib
import logging
import os
import selectors
import signal
import socket
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from penstock.core.errors import ConfigurationError, DatabaseError, PenstockError
from penstock.server.process.http_worker import Worker
from penstock.server.settings import ServerSettings

logger = logging.getLogger("penstock.server")

_READY = b"ready"
_STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT)
#: Errors that a worker can report before it is ready, by the prefix of its report.
_START_ERRORS: dict[bytes, type[PenstockError]] = {b"configuration:": ConfigurationError, b"database:": DatabaseError}
_MAX_REPORT_BYTES = 60_000
_MIN_BACKOFF_SECONDS, _MAX_BACKOFF_SECONDS = 0.1, 10.0
#: A worker that ran for this long did not die of a failed start.
_STABLE_SECONDS = 30.0
#: Workers that are still running this long after the time for a graceful stop are killed.
_STOP_MARGIN_SECONDS = 5.0


@dataclass(slots=True)
class _WorkerProcess:
    """A worker process, and the pipe on which it reports its state."""

    pid: int
    pipe: int
    started_at: float
    report: bytes = b""


class Supervisor:
    """Starts workers, replaces those that die, and stops all of them together."""

    def __init__(self, settings: ServerSettings, listening: socket.socket, on_ready: Callable[[], None]) -> None:
        self._settings = settings
        self._listening = listening
        self._on_ready = on_ready
        self._workers: dict[int, _WorkerProcess] = {}
        #: When to start the replacements of dead workers.
        self._restarts: list[float] = []
        self._backoff = _MIN_BACKOFF_SECONDS
        self._is_ready = False
        #: When workers that do not stop are killed; None while the supervisor is not stopping.
        self._kill_at: float | None = None
        self._start_error: PenstockError | None = None

    def run(self) -> None:
        """Supervise until told to stop, or until the first worker fails to start."""
        # Only this process holds the write end. A worker that reads EOF from the pipe has lost its supervisor.
        self._alive_pipe = os.pipe()
        with selectors.DefaultSelector() as self._selector, self._handle_signals() as wake:
            self._selector.register(wake, selectors.EVENT_READ)
            for _ in range(self._settings.workers):
                if self._kill_at is None:
                    self._start_worker()
            while self._workers or (self._restarts and self._kill_at is None):
                for key, _ in self._selector.select(self._timeout()):
                    if key.fd == wake:
                        os.read(wake, 4096)
                    else:
                        self._read_report(self._workers[key.fd])
                self._handle_timers()
        for end in self._alive_pipe:
            os.close(end)
        if self._start_error is not None:
            raise self._start_error

    def _start_worker(self) -> None:
        ours, theirs = os.pipe()
        # Signals are blocked until the child is registered, so that a stop reaches it.
        signal.pthread_sigmask(signal.SIG_BLOCK, _STOP_SIGNALS)
        try:
            pid = os.fork()
            if pid == 0:
                os.close(ours)
                _, write_end = self._alive_pipe
                os.close(write_end)
                self._run_worker(theirs)
            os.close(theirs)
            self._workers[ours] = _WorkerProcess(pid, ours, time.monotonic())
            self._selector.register(ours, selectors.EVENT_READ)
        finally:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, _STOP_SIGNALS)

    def _run_worker(self, pipe: int) -> None:
        """Run a worker in the child process; never returns."""
        code = 1
        try:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            signal.signal(signal.SIGINT, signal.SIG_IGN)
            signal.signal(signal.SIGHUP, signal.SIG_IGN)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, _STOP_SIGNALS)
            self._selector.close()
            for other in self._workers:
                os.close(other)

            def report_ready() -> None:
                os.write(pipe, _READY)

            read_end, _ = self._alive_pipe
            Worker(self._settings, self._listening, report_ready, read_end).run()
            code = 0
        except PenstockError as error:
            prefix = b"configuration:" if isinstance(error, ConfigurationError) else b"database:"
            os.write(pipe, prefix + str(error).encode()[:_MAX_REPORT_BYTES])
        except BaseException:
            traceback.print_exc()
        finally:
            with contextlib.suppress(Exception):
                sys.stderr.flush()
            os._exit(code)

    def _read_report(self, worker: _WorkerProcess) -> None:
        data = os.read(worker.pipe, 65_536)
        if data:
            worker.report += data
            if worker.report == _READY and not self._is_ready and self._kill_at is None:
                self._is_ready = True
                self._on_ready()
            return
        self._selector.unregister(worker.pipe)
        os.close(worker.pipe)
        del self._workers[worker.pipe]
        _, status = os.waitpid(worker.pid, 0)
        if self._kill_at is None:
            self._handle_death(worker, os.waitstatus_to_exitcode(status))

    def _handle_death(self, worker: _WorkerProcess, code: int) -> None:
        """Schedule a replacement; before any worker was ready, give up instead."""
        if not self._is_ready:
            self._start_error = _to_start_error(worker.report, code)
            self._stop()
            return
        logger.error("a worker died and is replaced", extra={"pid": worker.pid, "exit_code": code})
        now = time.monotonic()
        if now - worker.started_at >= _STABLE_SECONDS:
            self._backoff = _MIN_BACKOFF_SECONDS
        self._restarts.append(now + self._backoff)
        self._backoff = min(self._backoff * 2, _MAX_BACKOFF_SECONDS)

    def _handle_timers(self) -> None:
        now = time.monotonic()
        if self._kill_at is not None:
            if now >= self._kill_at:
                self._signal_workers(signal.SIGKILL)
            return
        due = [at for at in self._restarts if at <= now]
        self._restarts = [at for at in self._restarts if at > now]
        for _ in due:
            self._start_worker()

    def _timeout(self) -> float | None:
        timers = self._restarts if self._kill_at is None else [self._kill_at]
        return max(0.0, min(timers) - time.monotonic()) if timers else None

    def _stop(self) -> None:
        """Stop the workers gracefully; at the second call, kill them."""
        if self._kill_at is None:
            self._kill_at = time.monotonic() + self._settings.stop_seconds + _STOP_MARGIN_SECONDS
            # New connections are refused once the workers have closed the socket too.
            self._listening.close()
            self._signal_workers(signal.SIGTERM)
        else:
            self._signal_workers(signal.SIGKILL)

    def _signal_workers(self, signum: signal.Signals) -> None:
        for worker in self._workers.values():
            # The process was not waited for, so no other process has its id.
            with contextlib.suppress(ProcessLookupError):
                os.kill(worker.pid, signum)

    @contextlib.contextmanager
    def _handle_signals(self) -> Iterator[int]:
        """Stop on SIGTERM and Ctrl-C; yield a file descriptor that becomes readable at a signal."""
        read, write = os.pipe()
        os.set_blocking(write, False)
        os.set_blocking(read, False)
        previous_fd = signal.set_wakeup_fd(write)
        previous = {signum: signal.signal(signum, lambda *_: self._stop()) for signum in _STOP_SIGNALS}
        try:
            yield read
        finally:
            for signum, handler in previous.items():
                signal.signal(signum, handler)
            signal.set_wakeup_fd(previous_fd)
            os.close(read)
            os.close(write)


def _to_start_error(report: bytes, code: int) -> PenstockError:
    for prefix, error in _START_ERRORS.items():
        if report.startswith(prefix):
            return error(report[len(prefix) :].decode(errors="replace"))
    return PenstockError(f"a worker exited with code {code} before it was ready: see the log above")
