"""The Spark session that pipelines run in: the one that is there, else one of our own, set up for small cycles."""

from __future__ import annotations

import os
import re
import sys
import threading
from collections.abc import Mapping
from contextlib import suppress

from py4j.protocol import Py4JError
from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkRuntimeError
from pyspark.sql import SparkSession

from penstock.core.errors import ConfigurationError
from penstock.engine.spark.class_archive import archive_of, taking_from
from penstock.engine.spark.errors import say_no_more
from penstock.engine.spark.home import use_modules_as_installed
from penstock.engine.spark.java import find_java, put_beside

_LOGGING = """\
# What Spark says on the terminal: warnings and errors, without the ones that say nothing to a user of Penstock.
rootLogger.level = warn
rootLogger.appenderRef.console.ref = console

appender.console.type = Console
appender.console.name = console
appender.console.target = SYSTEM_ERR
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d{HH:mm:ss} %p %c{1}: %m%n%ex
# Stopping a query between cycles finds no job to cancel, as it should.
appender.console.filter.idle.type = RegexFilter
appender.console.filter.idle.regex = Failed to cancel job group .* Cannot find active jobs for it\\\\.
appender.console.filter.idle.onMatch = DENY
appender.console.filter.idle.onMismatch = NEUTRAL

# No native Hadoop library is needed.
logger.native.name = org.apache.hadoop.util.NativeCodeLoader
logger.native.level = error
# The checkpoint is disposable, and adaptive execution does not apply to streams.
logger.checkpoint.name = org.apache.spark.sql.execution.streaming.runtime.ResolveWriteToStream
logger.checkpoint.level = error
# A cycle that takes longer than the trigger is ours to report, as lag.
logger.behind.name = org.apache.spark.sql.execution.streaming.runtime.ProcessingTimeExecutor
logger.behind.level = error
"""

# What a query needs of its session. All can be set while Spark runs.
_SQL = {
    "spark.sql.adaptive.enabled": "false",
    # Without it, a sum that does not fit is null, and taken for one of nothing.
    "spark.sql.ansi.enabled": "true",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "32768",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.sql.session.timeZone": "UTC",
    # 15 ms a write instead of 40: the default one forks a chmod.
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
    ),
    "spark.sql.streaming.noDataMicroBatches.enabled": "false",
}

# What a Spark of our own starts with.
_START = {
    "spark.driver.memory": "2g",
    "spark.python.worker.reuse": "true",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}

_LOOPBACK = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}

_PARTITIONS = "spark.sql.shuffle.partitions"
#: What the shuffle partitions were set to here; if they are something else, somebody has said how many.
_CORES = "penstock.cores"
_JAVA_OPTIONS = "spark.driver.extraJavaOptions"
_PYTHON = "spark.pyspark.python"
_PY_FILES = "spark.submit.pyFiles"

#: As spark-submit knows them.
_MASTER = re.compile(
    r"local|local\[(\d+|\*)(, *\d+)?\]|local-cluster\[ *\d+ *, *\d+ *, *\d+ *\]|yarn|(spark|k8s)://\S+"
)

_lock = threading.Lock()
_ours: SparkSession | None = None


def spark_session(
    *, app_name: str = "penstock", master: str | None = None, conf: Mapping[str, str] | None = None
) -> SparkSession:
    """Return the session for pipelines; every call in a process gets the same one.

    If Spark runs in this process already, it is a new session of that Spark, so that the settings of other sessions
    stay as they are. Under ``spark-submit``, what was said there counts before our defaults. Otherwise Spark is
    started, on this machine (``local[*]``) unless ``master`` says where, with ``conf`` on top of our settings.

    The executors have to be able to import ``penstock`` and what the pipeline's callables import. On this machine they
    run the same Python and can. On other machines install it there, and name the Python that has it with
    ``spark.pyspark.python`` or ``PYSPARK_PYTHON``, or send it along with ``spark.submit.pyFiles``.
    """
    global _ours
    if master is not None:
        check_master(master)
    with _lock:
        context = SparkContext._active_spark_context
        if context is None:
            _ours = _started(app_name, master, conf or {})
        else:
            _check_master(context, master)
            if _ours is None or _ours.sparkContext is not context:
                _ours = _joined(context, conf or {})
            else:
                _set_while_running(_ours, conf or {})
        return _ours


def session_beside(shared: SparkSession) -> SparkSession:
    """A session with views and sources of its own, and the settings of the shared one, which Spark does not hand on."""
    session = shared.newSession()
    for key in (*_SQL, _PARTITIONS, _CORES):
        session.conf.set(key, str(shared.conf.get(key, "")))
    return session


def tasks_at_once(session: SparkSession) -> int:
    """How many tasks Spark can run now; shuffles follow. On a cluster, executors come after the session, and go."""
    if session.conf.get(_PARTITIONS) == session.conf.get(_CORES, ""):
        _match_cores(session)
    return max(2, session.sparkContext.defaultParallelism)


