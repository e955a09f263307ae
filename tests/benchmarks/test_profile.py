"""Stacks are collapsed, scaled to CPU time, and rendered as a flame graph."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import psutil
import psycopg
import pyspark
import pytest

from benchmarks.log.server import Server
from benchmarks.page.flame_graph import svg
from benchmarks.profile import names
from benchmarks.profile.cpu_sampler import CpuSampler, Stat
from benchmarks.profile.samplers import FlightRecorder, Unavailable
from benchmarks.profile.stacks import of_jvm, of_python, pruned, scaled_stacks

ROOT = Path(__file__).parents[2]
_SVG = "{http://www.w3.org/2000/svg}"

PYTHON = """\
process 7:"python -m benchmarks.engines.serve";<module> (serve.py:39);commit (penstock/engine/commit.py:171) 3
process 9:"python -m pyspark.daemon";process 10:"python -m pyspark.daemon";main (worker.py:1);decode (d.py:5) 5
process 9:"python -m pyspark.daemon";process 11:"python -m pyspark.daemon";main (worker.py:1);decode (d.py:6) 2
process 9:"python -m pyspark.daemon";process 11:"python -m pyspark.daemon";manager (pyspark/daemon.py:{collects}) 4
process 9:"python -m pyspark.daemon";process 11:"python -m pyspark.daemon";manager (pyspark/daemon.py:1) 50
process 8:"python -m pyspark.daemon pyspark.sql.streaming.python_streaming_source_runner";plan (planning.py) 1
process 7:"p";<module> (serve.py);SocketIO.readinto (socket.py) 9
"""
JVM = """\
jdk.ExecutionSample {
  startTime = 02:12:47.973
  sampledThread = "Executor task launch worker for task 0.0 in stage 1.0 (TID 1)" (javaThreadId = 61)
  state = "STATE_RUNNABLE"
  stackTrace = [
    org.apache.spark.Inner$$Lambda$1234+0x00007f.apply(Object) line: 12
    scala.Option.foreach(Function1) line: 437
    org.apache.spark.Outer.run() line: 3
    java.lang.Thread.run() line: 840
    ...
  ]
}

jdk.ExecutionSample {
  sampledThread = "stream execution thread for penstock q 1 [id = 1]" (javaThreadId = 62)
  stackTrace = [
  ]
}
"""


def test_python_stacks_belong_to_their_process_and_waiting_is_ignored() -> None:
    source = Path(pyspark.__file__).with_name("daemon.py").read_text().splitlines()
    (collects,) = [number for number, line in enumerate(source, 1) if "gc.collect()" in line]

    assert of_python(PYTHON.format(collects=collects).splitlines()) == {
        names.DRIVER: {"<module> (serve.py);commit (penstock/engine/commit.py)": 3},
        names.TASKS: {"main (worker.py);decode (d.py)": 7, "manager (pyspark/daemon.py);gc.collect": 4},
        names.PLANNER: {"plan (planning.py)": 1},
    }


def test_jvm_stacks_start_with_the_outermost_frame_and_omit_boilerplate() -> None:
    assert of_jvm(JVM.splitlines()) == {"JVM;task threads": {"Outer.run;Inner$$Lambda.apply": 1}}


def test_samples_are_scaled_to_cpu_time() -> None:
    scaled = scaled_stacks({"a": 3.0, "b": 1.0}, {"a": {"f": 1, "f;g": 2}})

    assert scaled == {"a;f": 1.0, "a;f;g": 2.0, "b": 1.0}


def test_small_frames_are_merged_into_their_callers() -> None:
    assert pruned({"a;f;g": 1.0, "a;f": 98.0, "b;h": 1.0}, 0.05) == {"a;f": 99.0, "b": 1.0}


def test_flame_graph_widths_and_tooltips() -> None:
    text = svg({"Python;<module> & co": 3.0, "Python": 1.0, "JVM;run": 4.0}, "all of it", "CPU s")

    root = ElementTree.fromstring(text)  # noqa: S314 - our own output
    drawn = {
        str(group.findtext(f"{_SVG}title")): float(group.find(f"{_SVG}rect").attrib["width"])  # type: ignore[union-attr]
        for group in root.iter(f"{_SVG}g")
    }
    assert root.findtext(f"{_SVG}title") == "all of it"
    assert list(root.iter(f"{_SVG}script")) == []
    everything = drawn["everything: 100.0 % of 8.00 CPU s"]
    assert drawn["Python: 50.0 % of 8.00 CPU s"] == drawn["JVM: 50.0 % of 8.00 CPU s"] == everything / 2
    assert drawn["<module> & co: 37.5 % of 8.00 CPU s"] == pytest.approx(everything * 3 / 8)


def test_flame_graph_without_samples() -> None:
    assert ElementTree.fromstring(svg({}, "nothing", "CPU s")) is not None  # noqa: S314


@pytest.mark.parametrize("name", ["C2 CompilerThre", "a) (b", ""])
def test_stat_with_special_characters_in_the_name(name: str) -> None:
    stat = Stat.parse(f"42 ({name}) S 1 1 1 0 -1 0 0 0 0 0 150 50 0 0 20 0 1 0 777 0 0")

    assert (stat.identity, stat.name) == ((42, 777), name)
    assert (stat.cpu.seconds, stat.cpu.kernel) == (2.0, 0.5)


def test_connections_are_attributed_by_application_name(empty_database_url: str) -> None:
    with psycopg.connect(empty_database_url, autocommit=True, application_name="penstock worker") as conn:
        postmaster = psutil.Process(conn.info.backend_pid).ppid()
        burn = [sys.executable, "-c", "import sys; sum(range(3_000_000)); sys.stdin.read()"]
        with subprocess.Popen(burn, stdin=subprocess.PIPE) as driver:
            with CpuSampler(driver.pid, Server(empty_database_url, postmaster)) as cpu:
                conn.execute("SELECT sum(i) FROM generate_series(1, 1000000) i")
            driver.communicate()
    spent = cpu.by_part()

    assert spent["PostgreSQL;tasks' reads and reports"].seconds > 0
    assert names.DRIVER in spent
    assert names.OBSERVERS not in spent


def test_unavailable_sampler_reports_the_reason(tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as driver:
        with pytest.raises(Unavailable, match="the driver has no JVM"):
            asyncio.run(FlightRecorder(driver.pid, tmp_path / "jvm.jfr").start())
        driver.communicate(b"\n")


def test_usage_lists_the_benchmark() -> None:
    done = subprocess.run([sys.executable, "-m", "benchmarks"], cwd=ROOT, capture_output=True, text=True)

    assert "\n  profile  " in done.stderr
