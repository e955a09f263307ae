"""Several workers on one port, and one process that sees to it that they run."""

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
from penstock.server.process.worker import Worker
from penstock.server.settings import ServerSettings

logger = logging.getLogger("penstock.server")

_READY = b"ready"
_STOPS = (signal.SIGTERM, signal.SIGINT)
#: What a worker that could not start says first, and the error that it means.
_FAILURES: dict[bytes, type[PenstockError]] = {b"configuration:": ConfigurationError, b"database:": DatabaseError}
_FIRST_PAUSE, _LONGEST_PAUSE = 0.1, 10.0
#: A worker that has run for so long died of something else than its start.
_STEADY_SECONDS = 30.0
#: How long after the time that a stop may take a worker is still waited for.
_STOP_MARGIN_SECONDS = 5.0


@dataclass(slots=True)
class _Child:
    """A worker's process, and the pipe on which it says how it is."""

    pid: int
    pipe: int
    started: float
    said: bytes = b""


class Supervisor:
    """Starts the workers, starts those anew that die, and stops them together."""

    def __init__(self, settings: ServerSettings, listening: socket.socket, ready: Callable[[], None]) -> None:
        self._settings = settings
        self._listening = listening
        self._ready = ready
        self._children: dict[int, _Child] = {}
        self._pauses: list[tuple[float, float]] = []
        self._pause = _FIRST_PAUSE
        self._is_ready = False
        self._stops_at: float | None = None
        self._failure: PenstockError | None = None

    def run(self) -> None:
        """Supervise until told to stop, or until the workers cannot even start."""
        # Held for as long as this process lives: a worker that reads its end knows that it is alone.
        self._alive = os.pipe()
        with selectors.DefaultSelector() as self._selector, self._signals() as wake:
            self._selector.register(wake, selectors.EVENT_READ)
            for _ in range(self._settings.workers):
                if self._stops_at is None:
                    self._start()
            while self._children or (self._pauses and self._stops_at is None):
                for key, _ in self._selector.select(self._timeout()):
                    if key.fd == wake:
                        os.read(wake, 4096)
                    else:
                        self._hear(self._children[key.fd])
                self._see_to_the_late()
        for end in self._alive:
            os.close(end)
        if self._failure is not None:
            raise self._failure

    def _start(self) -> None:
        ours, theirs = os.pipe()
        # Whoever is told to stop has to know of all that he is to stop.
        signal.pthread_sigmask(signal.SIG_BLOCK, _STOPS)
        try:
            pid = os.fork()
            if pid == 0:
                os.close(ours)
                os.close(self._alive[1])
                self._become_worker(theirs)
            os.close(theirs)
            self._children[ours] = _Child(pid, ours, time.monotonic())
            self._selector.register(ours, selectors.EVENT_READ)
        finally:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, _STOPS)

    def _become_worker(self, pipe: int) -> None:
        """Be a worker, and never come back."""
        code = 1
        try:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            signal.signal(signal.SIGINT, signal.SIG_IGN)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, _STOPS)
            self._selector.close()
            for other in self._children:
                os.close(other)

            def ready() -> None:
                os.write(pipe, _READY)

            Worker(self._settings, self._listening, ready, self._alive[0]).run()
            code = 0
        except PenstockError as error:
            kind = b"configuration:" if isinstance(error, ConfigurationError) else b"database:"
            os.write(pipe, kind + str(error).encode()[:60_000])
        except BaseException:
            traceback.print_exc()
        finally:
            with contextlib.suppress(Exception):
                sys.stderr.flush()
            os._exit(code)

    def _hear(self, child: _Child) -> None:
        said = os.read(child.pipe, 65_536)
        if said:
            child.said += said
            if child.said == _READY and not self._is_ready and self._stops_at is None:
                self._is_ready = True
                self._ready()
            return
        self._selector.unregister(child.pipe)
        os.close(child.pipe)
        del self._children[child.pipe]
        _, status = os.waitpid(child.pid, 0)
        if self._stops_at is None:
            self._bury(child, os.waitstatus_to_exitcode(status))

    def _bury(self, child: _Child, code: int) -> None:
        """Have a worker that died replaced; where none has ever run, that would be in vain."""
        if not self._is_ready:
            self._failure = _failure(child.said, code)
            self._stop()
            return
        logger.error("a worker died and is replaced", extra={"pid": child.pid, "exit_code": code})
        if time.monotonic() - child.started >= _STEADY_SECONDS:
            self._pause = _FIRST_PAUSE
        self._pauses.append((time.monotonic() + self._pause, self._pause))
        self._pause = min(self._pause * 2, _LONGEST_PAUSE)

    def _see_to_the_late(self) -> None:
        now = time.monotonic()
        if self._stops_at is not None:
            if now >= self._stops_at:
                self._end(signal.SIGKILL)
            return
        due = [pause for pause in self._pauses if pause[0] <= now]
        self._pauses = [pause for pause in self._pauses if pause[0] > now]
        for _ in due:
            self._start()

    def _timeout(self) -> float | None:
        moments = [at for at, _ in self._pauses] if self._stops_at is None else [self._stops_at]
        return max(0.0, min(moments) - time.monotonic()) if moments else None

    def _stop(self) -> None:
        if self._stops_at is None:
            self._stops_at = time.monotonic() + self._settings.stop_seconds + _STOP_MARGIN_SECONDS
            # Nobody takes new connections any more, once the workers have let go of it too.
            self._listening.close()
            self._end(signal.SIGTERM)
        else:
            self._end(signal.SIGKILL)

    def _end(self, how: signal.Signals) -> None:
        for child in self._children.values():
            # Not waited for yet, so the number is still its own.
            with contextlib.suppress(ProcessLookupError):
                os.kill(child.pid, how)

    @contextlib.contextmanager
    def _signals(self) -> Iterator[int]:
        """Stop on SIGTERM and Ctrl-C; gives what can be read when one arrives."""
        read, write = os.pipe()
        os.set_blocking(write, False)
        os.set_blocking(read, False)
        before = signal.set_wakeup_fd(write)
        handlers = {each: signal.signal(each, lambda *_: self._stop()) for each in _STOPS}
        try:
            yield read
        finally:
            for each, handler in handlers.items():
                signal.signal(each, handler)
            signal.set_wakeup_fd(before)
            os.close(read)
            os.close(write)


def _failure(said: bytes, code: int) -> PenstockError:
    for kind, error in _FAILURES.items():
        if said.startswith(kind):
            return error(said[len(kind) :].decode(errors="replace"))
    return PenstockError(f"a worker ended with {code} before it could start: the lines above say more")
