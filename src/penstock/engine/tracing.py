"""OpenTelemetry traces of cycles: spans for plan, computation and commit, with links to the pushes of the events.

A traced server stores the trace context of a push in the headers of its events. Only the first events of a cycle are
searched for it, because a cycle may have a million events.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from typing import TYPE_CHECKING

import psycopg

from penstock.core.errors import PenstockError
from penstock.core.tracing import get_tracer_provider
from penstock.db.scalar import fetch_scalar
from penstock.db.statements import Statements
from penstock.engine.cycle.cycle_result import CommitStats, ComputedCycle, CycleResult, QueryContext, SparkResult
from penstock.engine.cycle.cycle_runner import CycleRunner
from penstock.engine.cycle.query_setup import PreparedQuery
from penstock.engine.cycle_plan import CyclePlan
from penstock.log.partition_reader import read_events

if TYPE_CHECKING:
    from concurrent.futures import Future

    from opentelemetry.trace import Span, SpanContext

_sql = Statements("penstock.engine", "cycle_ledger.sql")

#: The trace contexts of so many events in so many partitions are read.
_SEARCHED_PARTITIONS, _SEARCHED_EVENTS = 8, 64
_MAX_LINKS = 64


class TracedCycleRunner(CycleRunner):
    def __init__(self, context: QueryContext, prepared: PreparedQuery, fence: int) -> None:
        super().__init__(context, prepared, fence)
        self._query = context
        provider = get_tracer_provider()
        # After get_tracer_provider, whose error says what to install if OpenTelemetry is missing.
        from opentelemetry import trace

        self._trace = trace
        self._tracer = provider.get_tracer("penstock.engine")
        self._span: Span | None = None

    def compute(self, plan: CyclePlan, prefetched: Future[SparkResult] | None = None) -> ComputedCycle:
        self._end_span()
        # Spark computes a prefetched cycle between its plan and its turn.
        self._span = self._start_span(plan, "plan" if prefetched is None else "ahead")
        with self._part("compute"):
            computed = super().compute(plan, prefetched)
        if self._query.stream.gates:
            # The release loop commits the events later, in transactions of its own.
            self._end_span()
        return computed

    def commit(self, result: CycleResult) -> CommitStats:
        cycle = self._span = self._span or self._start_span(result.plan)
        with self._part("commit"):
            stats = super().commit(result)
        counts = {f"penstock.{name}": count for name, count in asdict(stats).items() if count is not None}
        cycle.set_attributes(counts)
        cycle.set_attributes({f"penstock.ms.{part}": round(ms, 1) for part, ms in result.took.items()})
        self._end_span()
        return stats

    def close(self) -> None:
        self._end_span()
        super().close()

    def _start_span(self, plan: CyclePlan, first_part: str = "plan") -> Span:
        now = time.time_ns()
        planned_at = now - self._query.run(self._plan_age_ns(plan))
        span = self._tracer.start_span(
            f"cycle {self._query.name}",
            self._trace.set_span_in_context(self._trace.INVALID_SPAN),
            self._trace.SpanKind.CONSUMER,
            {
                "penstock.query": self._query.name,
                "penstock.cycle": plan.cycle,
                "penstock.planned": plan.events,
                "penstock.partitions": len(plan.partitions),
            },
            start_time=planned_at,
        )
        if span.is_recording():
            for push in self._query.run(self._find_pushes(plan)):
                span.add_link(push)
        in_span = self._trace.set_span_in_context(span)
        self._tracer.start_span(first_part, in_span, start_time=planned_at).end(now)
        return span

    @contextmanager
    def _part(self, name: str) -> Iterator[None]:
        """Trace a part of the cycle. Of an error, only the class is recorded: the message may quote an event."""
        cycle = self._span
        assert cycle is not None  # noqa: S101 - the caller has started it
        span = self._tracer.start_span(name, self._trace.set_span_in_context(cycle))
        try:
            yield
        except BaseException as error:
            for failed in (span, cycle):
                failed.set_attribute("error.type", type(error).__qualname__)
                failed.set_status(self._trace.StatusCode.ERROR)
            span.end()
            self._end_span()
            raise
        span.end()

    def _end_span(self) -> None:
        span, self._span = self._span, None
        if span is not None:
            span.end()

    async def _plan_age_ns(self, plan: CyclePlan) -> int:
        params = {"query": self._query.id, "cycle": plan.cycle}
        try:
            async with self._query.log.database.connection() as conn:
                age = await fetch_scalar(conn, _sql["since_planned"], params)
        except (PenstockError, psycopg.Error):
            return 0  # an incomplete trace must not fail the cycle
        return int(age or 0)

    async def _find_pushes(self, plan: CyclePlan) -> Sequence[SpanContext]:
        """Return the spans of the pushes that the first events of the cycle come from."""
        log = self._query.log
        queues = {source.queue_id: source.queue for source in self.target.groups}
        parents: dict[str, None] = {}
        try:
            async with log.database.connection() as conn:
                for partition in plan.partitions[:_SEARCHED_PARTITIONS]:
                    queue = await log.catalog.get(queues[partition.queue_id])
                    count = min(_SEARCHED_EVENTS, partition.events)
                    for event in await read_events(conn, queue, partition.partition_id, partition.start, count, []):
                        if (parent := event.headers.get("traceparent")) is not None:
                            parents[parent] = None
        except (PenstockError, psycopg.Error):
            return []
        contexts = [_parse_traceparent(parent) for parent in [*parents][:_MAX_LINKS]]
        return [context for context in contexts if context.is_valid]


def _parse_traceparent(traceparent: str) -> SpanContext:
    from opentelemetry import trace
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    context = TraceContextTextMapPropagator().extract({"traceparent": traceparent})
    return trace.get_current_span(context).get_span_context()
