"""The faults: each is injected, then undone, and returns its target."""

from __future__ import annotations

import os
import shutil
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
import psycopg

from chaos.disk import Disk
from chaos.plan import Fault
from chaos.process import Process
from chaos.proxy import Proxy
from chaos.system import System

if TYPE_CHECKING:
    from tests.engine.spark_cluster import SparkCluster

_FAR_SECONDS = 0.15
_JUMP_SECONDS = 45.0
_CHECKPOINTS = "penstock-checkpoint-"
#: On a cluster, the share of Python process targets that belong to executors.
_OF_EXECUTORS = 0.8


class Impossible(Exception):
    """The fault is not possible here, or has no target now."""


class Faults:
    """All faults by name."""

    def __init__(self, system: System) -> None:
        self._system = system
        self._duplicates = 0
        #: Masters and workers are killed and started one at a time.
        self._daemons = threading.Lock()

    def do(self, fault: Fault) -> str:
        """Inject a fault, wait for its duration, undo it, and return its target."""
        return self._done(fault.kind)(fault)

    def _done(self, kind: str) -> Callable[[Fault], str]:
        part, _, how = kind.rpartition(" ")
        simple = {
            "server": "server",
            "driver": "driver",
            "standby": "standby",
            "webhook sink": "webhook",
            "file sink": "file",
            "receiver": "receiver",
            "producer": "producer",
            "consumer": "consumer",
        }
        if part in simple and how in ("killed", "paused"):
            return self._kill(simple[part]) if how == "killed" else self._pause(simple[part])
        name = "_" + kind.lower().replace("'", "").replace(" ", "_")
        found: Callable[[Fault], str] = getattr(self, name)
        return found

    # Processes

    def _kill(self, start: str) -> Callable[[Fault], str]:
        def kill(fault: Fault) -> str:
            process = self._one(start, fault)
            process.kill(after_seconds=fault.seconds)
            return process.name

        return kill

    def _pause(self, start: str) -> Callable[[Fault], str]:
        def pause(fault: Fault) -> str:
            process = self._one(start, fault)
            return f"{process.name}, {_paused(process.family(), fault.seconds)} processes"

        return pause

    def _one(self, start: str, fault: Fault) -> Process:
        found = [process for name, process in self._system.processes.items() if name.startswith(start) and process.runs]
        if not found:
            raise Impossible(f"no {start} runs now")
        return found[int(fault.draw * len(found))]

    def _of(self, process: Process, what: Callable[[psutil.Process], bool], fault: Fault) -> psutil.Process:
        found = []
        for each in process.family()[1:]:
            with suppress(psutil.Error):
                if what(each):
                    found.append(each)
        if not found:
            raise Impossible(f"{process.name} has no such process now")
        return sorted(found, key=lambda each: each.pid)[int(fault.draw * len(found))]

    def _server_worker(self, fault: Fault) -> psutil.Process:
        return self._of(self._one("server", fault), lambda each: True, fault)

    def _server_worker_killed(self, fault: Fault) -> str:
        worker = self._server_worker(fault)
        worker.kill()
        return f"worker {worker.pid}"

    def _server_worker_paused(self, fault: Fault) -> str:
        worker = self._server_worker(fault)
        _paused([worker], fault.seconds)
        return f"worker {worker.pid}"

    def _leader(self) -> Process:
        """Return the driver that runs the first query, otherwise any driver."""
        with suppress(psycopg.Error), psycopg.connect(self._system.postgres.url, connect_timeout=3) as conn:
            rows = conn.execute("SELECT driver FROM penstock.queries WHERE lease_until > clock_timestamp()").fetchall()
            for (driver,) in rows:
                for process in self._system.processes.values():
                    if process.runs and str(driver).endswith(f":{process.pid}"):
                        return process
        return self._system.processes["driver"]

    def _jvm(self, fault: Fault) -> psutil.Process:
        return self._of(self._leader(), lambda each: each.name() == "java", fault)

    def _drivers_jvm_killed(self, fault: Fault) -> str:
        jvm = self._jvm(fault)
        jvm.kill()
        return f"JVM {jvm.pid}"

    def _drivers_jvm_paused(self, fault: Fault) -> str:
        jvm = self._jvm(fault)
        _paused([jvm], fault.seconds)
        return f"JVM {jvm.pid}"

    def _sparks_python(self, fault: Fault) -> psutil.Process:
        """Return a Python worker of the driver or, on a cluster, of an executor."""
        executors = self._executors() if self._system.cluster is not None else []
        found = [each for executor in executors for each in _children(executor) if _is_sparks_python(each)]
        if found and fault.draw < _OF_EXECUTORS:
            return found[int(fault.draw / _OF_EXECUTORS * len(found))]
        return self._of(self._leader(), _is_sparks_python, fault)

    def _sparks_python_killed(self, fault: Fault) -> str:
        worker = self._sparks_python(fault)
        name = " ".join(worker.cmdline()[1:3])
        worker.kill()
        return name

    def _sparks_python_paused(self, fault: Fault) -> str:
        worker = self._sparks_python(fault)
        name = " ".join(worker.cmdline()[1:3])
        _paused([worker], fault.seconds)
        return name

    def _both_drivers_killed(self, fault: Fault) -> str:
        names = [name for name in ("driver", "standby") if name in self._system.processes]
        for name in names:
            self._system.processes[name].kill(after_seconds=fault.seconds)
        return ", ".join(names)

    def _duplicate_driver(self, fault: Fault) -> str:
        self._duplicates += 1
        name = f"duplicate-{self._duplicates}"
        self._system.start_driver(name)
        time.sleep(fault.seconds)
        self._system.drop(name)
        return name

    def _checkpoint_deleted(self, fault: Fault) -> str:
        """Remove the state directories of Spark's driver, found by its lock files."""
        leader, gone = self._leader(), set()
        for file in Path(f"/proc/{leader.pid}/fd").iterdir():
            with suppress(OSError):
                target = Path(os.readlink(file))
                if target.parent.name.startswith(_CHECKPOINTS):
                    gone.add(target.parent)
        for directory in gone:
            shutil.rmtree(directory, ignore_errors=True)
        if not gone:
            raise Impossible("no driver has a checkpoint now")
        return f"{len(gone)} of {leader.name}"

    # The cluster

    def _cluster(self) -> SparkCluster:
        if self._system.cluster is None:
            raise Impossible("there is no cluster; --cluster starts one")
        return self._system.cluster

    def _executors(self) -> list[psutil.Process]:
        cluster = self._cluster()
        return [each for index in range(len(cluster.workers)) for each in cluster.executors(index)]

    def _executor(self, fault: Fault) -> psutil.Process:
        found = self._executors()
        if not found:
            raise Impossible("no executor runs now")
        return found[int(fault.draw * len(found))]

    def _executor_killed(self, fault: Fault) -> str:
        executor = self._executor(fault)
        executor.kill()
        return f"executor {executor.pid}"

    def _executor_paused(self, fault: Fault) -> str:
        executor = self._executor(fault)
        return f"executor {executor.pid}, {_paused([executor, *_children(executor)], fault.seconds)} processes"

    def _spark_worker(self, fault: Fault) -> int:
        workers = self._cluster().workers
        running = [index for index, worker in enumerate(workers) if worker.process.poll() is None]
        if not running:
            raise Impossible("no worker runs now")
        return running[int(fault.draw * len(running))]

    def _spark_worker_killed(self, fault: Fault) -> str:
        with self._daemons:
            index = self._spark_worker(fault)
            self._cluster().kill_worker(index)
            self._cluster().start_worker()
        return f"worker {index + 1}"

    def _spark_worker_paused(self, fault: Fault) -> str:
        """Its executors continue and report to the driver."""
        index = self._spark_worker(fault)
        _paused([psutil.Process(self._cluster().workers[index].pid)], fault.seconds)
        return f"worker {index + 1}"

    def _spark_master_killed(self, fault: Fault) -> str:
        cluster = self._cluster()
        with self._daemons:
            cluster.kill_master()
            time.sleep(fault.seconds)
            cluster.start_master()
        return f"start {len(cluster.masters)}"

    def _receiver_fails(self, fault: Fault) -> str:
        moods = ("busy", "broken", "silent", "rude")
        mood = moods[int(fault.draw * len(moods))]
        self._system.mood.write_text(mood)
        time.sleep(fault.seconds)
        self._system.mood.write_text("")
        return mood

    # PostgreSQL

    def _postgresql_restarted(self, fault: Fault) -> str:
        return self._postgresql_again(lambda: self._system.postgres.stop("fast"), fault)

    def _postgresql_stopped_at_once(self, fault: Fault) -> str:
        return self._postgresql_again(lambda: self._system.postgres.stop("immediate"), fault)

    def _postgresql_killed(self, fault: Fault) -> str:
        return self._postgresql_again(self._system.postgres.kill, fault)

    def _postgresql_again(self, end: Callable[[], None], fault: Fault) -> str:
        end()
        time.sleep(fault.seconds)
        self._system.postgres.start()
        return f"start {self._system.postgres.starts}"

    def _postgresql_paused(self, fault: Fault) -> str:
        return f"{_paused(self._system.postgres.family(), fault.seconds)} processes"

    def _backend_killed(self, fault: Fault) -> str:
        """PostgreSQL then ends all other processes and recovers."""
        backends = self._system.postgres.backends()
        if not backends:
            raise Impossible("nobody is connected now")
        backends[int(fault.draw * len(backends))].kill()
        return f"one of {len(backends)}"

    def _disk_of_postgresql_full(self, fault: Fault) -> str:
        return self._full(self._system.disk, fault)

    def _disk_of_the_file_sink_full(self, fault: Fault) -> str:
        return self._full(self._system.sink_disk, fault)

    def _full(self, disk: Disk, fault: Fault) -> str:
        if not disk.can_be_filled:
            raise Impossible("no file system can be mounted here")
        until = time.monotonic() + fault.seconds
        try:
            disk.fill()
            while time.monotonic() < until:
                time.sleep(0.2)
                disk.refill()
        finally:
            disk.free()
        return str(disk.path.name)

    def _clock_put_forward(self, fault: Fault) -> str:
        return self._jump(fault.draw * _JUMP_SECONDS)

    def _clock_put_back(self, fault: Fault) -> str:
        # Leases last longer by this much and gates release nothing, so the shift is short.
        return self._jump(-fault.draw * _JUMP_SECONDS / 5)

    def _jump(self, seconds: float) -> str:
        if not self._system.clock.can_be_moved:
            raise Impossible("there is no C compiler to make the library that moves the clock")
        self._system.clock.jump(seconds)
        return f"by {seconds:+.1f} s"

    def _transaction_held(self, fault: Fault) -> str:
        with suppress(psycopg.Error), psycopg.connect(self._system.postgres.url, connect_timeout=3) as conn:
            conn.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
            conn.execute("SELECT pg_current_xact_id(), count(*) FROM penstock.positions")
            time.sleep(fault.seconds)
            conn.rollback()
            return "with a snapshot"
        return "it was cut off itself"

    # In between

    def _connections_to_postgresql_cut(self, fault: Fault) -> str:
        self._system.database.cut()
        return "all"

    def _connections_to_the_server_cut(self, fault: Fault) -> str:
        self._system.web.cut()
        return "all"

    def _postgresql_out_of_reach(self, fault: Fault) -> str:
        return _refused(self._system.database, fault)

    def _server_out_of_reach(self, fault: Fault) -> str:
        return _refused(self._system.web, fault)

    def _postgresql_far_away(self, fault: Fault) -> str:
        return _delayed(self._system.database, fault)

    def _server_far_away(self, fault: Fault) -> str:
        return _delayed(self._system.web, fault)

    def _postgresql_silent(self, fault: Fault) -> str:
        return _frozen(self._system.database, fault)

    def _server_silent(self, fault: Fault) -> str:
        return _frozen(self._system.web, fault)


