"""Of what Spark says when something fails, the line that helps."""

from __future__ import annotations

from penstock.engine.spark.errors import first_line

FAILED = """An error occurred while calling o186.getResult.
: org.apache.spark.SparkException: Exception thrown in awaitResult:
\tat org.apache.spark.util.SparkThreadUtils$.awaitResult(SparkThreadUtils.scala:70)
Caused by: org.apache.spark.SparkException: Job aborted due to stage failure: Task 0 in stage 1.0 failed 1 times, most \
recent failure: Lost task 0.0 in stage 1.0 (TID 1) (host executor driver): org.apache.spark.SparkException: Python \
worker exited unexpectedly (crashed)
\tat org.apache.spark.api.python.BasePythonRunner.read(PythonRunner.scala:1)
"""


def test_a_task_that_failed_says_why() -> None:
    assert first_line(RuntimeError(FAILED)) == "Python worker exited unexpectedly (crashed)"


def test_other_errors_are_told_by_their_first_line() -> None:
    assert first_line(ValueError("[CAST_INVALID_INPUT] The value\nmore")) == "[CAST_INVALID_INPUT] The value"
    assert first_line(ValueError("Job aborted due to cancellation")) == "Job aborted due to cancellation"
    assert first_line(KeyError()) == "KeyError"
