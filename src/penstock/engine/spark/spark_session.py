"""The Spark session that pipelines run in: a new session of the running Spark, or else a Spark of our own."""

from __future__ import annotations

import os
import re
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress

from py4j.protocol import Py4JError
from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkRuntimeError
from pyspark.sql import SparkSession

from penstock.core.errors import ConfigurationError
from penstock.engine.spark.class_archive import archive_path, read_options
from penstock.engine.spark.errors import disable_pyspark_error_logs
from penstock.engine.spark.java import find_java, set_spark_home, write_next_to_launcher

_LOG4J_PROPERTIES = """\
# Spark logs warnings and errors to the terminal.
rootLogger.level = warn
rootLogger.appenderRef.console.ref = console

appender.console.type = Console
appender.console.name = console
appender.console.target = SYSTEM_ERR
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d{HH:mm:ss} %p %c{1}: %m%n%ex

# No native Hadoop library is needed.
logger.native.name = org.apache.hadoop.util.NativeCodeLoader
logger.native.level = error
"""

# Settings of each session of ours. All of them can be set while Spark runs.
_SESSION_SETTINGS = {
    "spark.sql.adaptive.enabled": "false",
    # Without ANSI mode, a sum that overflows is null, like a sum of no values.
    "spark.sql.ansi.enabled": "true",
    # A join with an empty table would be replaced by no rows, and operators with state below it would not run.
    "spark.sql.optimizer.excludedRules": "org.apache.spark.sql.catalyst.optimizer.PropagateEmptyRelation",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "32768",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.sql.session.timeZone": "UTC",
}

# Further settings of a Spark that we start.
_START_SETTINGS = {
    "spark.driver.memory": "2g",
    "spark.python.worker.reuse": "true",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}

_LOOPBACK_SETTINGS = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}

_SHUFFLE_PARTITIONS = "spark.sql.shuffle.partitions"
#: Our last value of the shuffle partitions. If the current value differs, the user has set it.
_OUR_SHUFFLE_PARTITIONS = "penstock.cores"
_JAVA_OPTIONS = "spark.driver.extraJavaOptions"
_PYTHON = "spark.pyspark.python"
_PY_FILES = "spark.submit.pyFiles"

#: The masters that spark-submit accepts.
_MASTER = re.compile(
    r"local|local\[(\d+|\*)(, *\d+)?\]|local-cluster\[ *\d+ *, *\d+ *, *\d+ *\]|yarn|(spark|k8s)://\S+"
)

_lock = threading.Lock()
_session: SparkSession | None = None


def spark_session(
    *, app_name: str = "penstock", master: str | None = None, conf: Mapping[str, str] | None = None
) -> SparkSession:
    """Return the session for pipelines. Every call in a process returns the same one.

    If Spark runs in this process already, the result is a new session of that Spark, so that the settings of other
    sessions do not change. Under ``spark-submit``, its settings take precedence over our defaults. Otherwise this
    starts Spark.

    The executors must be able to import ``penstock`` and everything that the functions of the pipeline import. On this
    machine they run the same Python. On other machines, install the packages and name their Python with
    ``spark.pyspark.python`` or ``PYSPARK_PYTHON``, or send the modules with ``spark.submit.pyFiles``.

    Args:
        app_name: the name of the application, if this starts Spark.
        master: where Spark runs; by default ``local[*]``, this machine.
        conf: settings of Spark, which take precedence over ours.
    """
    global _session
    if master is not None:
        check_master(master)
    with _lock:
        context = SparkContext._active_spark_context
        if context is None:
            _session = _start_spark(app_name, master, conf or {})
        else:
            _check_running_master(context, master)
            if _session is None or _session.sparkContext is not context:
                _session = _join_spark(context, conf or {})
            else:
                _set_while_running(_session, conf or {})
        return _session


def new_session(shared: SparkSession) -> SparkSession:
    """Return a session with temporary views of its own and the settings of the shared one, which Spark drops."""
    session = shared.newSession()
    for key in (*_SESSION_SETTINGS, _SHUFFLE_PARTITIONS, _OUR_SHUFFLE_PARTITIONS):
        session.conf.set(key, str(shared.conf.get(key, "")))
    return session


def task_slots(session: SparkSession) -> int:
    """Return how many tasks Spark can run at once now, and set the shuffle partitions to that number.

    On a cluster, executors join and leave while the session exists.
    """
    if session.conf.get(_SHUFFLE_PARTITIONS) == session.conf.get(_OUR_SHUFFLE_PARTITIONS, ""):
        _match_cores(session)
    return max(2, session.sparkContext.defaultParallelism)