def _is_sparks_python(process: psutil.Process) -> bool:
    with suppress(psutil.Error):
        return any("pyspark" in part for part in process.cmdline()[1:4])
    return False


def _children(process: psutil.Process) -> list[psutil.Process]:
    with suppress(psutil.Error):
        return sorted(process.children(recursive=True), key=lambda each: each.pid)
    return []


def _paused(processes: Sequence[psutil.Process], seconds: float) -> int:
    paused = []
    try:
        for process in processes:
            with suppress(psutil.NoSuchProcess):
                process.suspend()
                paused.append(process)
        time.sleep(seconds)
    finally:
        for process in paused:
            with suppress(psutil.NoSuchProcess):
                process.resume()
    return len(paused)


def _refused(proxy: Proxy, fault: Fault) -> str:
    proxy.refuse(True)
    time.sleep(fault.seconds)
    proxy.refuse(False)
    return proxy.name


def _delayed(proxy: Proxy, fault: Fault) -> str:
    seconds = fault.draw * _FAR_SECONDS
    proxy.delay(seconds)
    time.sleep(fault.seconds)
    proxy.delay(0)
    return f"{proxy.name}, by {seconds * 1000:.0f} ms each way"


def _frozen(proxy: Proxy, fault: Fault) -> str:
    proxy.freeze(True)
    time.sleep(fault.seconds)
    proxy.freeze(False)
    return proxy.name
