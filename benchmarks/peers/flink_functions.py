"""User-defined functions for Flink SQL: ``CREATE FUNCTION ... LANGUAGE PYTHON``."""

from __future__ import annotations

from pyflink.table.udf import udf  # type: ignore[import-not-found]  # its own environment

from benchmarks.nexmark import functions

count_char = udf(functions.count_char, result_type="BIGINT")
