"""Injects the faults of a plan on schedule."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext

from chaos.faults import Faults, Impossible
from chaos.plan import Fault
from chaos.system import System

#: PostgreSQL is not stopped while it starts.
_ONE_AT_A_TIME = ("PostgreSQL killed", "PostgreSQL restarted", "PostgreSQL stopped at once", "PostgreSQL paused")


class Done:
    """An injected fault: its time and target, or why it was skipped."""

    def __init__(self, fault: Fault) -> None:
        self.fault = fault
        self.began = 0.0
        self.ended = 0.0
        self.hit = ""
        self.problem = ""

    def document(self) -> dict[str, object]:
        """A line of the report."""
        return {
            "at": round(self.began, 1),
            "until": round(self.ended, 1),
            "fault": self.fault.kind,
            "hit": self.hit,
            **({"not_done": self.problem} if self.problem else {}),
        }


class Schedule(threading.Thread):
    """Does the faults of a plan when their time comes, each in a thread of its own."""

    def __init__(self, system: System, faults: Sequence[Fault], log: Callable[[str], None]) -> None:
        super().__init__(daemon=True)
        self._faults = Faults(system)
        self._log = log
        self._began = 0.0
        self._postgres = threading.Lock()
        self.done = [Done(fault) for fault in faults]

    def run(self) -> None:
        """Inject all faults and wait for the last one."""
        self._began = time.monotonic()
        threads = []
        for done in self.done:
            time.sleep(max(0.0, self._began + done.fault.at - time.monotonic()))
            thread = threading.Thread(target=self._do, args=(done,), daemon=True)
            thread.start()
            threads.append(thread)
        for thread in threads:
            thread.join()

    def _do(self, done: Done) -> None:
        done.began = time.monotonic() - self._began
        try:
            with self._postgres if done.fault.kind in _ONE_AT_A_TIME else nullcontext():
                done.hit = self._faults.do(done.fault)
        except Impossible as error:
            done.problem = str(error)
        except Exception as error:  # a fault that cannot be injected is reported and does not end the run
            done.problem = f"{type(error).__name__}: {error}"
        done.ended = time.monotonic() - self._began
        self._log(f"{done.began:6.1f} s  {done.fault.kind}: {done.problem or done.hit} (until {done.ended:.1f} s)")