def _start_spark(app_name: str, master: str | None, conf: Mapping[str, str]) -> SparkSession:
    if "PYSPARK_GATEWAY_PORT" in os.environ:  # spark-submit has started the JVM, with its settings
        SparkContext._ensure_initialized()
        settings = SparkConf()
        if _is_local(settings.get("spark.master", "local")):
            os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    else:
        # PySpark reads only the variable, also if the setting names another Python.
        os.environ["PYSPARK_PYTHON"] = conf.get(_PYTHON) or os.environ.get("PYSPARK_PYTHON") or sys.executable
        os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
        java = find_java()
        os.environ["JAVA_HOME"] = str(java.home)
        set_spark_home(java)
        settings = SparkConf()
        log4j = write_next_to_launcher(java, "log4j2.properties", _LOG4J_PROPERTIES).as_uri()
        java_options = [f"-Dlog4j2.configurationFile={log4j}"]
        if (archive := archive_path(java)) is not None and archive.exists():
            java_options.append(read_options(archive, java))
        # The user's options come last, because the JVM uses the last of two that contradict each other.
        java_options.append(conf.get(_JAVA_OPTIONS) or settings.get(_JAVA_OPTIONS, ""))
        settings.set(_JAVA_OPTIONS, " ".join(java_options).strip())
    if master is not None:
        settings.setMaster(master)
    for key, value in conf.items():
        if key != _JAVA_OPTIONS:
            settings.set(key, value)
    settings.setIfMissing("spark.master", "local[*]")
    settings.setIfMissing("spark.app.name", app_name)
    defaults = {**_SESSION_SETTINGS, **_START_SETTINGS}
    if _is_local(settings.get("spark.master", "")):
        defaults |= _LOOPBACK_SETTINGS
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    for key, value in defaults.items():
        settings.setIfMissing(key, value)
    try:
        with _importable_modules():
            session = SparkSession.builder.config(conf=settings).getOrCreate()
    except (PySparkRuntimeError, Py4JError) as error:
        # A context that failed to start stays registered as the active one.
        if SparkContext._active_spark_context is not None:
            with suppress(PySparkRuntimeError, Py4JError):
                SparkContext._active_spark_context.stop()
        raise ConfigurationError(
            f"Spark cannot be started with the master {settings.get('spark.master')!r}: {_java_message(error)}. Check "
            "that the master runs and can be reached, and check the settings in `conf`. Spark's log is above"
        ) from None
    disable_pyspark_error_logs()
    if not settings.contains(_SHUFFLE_PARTITIONS):
        _match_cores(session)
    return session


@contextmanager
def _importable_modules() -> Iterator[None]:
    """Let the Python workers of a local Spark import the modules that this process can import.

    They inherit the environment of the JVM. Without this, they look into the directory in which it was started.
    """
    python_path = os.environ.get("PYTHONPATH")
    installed = (sys.prefix, sys.base_prefix)
    directories = [os.path.abspath(each) for each in sys.path]
    own = [each for each in directories if not each.startswith(installed)]
    os.environ["PYTHONPATH"] = os.pathsep.join([*own, *filter(None, [python_path])])
    try:
        yield
    finally:
        if python_path is None:
            del os.environ["PYTHONPATH"]
        else:
            os.environ["PYTHONPATH"] = python_path


def check_master(master: str) -> str:
    """Return the master if it is valid. For an invalid one, Spark would end the JVM without an error message."""
    if not _MASTER.fullmatch(master):
        raise ConfigurationError(
            f"master {master!r} is not a Spark master: use spark://host:7077, k8s://https://host or yarn for a "
            "cluster, local[*] for all cores of this machine, or local[4] for four"
        )
    return master


def _java_message(error: Exception) -> str:
    java_error = getattr(error, "java_exception", None)
    message = str(error if java_error is None else java_error.getMessage() or java_error.toString()).strip()
    return message.split("\n")[0].rstrip(".")


def _join_spark(context: SparkContext, conf: Mapping[str, str]) -> SparkSession:
    session = SparkSession.builder.getOrCreate().newSession()
    for key, value in _SESSION_SETTINGS.items():
        session.conf.set(key, value)
    if not context.getConf().contains(_SHUFFLE_PARTITIONS):
        _match_cores(session)
    _set_while_running(session, conf)
    return session


def _match_cores(session: SparkSession) -> None:
    """Set one shuffle partition per core. With Spark's default of 200, the tasks of a cycle cost more than its work."""
    for key in (_SHUFFLE_PARTITIONS, _OUR_SHUFFLE_PARTITIONS):
        session.conf.set(key, str(session.sparkContext.defaultParallelism))


def _set_while_running(session: SparkSession, conf: Mapping[str, str]) -> None:
    for key, value in conf.items():
        if session.conf.isModifiable(key):
            session.conf.set(key, value)
        elif not _is_set(session.sparkContext.getConf().get(key), key, value):
            raise ConfigurationError(
                f"{key} cannot be changed while Spark runs, and Spark runs in this process already. Set it where Spark "
                "is started, or stop that Spark first"
            )


def _is_set(running: str | None, key: str, value: str) -> bool:
    if key == _PY_FILES:
        # Spark converts the paths to URLs.
        return running is not None and _file_names(running) == _file_names(value)
    # Our Java options come before those of the user.
    return running == value or (key == _JAVA_OPTIONS and f" {running}".endswith(f" {value}"))


def _file_names(files: str) -> set[str]:
    return {file.rpartition("/")[2] for file in files.split(",")}


def _check_running_master(context: SparkContext, master: str | None) -> None:
    if master is not None and master != context.master:
        raise ConfigurationError(
            f"Spark runs already with master {context.master}, not with {master}. Leave out `master` to use the "
            "running Spark, or stop it first"
        )


def _is_local(master: str) -> bool:
    return re.match(r"local(\[|$)|local-cluster\[|spark://(127\.0\.0\.1|localhost)[:,]?", master) is not None
