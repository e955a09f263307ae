"""Computes the next cycle of a query with a backlog while the current one is committed.

A commit keeps PostgreSQL busy and a computation keeps Spark's tasks busy. Where tasks pre-aggregate, or where a stream
has no windows, the result of a cycle depends on its plan alone, so it can be computed early, from a plan that
anticipates the commit. If the commit turns out otherwise, the result is discarded.
"""

from __future__ import annotations

import logging
import uuid
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import suppress

import psycopg

from penstock.core.errors import PenstockError
from penstock.engine.cycle.cycle_result import CycleResult, SparkResult
from penstock.engine.cycle.cycle_runner import CycleRunner
from penstock.engine.cycle_plan import CyclePlan
from penstock.engine.planning.planner import Planner

_logger = logging.getLogger("penstock.engine")

#: A discarded job is cancelled this often until it has ended.
_CANCEL_SECONDS = 0.2


class Prefetcher:
    """Computes one cycle ahead of the last commit."""

    def __init__(self, planner: Planner, cycles: CycleRunner) -> None:
        self._planner = planner
        self._cycles = cycles
        self._executor = ThreadPoolExecutor(1, "penstock prefetch")
        self._job_tag = f"penstock-prefetch-{uuid.uuid4()}"
        self._next: tuple[CyclePlan, Future[SparkResult]] | None = None
        self._is_useful = True

    def start_next(self, result: CycleResult) -> None:
        """Start the cycle after this one, which is about to be committed, if there is a backlog."""
        if not self._is_useful:
            return
        highs = {each.partition_id: each.high_us for report in result.reports for each in report.partitions}
        reached = {each.partition_id: (each.stop, highs.get(each.partition_id)) for each in result.plan.partitions}
        try:
            plan = self._planner.plan_ahead(reached)
            if plan is not None:
                self._next = (plan, self._executor.submit(self._cycles.run_spark, plan, self._job_tag))
        except Exception as error:
            # The cycle about to be committed is not affected. If the database is at fault, the commit finds out.
            _logger.debug("no cycle is computed ahead: %s", error)
            self._is_useful = False

    def take(self) -> tuple[CyclePlan, Future[SparkResult]] | None:
        """Return the cycle that was started, if the last commit left the partitions as its plan assumed."""
        if self._next is None:
            return None
        plan, result = self._next
        if self._planner.is_current(plan.partitions):
            self._next = None
            return plan, result
        # The cause, such as windows that close across all partitions, will recur.
        self._is_useful = False
        self._discard()
        return None

    def close(self) -> None:
        """Cancel the cycle that was started. A failure here must not hide the reason why the loop ends."""
        try:
            self._discard()
        except (PenstockError, psycopg.Error):
            # Its row stays in the ledger, like one of a driver that crashed.
            _logger.debug("a cycle that was computed ahead stays in the ledger", exc_info=True)
        finally:
            self._executor.shutdown()

    def _discard(self) -> None:
        if self._next is None:
            return
        (plan, result), self._next = self._next, None
        while not result.done():
            # A thread about to submit its job has none to cancel yet, so cancel repeatedly.
            with suppress(Exception):
                self._cycles.cancel_jobs(self._job_tag)
            wait([result], _CANCEL_SECONDS)
        self._cycles.delete_plan(plan.cycle)
