"""Timeout watchdog for user-defined functions: it ends the worker process when a call hangs."""

from __future__ import annotations

import faulthandler
import os
import sys
import threading
import time
from collections.abc import Callable
from typing import TypeVar

from penstock.stream.steps import Retries

_T = TypeVar("_T")

_EXIT_CODE = 75


class UdfWatchdog:
    """Ends the process when a call runs longer than the timeout. Nothing else can stop code that hangs."""

    def __init__(self, timeout_seconds: float) -> None:
        self._timeout_seconds = timeout_seconds
        self._check_seconds = min(timeout_seconds, 1.0)
        self._call_started: float | None = None
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None

    def __enter__(self) -> UdfWatchdog:
        if self._timeout_seconds:
            self._thread = threading.Thread(target=self._watch, daemon=True)
            self._set_process_timer()
            self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._thread is not None:
            self._stopped.set()
            self._thread.join()
            faulthandler.cancel_dump_traceback_later()

    def start_call(self) -> None:
        self._call_started = time.monotonic()

    def end_call(self) -> None:
        self._call_started = None

    def call_with_retries(self, call: Callable[[int], _T], retries: Retries) -> _T:
        """Call with the number of failed attempts until it returns; raise the error of the last attempt."""
        attempt = 0
        while True:
            self.start_call()
            try:
                return call(attempt)
            except Exception:
                if attempt == retries.limit:
                    raise
            finally:
                self.end_call()
            attempt += 1
            time.sleep(attempt * retries.pause_seconds)

    def _watch(self) -> None:
        while not self._stopped.wait(self._check_seconds):
            self._set_process_timer()
            started = self._call_started
            if started is not None and time.monotonic() - started > self._timeout_seconds:
                message = f"penstock: a user-defined function took longer than {self._timeout_seconds:g} s"
                print(message, file=sys.stderr, flush=True)
                os._exit(_EXIT_CODE)

    def _set_process_timer(self) -> None:
        """Set a timer outside the interpreter: a regular expression can hold the GIL, and with it this thread.

        A process has only one such timer. This one replaces those of others, such as Spark's for tracebacks.
        """
        faulthandler.dump_traceback_later(self._timeout_seconds + 2 * self._check_seconds, file=2, exit=True)
