"""What a driver needs to run a query."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any, TypeVar

from pyspark.sql import SparkSession

from penstock.engine.compile.split_stream import SplitStream
from penstock.engine.options import RunOptions
from penstock.engine.registry import Registry
from penstock.log.log import Log
from penstock.stream.definition import Definition

_T = TypeVar("_T")


@dataclass(frozen=True)
class QueryContext:
    id: int
    name: str
    stream: Definition
    split: SplitStream
    options: RunOptions
    log: Log
    registry: Registry
    spark: SparkSession
    #: Runs a coroutine on the event loop of the log.
    run_coroutine: Callable[[Coroutine[Any, Any, Any]], Any]

    def run(self, coroutine: Coroutine[Any, Any, _T]) -> _T:
        """Run a coroutine on the event loop of the log, and return its result."""
        result: _T = self.run_coroutine(coroutine)
        return result
