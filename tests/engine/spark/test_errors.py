"""Summaries of Spark errors."""

from __future__ import annotations

from penstock.engine.spark.errors import error_summary

JOB_FAILURE = """An error occurred while calling o186.getResult.
: org.apache.spark.SparkException: Exception thrown in awaitResult:
\tat org.apache.spark.util.SparkThreadUtils$.awaitResult(SparkThreadUtils.scala:70)
Caused by: org.apache.spark.SparkException: Job aborted due to stage failure: Task 0 in stage 1.0 failed 1 times, most \
recent failure: Lost task 0.0 in stage 1.0 (TID 1) (host executor driver): org.apache.spark.SparkException: Python \
worker exited unexpectedly (crashed)
\tat org.apache.spark.api.python.BasePythonRunner.read(PythonRunner.scala:1)
"""


def test_the_summary_of_a_failed_job_is_the_error_of_its_task() -> None:
    assert error_summary(RuntimeError(JOB_FAILURE)) == "Python worker exited unexpectedly (crashed)"


def test_the_summary_of_other_errors_is_their_first_line() -> None:
    assert error_summary(ValueError("[CAST_INVALID_INPUT] The value\nmore")) == "[CAST_INVALID_INPUT] The value"
    assert error_summary(ValueError("Job aborted due to cancellation")) == "Job aborted due to cancellation"
    assert error_summary(KeyError()) == "KeyError"
