"""The purpose of processes, threads and connections by their name."""

from __future__ import annotations

from benchmarks.freshness.plan import OBSERVER, PUSHER

DRIVER, PLANNER, TASKS = "driver (Python)", "planner (Python)", "tasks (Python)"
JVM, POSTGRESQL = "JVM", "PostgreSQL"
JVM_ALONE, JVM_SHORT = f"{JVM};all of it", f"{JVM};threads that end soon"
#: What processes spent that ended between two looks.
ENDED = "processes that end soon"
ENDED_OF_SERVER = f"{POSTGRESQL};{ENDED}"
OBSERVERS = f"{POSTGRESQL};observers"
_OTHER = "other"

#: How the names of the JVM's threads begin. The kernel keeps 15 characters of a name.
_THREADS = {
    "task threads": ("Executor task", "stdout writer", "Writer Thread", "Worker Monitor", "Idle Worker"),
    "JIT compiler": ("C1 Compiler", "C2 Compiler", "Sweeper"),
    "garbage collector": ("GC Thread", "G1 ", "VM Thread", "VM Periodic"),
    "stream and scheduler": (
        "stream executio",
        "dag-scheduler",
        "task-result-get",
        "task-scheduler",
        "driver-heartbea",
        "broadcast-excha",
        "shuffle-exchang",
        "QueryStageCreat",
        "subquery",
        "spark-listener",
        "SparkListenerBu",
        "element-trackin",
        "context-cleaner",
        "Spark Context C",
        "block-manager",
    ),
    "calls from and to Python": ("Thread-", "main", "java"),
    # Among them the one that runs a cycle's job and hands its rows to the driver.
    "threads that end soon": ("serve-",),
    "RPC": ("dispatcher-", "netty-", "rpc-", "shuffle-", "map-output", "files-"),
}  # fmt: skip

#: Backends of PostgreSQL by the names that the connections give themselves.
_CONNECTIONS = {
    "penstock worker": "tasks' reads and reports",
    "penstock planner": "planner",
    "penstock": "driver's commits",
    PUSHER: "pushes",
    OBSERVER: "observers",
}
_HOUSEKEEPING = "WAL, checkpoints, vacuum"


def thread_part(name: str) -> str:
    """The part of the JVM that a thread belongs to, by its name or the beginning of it."""
    for part, beginnings in _THREADS.items():
        if name.startswith(beginnings):
            return f"{JVM};{part}"
    return f"{JVM};{_OTHER}"


def backend_part(application: str, kind: str) -> str:
    """Return the part of PostgreSQL that a process belongs to, by its connection name and title."""
    if kind not in ("client backend", "parallel worker"):
        return f"{POSTGRESQL};{_HOUSEKEEPING}"
    return f"{POSTGRESQL};{_CONNECTIONS.get(application, _OTHER)}"


def process_part(command: str) -> str:
    """The part that a Python process below the JVM is, by its command line."""
    return PLANNER if "streaming_source" in command else TASKS
