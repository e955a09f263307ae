"""Spans of cycles: a cycle with its plan, its computation and its commit, linked to the pushes that it read of.

The pushes are found in the headers of the events, where a server that is traced left them. Only the beginning of what
a cycle reads is looked at: a link says where to look on, and a cycle may have a million events.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import psycopg
import pyarrow as pa

from penstock.core.errors import PenstockError
from penstock.core.tracing import span_provider
from penstock.db.statements import Statements
from penstock.engine.cycle.cycle import Cycles
from penstock.engine.cycle.models import Answer, Outcome, Work
from penstock.engine.cycle.prepare import Assignment, Prepared
from penstock.engine.plan import CyclePlan
from penstock.log.read.reader import read_events

if TYPE_CHECKING:
    from concurrent.futures import Future

    from opentelemetry.trace import Span, SpanContext

_sql = Statements("penstock.engine", "ledger.sql")

#: So many events of so many partitions are looked at for the trace that they are part of.
_LANES, _EVENTS = 8, 64
_MOST_LINKS = 64


class TracedCycles(Cycles):
    """The cycles of a query, each as a trace of its own."""

    def __init__(self, assignment: Assignment, prepared: Prepared, fence: int) -> None:
        super().__init__(assignment, prepared, fence)
        provider = span_provider()
        # After the provider, which says what to do where there is no OpenTelemetry.
        from opentelemetry import trace

        self._trace = trace
        self._tracer = provider.get_tracer("penstock.engine")
        self._span: Span | None = None

    def compute(self, plan: CyclePlan, answer: Future[Answer] | None = None) -> tuple[Work, pa.Table | None]:
        """Compute, within a span."""
        self._end()
        # Between its plan and its turn, Spark was busy with it already.
        self._span = self._begin(plan, "plan" if answer is None else "ahead")
        with self._part("compute"):
            computed = super().compute(plan, answer)
        if self._assignment.stream.gates:
            # What is committed is what the gates let through, whenever they do.
            self._end()
        return computed

    def commit(self, work: Work) -> Outcome:
        """Commit, within a span."""
        whole = self._span = self._span or self._begin(work.plan)
        with self._part("commit"):
            outcome = super().commit(work)
        whole.set_attributes({f"penstock.{name}": count for name, count in asdict(outcome).items()})
        whole.set_attributes({f"penstock.ms.{part}": round(ms, 1) for part, ms in work.took.items()})
        self._end()
        return outcome

    def close(self) -> None:
        """Let go of the connection, and of a span that came to no end."""
        self._end()
        super().close()

    def _begin(self, plan: CyclePlan, first: str = "plan") -> Span:
        now = time.time_ns()
        waited = self._run(self._waited(plan))
        span = self._tracer.start_span(
            f"cycle {self._assignment.name}",
            self._trace.set_span_in_context(self._trace.INVALID_SPAN),
            self._trace.SpanKind.CONSUMER,
            {
                "penstock.query": self._assignment.name,
                "penstock.cycle": plan.cycle,
                "penstock.planned": plan.events,
                "penstock.partitions": len(plan.lanes),
            },
            start_time=now - waited,
        )
        if span.is_recording():
            for push in self._run(self._pushes(plan)):
                span.add_link(push)
        within = self._trace.set_span_in_context(span)
        self._tracer.start_span(first, within, start_time=now - waited).end(now)
        return span

    @contextmanager
    def _part(self, name: str) -> Iterator[None]:
        """A part of the cycle; if it fails, so has the cycle. What an error says may quote an event: only its type."""
        whole = self._span
        assert whole is not None  # noqa: S101 - it was begun
        span = self._tracer.start_span(name, self._trace.set_span_in_context(whole))
        try:
            yield
        except BaseException as error:
            for failed in (span, whole):
                failed.set_attribute("error.type", type(error).__qualname__)
                failed.set_status(self._trace.StatusCode.ERROR)
            span.end()
            self._end()
            raise
        span.end()

    def _end(self) -> None:
        span, self._span = self._span, None
        if span is not None:
            span.end()

    async def _waited(self, plan: CyclePlan) -> int:
        """For how many nanoseconds the cycle has been planned."""
        params = {"query": self._assignment.id, "cycle": plan.cycle}
        try:
            async with self._assignment.log.database.connection() as conn:
                row = await (await conn.execute(_sql["since_planned"], params)).fetchone()
        except (PenstockError, psycopg.Error):
            return 0  # a cycle is worth more than its trace
        return 0 if row is None else int(row[0])

    async def _pushes(self, plan: CyclePlan) -> Sequence[SpanContext]:
        """The pushes that the cycle is about to read of, as far as its first events tell."""
        log = self._assignment.log
        names = {queue_id: queue for queue, queue_id, *_ in self._prepared.groups}
        said: dict[str, None] = {}
        try:
            async with log.database.connection() as conn:
                for lane in plan.lanes[:_LANES]:
                    queue = await log.catalog.get(names[lane.queue_id])
                    count = min(_EVENTS, lane.stop - lane.start)
                    for event in await read_events(conn, queue, lane.partition_id, lane.start, count, []):
                        if (parent := event.headers.get("traceparent")) is not None:
                            said[parent] = None
        except (PenstockError, psycopg.Error):
            return []
        return [found for each in [*said][:_MOST_LINKS] for found in _context(each)]


def _context(traceparent: str) -> list[Any]:
    """The span that a header names, if it names one."""
    from opentelemetry import trace
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    context = TraceContextTextMapPropagator().extract({"traceparent": traceparent})
    found = trace.get_current_span(context).get_span_context()
    return [found] if found.is_valid else []
