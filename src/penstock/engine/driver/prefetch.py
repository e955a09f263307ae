"""The next cycle of a query that is behind, computed while the one before it is committed.

Committing keeps PostgreSQL busy, and computing Spark's tasks. What a cycle comes to depends on its plan alone, where
tasks add up by themselves; so it may be computed before it is its turn, from a plan that says how the commit will leave
things. If the commit leaves them otherwise, what was computed is thrown away.
"""

from __future__ import annotations

import logging
import uuid
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import suppress

import psycopg

from penstock.core.errors import PenstockError
from penstock.engine.cycle.cycle import Cycles
from penstock.engine.cycle.models import Answer, Work
from penstock.engine.plan import CyclePlan
from penstock.engine.planning.planner import Planner

_logger = logging.getLogger("penstock.engine")

#: How often what is not wanted any more is cancelled, until it has ended.
_CANCEL_SECONDS = 0.2


class Ahead:
    """One cycle more than is committed."""

    def __init__(self, planner: Planner, cycles: Cycles) -> None:
        self._planner = planner
        self._cycles = cycles
        self._thread = ThreadPoolExecutor(1, "penstock ahead")
        #: What its jobs are called in Spark.
        self._tag = f"penstock-ahead-{uuid.uuid4()}"
        self._next: tuple[CyclePlan, Future[Answer]] | None = None
        self._is_worth_it = True

    @property
    def is_waiting(self) -> bool:
        """Whether there is a cycle that waits for its turn."""
        return self._next is not None

    def begin(self, work: Work) -> None:
        """Let the cycle after this one, which is about to be committed, be computed; if there is a full one."""
        if not self._is_worth_it:
            return
        highs = {mark.partition_id: mark.high_us for report in work.reports for mark in report.marks}
        reached = {lane.partition_id: (lane.stop, highs.get(lane.partition_id)) for lane in work.plan.lanes}
        number: int | None = None
        try:
            number = self._planner.plan_ahead(reached)
            plan = None if number is None else self._cycles.planned()
            if plan is not None:
                self._next = (plan, self._thread.submit(self._cycles.answer, plan, self._tag))
        except Exception as error:
            # Nothing is wrong with the cycle that is about to be committed; if it is with the database, that finds out.
            _logger.debug("no cycle is computed ahead: %s", error)
            self._is_worth_it = False
            if number is not None:
                with suppress(Exception):
                    self._cycles.forget(number)

    def holds(self) -> bool:
        """Whether there is a cycle whose turn it is now, as it was planned; what was planned otherwise is forgotten."""
        if self._next is None:
            return False
        if self._planner.is_as_planned(self._next[0].lanes):
            return True
        # What made it differ, such as windows that all partitions close together, will do so again.
        self._is_worth_it = False
        self._forget()
        return False

    def take(self) -> tuple[CyclePlan, Future[Answer]]:
        """The cycle whose turn it is."""
        assert self._next is not None  # noqa: S101 - the caller asked
        taken, self._next = self._next, None
        return taken

    def close(self) -> None:
        """Forget what is being computed. That nobody could be told hides nothing of why the cycles end."""
        try:
            self._forget()
        except (PenstockError, psycopg.Error):
            # Its row in the ledger is one of a driver that is gone, as after a crash.
            _logger.debug("a cycle that was planned ahead stays in the ledger", exc_info=True)
        finally:
            self._thread.shutdown()

    def _forget(self) -> None:
        if self._next is None:
            return
        plan, answer = self.take()
        while not answer.done():
            # Again and again: what is about to ask Spark has no job yet that could be cancelled.
            with suppress(Exception):
                self._cycles.cancel(self._tag)
            wait([answer], _CANCEL_SECONDS)
        self._cycles.forget(plan.cycle)
