"""The watchdog ends a worker process whose user-defined function hangs."""

from __future__ import annotations

import subprocess
import sys

import pytest

pytestmark = pytest.mark.slow

HANGING_STEPS = {
    "generator body": """
def hang(event):
    yield event
    time.sleep(3600)
step = FlatMapStep("step", hang, None, SHORT)
""",
    "blocked event loop": """
async def hang(event):
    time.sleep(3600)
step = EnrichCall("step", hang, 4, None, SHORT)
""",
    "call that suppresses its cancellation": """
async def hang(event):
    while True:
        try:
            await asyncio.sleep(3600)
        except BaseException:
            pass
step = EnrichCall("step", hang, 4, None, SHORT)
""",
    "function that holds the GIL": """
def hang(event):
    return re.match("(a+)+$", "a" * 60 + "b")
step = FilterStep("step", hang, SHORT)
""",
}


def test_a_hanging_function_ends_its_worker() -> None:
    def program(step: str) -> str:
        return f"""
import asyncio, re, time
from penstock.engine.worker.task_reports import EventRef
from penstock.engine.worker.udf.udf_batch import UdfBatch, UdfItem
from penstock.engine.worker.udf.udf_steps import run_udf_steps
from penstock.stream.steps import EnrichCall, FilterStep, FlatMapStep, Retries
SHORT = Retries(0, 0.0, 0.2)
{step}
run_udf_steps([step], UdfBatch("q", [UdfItem(0, {{}})], lambda index: EventRef(1, index), lambda index: {{}}))
"""

    processes = {
        name: subprocess.Popen([sys.executable, "-c", program(step)], stderr=subprocess.PIPE, text=True)
        for name, step in HANGING_STEPS.items()
    }
    try:
        for name, process in processes.items():
            _, errors = process.communicate(timeout=60)
            assert process.returncode != 0, name
            assert "longer than 0.2 s" in errors or "Timeout" in errors, (name, errors)
    finally:
        for process in processes.values():
            process.kill()
            process.wait()


def test_the_timeout_applies_to_each_call_and_not_to_all_of_them() -> None:
    """The calls never await, and all of them together take longer than the timeout of one."""
    program = """
import time
from penstock.engine.worker.task_reports import EventRef
from penstock.engine.worker.udf.udf_batch import UdfBatch, UdfItem
from penstock.engine.worker.udf.udf_steps import run_udf_steps
from penstock.stream.steps import EnrichCall, Retries
async def compute(event):
    time.sleep(0.02)
batch = UdfBatch("q", [UdfItem(n, {}) for n in range(100)], lambda index: EventRef(1, index), lambda index: {})
run_udf_steps([EnrichCall("step", compute, 4, None, Retries(0, 0.0, 0.5))], batch)
print(len(batch.items))
"""
    process = subprocess.run([sys.executable, "-c", program], check=True, stdout=subprocess.PIPE, text=True)
    assert process.stdout == "100\n"
