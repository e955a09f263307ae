"""Starts, kills and pauses drivers in processes of their own."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

import psutil

from tests.engine.crash.orders import eventually

ROOT = Path(__file__).parents[3]

#: Enough for a few cycles.
_SMALL = {"spark.driver.memory": "1g"}


class Driver:
    """A driver and its JVM in a process group of their own, which write to ``log``."""

    def __init__(
        self,
        url: str,
        log: Path,
        *,
        fault: list[Any] | None = None,
        master: str = "local[2]",
        conf: dict[str, str] | None = None,
        **options: Any,
    ) -> None:
        self.log = log
        options = {"interval_seconds": 0, "master": master, "spark_conf": _SMALL | (conf or {}), **options}
        with log.open("wb") as output:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "tests.engine.crash.driver", url, json.dumps(fault or []), json.dumps(options)],
                cwd=ROOT,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                env=os.environ | {"PYTHONUNBUFFERED": "1"},
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    @property
    def pid(self) -> int:
        return self.process.pid

    def kill(self) -> None:
        """Kill Python and the JVM. The Python workers end by themselves."""
        children = self._children()
        self.signal(signal.SIGKILL)
        self.process.wait()
        _, alive = psutil.wait_procs(children, timeout=30)
        for process in alive:
            with suppress(psutil.NoSuchProcess):
                process.kill()

    def pause(self) -> None:
        self.signal(signal.SIGSTOP)

    def resume(self) -> None:
        self.signal(signal.SIGCONT)

    @property
    def jvm(self) -> psutil.Process:
        return next(child for child in self._children() if child.name() == "java")

    def terminate(self) -> None:
        """Send SIGTERM to Python only, as a supervisor does."""
        os.kill(self.pid, signal.SIGTERM)

    def signal(self, number: signal.Signals) -> None:
        if self.process.poll() is None:
            with suppress(ProcessLookupError):
                os.killpg(self.pid, number)

    def wait_until_logged(self, pattern: str, *, timeout: float = 240) -> None:
        def is_logged() -> bool:
            if re.search(pattern, self.text()):
                return True
            assert self.process.poll() is None, f"the driver has ended:\n{self.text()}"
            return False

        eventually(is_logged, timeout=timeout, what=f"{pattern!r} in\n{self.text()}")

    def wait_until_paused(self) -> None:
        eventually(lambda: psutil.Process(self.pid).status() == psutil.STATUS_STOPPED, what="the driver is stopped")

    def wait_until_dead(self, *, timeout: float = 240) -> None:
        """Wait until the driver was killed by its fault."""
        self.process.wait(timeout)
        assert self.process.returncode == -signal.SIGKILL, self.text()

    def states(self) -> list[str]:
        return re.findall(r"^state: (.*)$", self.text(), re.MULTILINE)

    def text(self) -> str:
        return self.log.read_text(errors="replace")

    def _children(self) -> list[psutil.Process]:
        with suppress(psutil.NoSuchProcess):
            return psutil.Process(self.pid).children(recursive=True)
        return []