def _started(app_name: str, master: str | None, conf: Mapping[str, str]) -> SparkSession:
    if "PYSPARK_GATEWAY_PORT" in os.environ:  # spark-submit has started the JVM, and knows what was asked for
        SparkContext._ensure_initialized()
        settings = SparkConf()
        if _is_on_this_machine(settings.get("spark.master", "local")):
            os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    else:
        # PySpark looks only at the variable, also where the setting names another one.
        os.environ["PYSPARK_PYTHON"] = conf.get(_PYTHON) or os.environ.get("PYSPARK_PYTHON") or sys.executable
        os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
        java = find_java()
        os.environ["JAVA_HOME"] = str(java.home)
        use_modules_as_installed(java)
        settings = SparkConf()
        # Ours first, since of two that contradict each other the JVM takes the last.
        logging = put_beside(java, "log4j2.properties", _LOGGING).as_uri()
        asked = conf.get(_JAVA_OPTIONS) or settings.get(_JAVA_OPTIONS, "")
        ours = [f"-Dlog4j2.configurationFile={logging}"]
        if (archive := archive_of(java)) is not None and archive.exists():
            ours.append(taking_from(archive, java))
        settings.set(_JAVA_OPTIONS, " ".join([*ours, asked]).strip())
    if master is not None:
        settings.setMaster(master)
    for key, value in conf.items():
        if key != _JAVA_OPTIONS:
            settings.set(key, value)
    settings.setIfMissing("spark.master", "local[*]")
    settings.setIfMissing("spark.app.name", app_name)
    defaults = {**_SQL, **_START}
    if _is_on_this_machine(settings.get("spark.master", "")):
        defaults |= _LOOPBACK
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    for key, value in defaults.items():
        settings.setIfMissing(key, value)
    try:
        session = SparkSession.builder.config(conf=settings).getOrCreate()
    except (PySparkRuntimeError, Py4JError) as error:
        # Of a context that ended while it was made, something is left that others would take for a running one.
        if SparkContext._active_spark_context is not None:
            with suppress(PySparkRuntimeError, Py4JError):
                SparkContext._active_spark_context.stop()
        raise ConfigurationError(
            f"Spark cannot be started with the master {settings.get('spark.master')!r}: {_reason(error)}. Check that "
            "it runs and can be reached, and what was set with `conf`; Spark has said more above"
        ) from None
    say_no_more()
    if not settings.contains(_PARTITIONS):
        _match_cores(session)
    return session


def check_master(master: str) -> str:
    """A master that Spark knows; it would end the process's JVM over another, and tell nobody why."""
    if not _MASTER.fullmatch(master):
        raise ConfigurationError(
            f"master {master!r} is no place for Spark to run: name a cluster, spark://host:7077, k8s://https://host "
            "or yarn, or this machine, local[*] for all its cores and local[4] for four"
        )
    return master


def _reason(error: Exception) -> str:
    """What the JVM says, in one line."""
    java = getattr(error, "java_exception", None)
    said = str(error if java is None else java.getMessage() or java.toString()).strip()
    return said.split("\n")[0].rstrip(".")


def _joined(context: SparkContext, conf: Mapping[str, str]) -> SparkSession:
    session = SparkSession.builder.getOrCreate().newSession()
    for key, value in _SQL.items():
        session.conf.set(key, value)
    if not context.getConf().contains(_PARTITIONS):
        _match_cores(session)
    _set_while_running(session, conf)
    return session


def _match_cores(session: SparkSession) -> None:
    """One shuffle partition for each core, and two at least: with Spark's 200, tasks cost more than the work."""
    for key in (_PARTITIONS, _CORES):
        session.conf.set(key, str(session.sparkContext.defaultParallelism))


def _set_while_running(session: SparkSession, conf: Mapping[str, str]) -> None:
    for key, value in conf.items():
        if session.conf.isModifiable(key):
            session.conf.set(key, value)
        elif not _is_set(session.sparkContext.getConf().get(key), key, value):
            raise ConfigurationError(
                f"{key} cannot be changed while Spark runs, and Spark runs in this process already: set it where that "
                "is started, or stop that one first"
            )


def _is_set(running: str | None, key: str, value: str) -> bool:
    if key == _PY_FILES:
        # Spark makes addresses of them.
        return running is not None and _names(running) == _names(value)
    # Ours come before those that were asked for.
    return running == value or (key == _JAVA_OPTIONS and f" {running}".endswith(f" {value}"))


def _names(files: str) -> set[str]:
    return {file.rpartition("/")[2] for file in files.split(",")}


def _check_master(context: SparkContext, master: str | None) -> None:
    if master is not None and master != context.master:
        raise ConfigurationError(
            f"Spark runs in this process already, on {context.master}, so it cannot run on {master}: leave out "
            "`master` to use the one that runs, or stop that one first"
        )


def _is_on_this_machine(master: str) -> bool:
    return re.match(r"local(\[|$)|local-cluster\[|spark://(127\.0\.0\.1|localhost)[:,]?", master) is not None
