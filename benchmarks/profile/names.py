"""Components of processes, threads and connections by their name."""

from __future__ import annotations

from benchmarks.freshness.plan import OBSERVER, PUSHER

DRIVER, PLANNER, TASKS = "driver (Python)", "planner (Python)", "tasks (Python)"
JVM, POSTGRESQL = "JVM", "PostgreSQL"
JVM_ALONE, JVM_SHORT = f"{JVM};all of it", f"{JVM};threads that end soon"
#: CPU time of processes that ended between two samples.
ENDED = "processes that end soon"
ENDED_OF_SERVER = f"{POSTGRESQL};{ENDED}"
OBSERVERS = f"{POSTGRESQL};observers"
_OTHER = "other"

#: Prefixes of the JVM's thread names. The kernel keeps 15 characters of a name.
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
    # One of them runs the job of a cycle and passes its rows to the driver.
    "threads that end soon": ("serve-",),
    "RPC": ("dispatcher-", "netty-", "rpc-", "shuffle-", "map-output", "files-"),
}  # fmt: skip

#: PostgreSQL backends by application name.
_CONNECTIONS = {
    "penstock worker": "tasks' reads and reports",
    "penstock planner": "planner",
    "penstock": "driver's commits",
    PUSHER: "pushes",
    OBSERVER: "observers",
}
_HOUSEKEEPING = "WAL, checkpoints, vacuum"


def thread_part(name: str) -> str:
    """Return the JVM component of a thread by its name."""
    for part, prefixes in _THREADS.items():
        if name.startswith(prefixes):
            return f"{JVM};{part}"
    return f"{JVM};{_OTHER}"


def backend_part(application: str, kind: str) -> str:
    """Return the PostgreSQL component of a backend by its application name and type."""
    if kind not in ("client backend", "parallel worker"):
        return f"{POSTGRESQL};{_HOUSEKEEPING}"
    return f"{POSTGRESQL};{_CONNECTIONS.get(application, _OTHER)}"


def process_part(command: str) -> str:
    """Return the component of a Python process of the JVM by its command line."""
    return PLANNER if "streaming_source" in command else TASKS
