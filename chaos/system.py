"""The system: PostgreSQL, server, drivers, sinks, producers and consumers as separate processes."""

from __future__ import annotations

import os
import shutil
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from chaos import consumer, producer
from chaos.clock import DatabaseClock
from chaos.disk import Disk
from chaos.http_client import NoResponse, Server
from chaos.plan import Plan
from chaos.postgres import Postgres
from chaos.process import ROOT, Process
from chaos.proxy import Proxy

if TYPE_CHECKING:
    from tests.engine.spark_cluster import SparkCluster

QUEUES = {"orders": "key", "clicks": "hash", "calls": "key", "approved": "key", "totals": "hash"}
#: What is Penstock's, in the order in which it is stopped, and how long each may take to end.
_OURS = ("driver", "standby", "webhook", "file", "server")
_STOP_SECONDS = 60.0
_DISK_MEGABYTES = 512
_SINK_MEGABYTES = 64
#: A worker of the cluster that is not heard of for so long is lost, and so is what a new master waits for.
_LOST_SECONDS = 20
_QUICK_JVM = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"


class System:
    """All processes, and the threads that restart them."""

    def __init__(self, plan: Plan, directory: Path) -> None:
        self.plan = plan
        #: Journals and logs, which stay.
        self.directory = directory
        #: Files of the system itself, which go. Its path is short, for sockets.
        self.home = Path(tempfile.mkdtemp(prefix="chaos-"))
        self.home.chmod(0o755)
        self.stop_file = directory / "stop"
        self.mood = directory / "receiver.mood"
        self.sink_file = self.home / "sink" / "totals.jsonl"
        self.clock = DatabaseClock(self.home)
        self.disk = Disk(self.home / "pg", _DISK_MEGABYTES)
        self.sink_disk = Disk(self.home / "sink", _SINK_MEGABYTES)
        self.postgres = Postgres(self.home / "pg", directory / "postgres.log", self.clock.environment)
        self.database = Proxy("database", self.postgres.socket)
        self._server_port = _free_port()
        self.web = Proxy("server", self._server_port)
        self.processes: dict[str, Process] = {}
        self.cluster: SparkCluster | None = None
        self._master = "local[1]"
        self._minding = threading.Event()
        self._minder = threading.Thread(target=self._mind, daemon=True)

    @property
    def consumed(self) -> dict[str, str]:
        """The queues and groups of the consumers."""
        return {"clicks": "readers", ("approved" if self.plan.spark else "calls"): "callers"}

    @property
    def sunk(self) -> str:
        """The queue of the sinks."""
        return "totals" if self.plan.spark else "orders"

    @property
    def readers(self) -> set[tuple[str, str]]:
        """All groups that exist when everything runs."""
        computed = {("orders", "totals"), ("calls", "limiter")} if self.plan.spark else set()
        return {*self.consumed.items(), (self.sunk, "webhook"), (self.sunk, "file")} | computed

    # Its life

    @contextmanager
    def running(self) -> Iterator[System]:
        """Start the system, and remove all of it at the end."""
        with ExitStack() as stack:
            stack.callback(self.remove)
            self.postgres.make()
            stack.callback(self.postgres.kill)
            self.database.start()
            stack.callback(self.database.stop)
            self.web.start()
            stack.callback(self.web.stop)
            stack.callback(self._kill_all)
            self._start_server()
            if self.plan.cluster:
                self.start_cluster(stack)
            self._start_others()
            self._minder.start()
            yield self

    def stop(self) -> dict[str, bool]:
        """Stop everything but PostgreSQL with SIGTERM; return whether each ended in time."""
        self._minding.set()
        self._minder.join()
        clean = {}
        for process in self.processes.values():
            if process.name not in _OURS:
                process.stop(2)
        for name in _OURS:
            if name in self.processes:
                clean[name] = self.processes[name].stop(_STOP_SECONDS)
        return clean

    def missing(self) -> list[str]:
        """Return the processes that should run and do not."""
        return [name for name, process in self.processes.items() if not process.runs and not self._is_done(name)]

    def producers_are_done(self) -> bool:
        """Return whether all producers have pushed their last events."""
        producers = [name for name in self.processes if name.startswith("producer")]
        return all(self._is_done(name) and not self.processes[name].runs for name in producers)

    def start_driver(self, name: str) -> Process:
        """Start another driver of the same queries."""
        conf = {"spark.driver.memory": "700m", "spark.driver.extraJavaOptions": _QUICK_JVM}
        if self.plan.cluster:
            conf |= {"spark.executor.memory": "512m", "spark.executor.cores": "1", "spark.cores.max": "1"}
        settings = [part for key, value in conf.items() for part in ("--conf", f"{key}={value}")]
        pipeline = str(ROOT / "chaos" / "pipeline.py")
        return self._start(name, *_penstock("run", pipeline, "--report", "0", "--master", self._master, *settings))

    def drop(self, name: str) -> None:
        """Kill a process without restarting it."""
        self.processes.pop(name).kill(after_seconds=1e9)

    # Parts

    def _start_server(self) -> None:
        serve = ("serve", "--port", str(self._server_port), "--workers", "2", "--request-log", "errors")
        self._start("server", *_penstock(*serve))
        server = Server(self._server_port)
        deadline = time.monotonic() + 120
        for queue, partitioning in QUEUES.items():
            asked: dict[str, Any] = {"partitioning": partitioning, "options": self._options()}
            if partitioning == "hash":
                asked["partitions"] = 4
            while True:
                try:
                    status, answer = server.ask("PUT", f"/v1/queues/{queue}", asked)
                    if status in (200, 201):
                        break
                    problem = f"{status} {answer}"
                except NoResponse as error:
                    problem = str(error)
                if time.monotonic() > deadline:
                    raise RuntimeError(
                        f"the server does not answer: {problem}\n{self.processes['server'].last_words()}"
                    )
                time.sleep(0.1)
        server.close()

    def _options(self) -> dict[str, float]:
        kept = self.plan.retention_seconds
        return {} if kept is None else {"retention_seconds": kept, "dedup_window_seconds": kept}

    def start_cluster(self, stack: ExitStack) -> None:
        """A master and two workers, until the stack is left; a master that is killed leaves behind what it knew."""
        from tests.engine.spark_cluster import SparkCluster

        conf = {
            "spark.worker.timeout": str(_LOST_SECONDS),
            "spark.deploy.recoveryMode": "FILESYSTEM",
            "spark.deploy.recoveryDirectory": str(self.home / "masters"),
        }
        self.cluster = stack.enter_context(SparkCluster(self.directory / "cluster", workers=2, conf=conf))
        self._master = self.cluster.url

    def _start_others(self) -> None:
        plan = self.plan
        if plan.spark:
            self.start_driver("driver")
        self._start(
            "receiver", *_python("chaos.receiver", str(port := _free_port()), self._journal("receiver"), str(self.mood))
        )
        envelope = () if plan.spark else ("--envelope",)
        hook = ("sink", "webhook", self.sunk, f"http://127.0.0.1:{port}/", "--allow", "127.0.0.0/8", "--attempts", "0")
        self._start("webhook", *_penstock(*hook, "--group", "webhook", "--timeout", "3"))
        self._start(
            "file",
            *_penstock("sink", "file", self.sunk, str(self.sink_file), *envelope, "--group", "file", "--attempts", "0"),
        )
        for name in plan.producers:
            order = producer.Order(
                name,
                self.web.port,
                self._journal(f"producer-{name}"),
                str(self.stop_file),
                plan.seed,
                plan.pause_seconds,
            )
            self._start(f"producer-{name}", *_python("chaos.producer", order.text()))
        for name in plan.consumers:
            wanted = consumer.Order(self.web.port, self._journal(f"consumer-{name}"), self.consumed)
            self._start(f"consumer-{name}", *_python("chaos.consumer", wanted.text()))
        if plan.spark and plan.standby:
            self.start_driver("standby")

    def _start(self, name: str, *command: str) -> Process:
        url = f"postgresql://penstock@127.0.0.1:{self.database.port}/penstock"
        source = str(ROOT / "src")
        path = os.pathsep.join([str(ROOT), source, *filter(None, [os.environ.get("PYTHONPATH")])])
        environment = {"PENSTOCK_DATABASE_URL": url, "PYTHONPATH": path, "SPARK_LOCAL_DIRS": str(self.home / "spark")}
        process = self.processes[name] = Process(name, command, self.directory, environment)
        process.start()
        return process

    def _journal(self, name: str) -> str:
        return str(self.directory / f"{name}.journal")

    def _is_done(self, name: str) -> bool:
        """Return whether a producer has recorded its end in its journal."""
        journal = self.directory / f"{name}.journal"
        return name.startswith("producer") and journal.exists() and journal.read_bytes().endswith(b'{"end":true}\n')

    def _mind(self) -> None:
        while not self._minding.wait(0.2):
            self.postgres.mind()
            for name, process in list(self.processes.items()):
                if not process.runs and not self._is_done(name):
                    process.mind()

    def _kill_all(self) -> None:
        self._minding.set()
        if self._minder.is_alive():
            self._minder.join()
        for process in self.processes.values():
            process.kill(after_seconds=1e9)

    def remove(self) -> None:
        """Remove its files."""
        for disk in (self.disk, self.sink_disk):
            disk.remove()
        shutil.rmtree(self.home, ignore_errors=True)


def _penstock(*arguments: str) -> tuple[str, ...]:
    return (sys.executable, "-m", "penstock", *arguments)


def _python(module: str, *arguments: str) -> tuple[str, ...]:
    return (sys.executable, "-m", module, *arguments)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
