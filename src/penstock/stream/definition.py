"""The builder of streams. A definition needs no Spark session and does no I/O."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, Self

from penstock.core.errors import InvalidOption, InvalidRequest, short_repr
from penstock.core.names import check_name
from penstock.core.option_checks import check_integer
from penstock.stream import windows
from penstock.stream.aggregates import WindowAggregate, check_aggregate
from penstock.stream.checks.arguments import (
    check_aggregate_name,
    check_fold,
    check_function_options,
    check_output_name,
    parse_join_fields,
    parse_retries,
    parse_types,
    select_list,
)
from penstock.stream.checks.completeness import check_complete, check_joinable
from penstock.stream.checks.step_order import (
    check_aggregate_position,
    check_gate_position,
    check_key_position,
    check_step_position,
    check_window_position,
)
from penstock.stream.expression import Expression, check_expression, check_not_async, is_python, takes_context
from penstock.stream.gates import ConcurrencyGate, Gate, check_gate
from penstock.stream.joins import StreamJoin, make_join, parse_join_keys, parse_within
from penstock.stream.reference_tables import reference_table
from penstock.stream.sinks import SinkBinding, StreamSink
from penstock.stream.statement_or_step import statement_or_step
from penstock.stream.steps import (
    EnrichCall,
    FilterStep,
    FlatMapStep,
    ForeachStep,
    Lookup,
    MapStep,
    SqlFunction,
    SqlStep,
    Step,
    makes_columns,
    runs_in_python,
)
from penstock.stream.time_rules import TimeRules, parse_join_rules, parse_window_rules
from penstock.stream.views.view import MaterializedView
from penstock.stream.views.view_methods import ViewMethods
from penstock.stream.windows import Window


class NamedQueue(Protocol):
    """A queue handle, such as a client's."""

    @property
    def name(self) -> str:
        """The name of the queue."""


@dataclass(frozen=True, slots=True)
class Reduce:
    """A fold over the events of a window, in order."""

    function: Callable[[Any, Any], Any]
    initial: Any


@dataclass(frozen=True)
class Definition(ViewMethods):
    """A stream: the queues it reads, its steps, and the queue it writes to. Each method returns a new one.

    ::

        Definition.from_("orders").filter("amount > 0").window_tumbling(seconds=5).aggregate({"total": "sum(amount)"})
    """

    sources: tuple[str, ...]
    #: Spark types of fields. Those of other fields are inferred.
    schema: Mapping[str, str] = field(default_factory=dict)
    steps: tuple[Step, ...] = ()
    #: The key of the windows, of one or several parts; None: the key of the event.
    key: Expression | tuple[Expression, ...] | None = None
    #: Whether a null key and an empty one are different groups.
    distinguishes_null_key: bool = False
    windows: tuple[Window, ...] = ()
    time: TimeRules = field(default_factory=TimeRules)
    aggregates: Mapping[str, WindowAggregate] = field(default_factory=dict)
    fold: Reduce | None = None
    #: The fields of the event for a closed window, as SQL over its aggregates; empty: key, span and all aggregates.
    outputs: Mapping[str, str] = field(default_factory=dict)
    #: Windows for which it does not hold are computed, but neither shown nor sent.
    condition: str | None = None
    #: An event passes if all of them admit it.
    gates: tuple[Gate, ...] = ()
    #: The join that the events come from.
    joined: StreamJoin | None = None
    #: The operators of a materialized view. The stream then has no other steps, and its sink gets the changes.
    view: MaterializedView | None = None
    sink: str | None = None
    #: The key in the sink queue; None: the key of the event or of the window.
    sink_key: Expression | None = None
    #: Sinks on the queue of the results. They are not part of the query, which does not wait for them.
    sink_bindings: tuple[SinkBinding, ...] = ()
    #: The Python functions that its SQL calls, by name in lower case.
    functions: Mapping[str, SqlFunction] = field(default_factory=dict)

    @classmethod
    def from_(cls, *queues: str | NamedQueue, schema: Mapping[str, str] | None = None) -> Self:
        """Read one or more queues.

        Args:
            queues: Names of queues, or a client's handles of them.
            schema: Spark types of fields. The types of other fields are inferred.
        """
        if not queues:
            raise InvalidRequest("name the queue to read: Stream.from_('orders')")
        given: tuple[object, ...] = queues
        if any(isinstance(queue, list | tuple | set) for queue in given):
            raise InvalidRequest("give the queues one by one, Stream.from_('orders', 'refunds'), not as a list")
        sources = tuple(_queue_name(queue) for queue in queues)
        for queue in sources:
            if sources.count(queue) > 1:
                raise InvalidRequest(f"the queue {queue!r} is named twice; name it once")
        return cls(sources, parse_types("schema", schema) or {})

    # Steps

    def map(
        self,
        expression: Expression | Mapping[str, str],
        *,
        name: str | None = None,
        returns: Mapping[str, str] | None = None,
        **retry: Any,
    ) -> Self:
        """Replace each event.

        Args:
            expression: ``{"total": "price * quantity", "customer": "customer"}`` or ``"price * quantity AS total,
                customer"``, which Spark computes; or a function of the event that returns an event, a list of events,
                or None.
            name: The name of the step.
            returns: Spark types of the fields that a function returns.
            retry: ``retry_limit``, ``retry_pause_seconds`` and ``timeout_seconds`` of a function.
        """
        if isinstance(expression, Mapping):
            expression = select_list(expression)
        checked = check_expression(expression, "map")
        if self.view is not None:
            made: Self = self._view_builder.map_view(self, checked)
            return made
        check_function_options(checked, returns, retry)
        return self._add(
            MapStep(self._step_name("map", name), checked, parse_types("returns", returns), parse_retries(retry))
        )

    def filter(self, condition: Expression, *, name: str | None = None, **retry: Any) -> Self:
        """Pass the events for which a condition holds."""
        checked = check_expression(condition, "filter")
        if self.view is not None:
            made: Self = self._view_builder.filter_view(self, checked)
            return made
        check_function_options(checked, None, retry)
        return self._add(FilterStep(self._step_name("filter", name), checked, parse_retries(retry)))

    def flat_map(
        self,
        expression: Expression,
        *,
        name: str | None = None,
        returns: Mapping[str, str] | None = None,
        **retry: Any,
    ) -> Self:
        """Replace each event by any number of events: a function that returns a list, or SQL for an array."""
        checked = check_expression(expression, "flat_map")
        check_function_options(checked, returns, retry)
        return self._add(
            FlatMapStep(
                self._step_name("flat_map", name), checked, parse_types("returns", returns), parse_retries(retry)
            )
        )

    def enrich(
        self,
        source: Any,
        *,
        on: str | Sequence[str] | None = None,
        how: str = "left",
        name: str | None = None,
        refresh_seconds: float = 60.0,
        notify: str | None = None,
        concurrency: int = 16,
        returns: Mapping[str, str] | None = None,
        **retry: Any,
    ) -> Self:
        """Add fields to each event, from a reference table or from a function.

        Args:
            source: With ``on``, a PostgreSQL table or query (``"crm.customers"``, ``"SELECT ..."``) or a Spark
                DataFrame. Without ``on``, a plain or async function of the event that returns the fields to add.
            on: The fields to join on.
            how: ``"left"`` passes an event without a match, with nulls. ``"inner"`` drops it.
            name: The name of the step.
            refresh_seconds: How often the table is read again.
            notify: A channel of PostgreSQL. A NOTIFY on it refreshes the table at once.
            concurrency: The number of concurrent calls of an async function.
            returns: Spark types of the fields that a function returns.
            retry: ``retry_limit``, ``retry_pause_seconds`` and ``timeout_seconds`` of a function.
        """
        step_name = self._step_name("enrich", name)
        if on is None:
            if not is_python(source):
                raise InvalidRequest("enrich needs on=..., the fields to join on, or a function of an event")
            takes_context(source, "enrich")
            check_integer("concurrency", concurrency, 1, 1000)
            types, retries = parse_types("returns", returns), parse_retries(retry)
            return self._add(EnrichCall(step_name, source, concurrency, types, retries))
        check_function_options("", returns, retry)
        fields = parse_join_fields(on)
        if how not in ("left", "inner"):
            raise InvalidOption(f"how must be 'left' or 'inner', not {short_repr(how)}", option="how")
        return self._add(Lookup(step_name, reference_table(source, refresh_seconds, notify), fields, how))

    @statement_or_step
    def sql(self, query: str, *, name: str | None = None, **tables: Any) -> Self:
        """Run a SELECT over ``stream`` and reference tables given by name: ``.sql("SELECT ...", fx="app.rates")``."""
        from penstock.stream.sql.select_step import check_select_step, excludes_fields

        checked = check_select_step(query)
        if excludes_fields(checked) and not self._has_known_columns():
            raise InvalidRequest(
                "sql: the fields of events are not known before they arrive, so * EXCEPT cannot exclude any: name the "
                "fields to select"
            )
        if any(key.lower() == "stream" for key in tables):
            raise InvalidRequest("the table `stream` stands for the events: give the reference table another name")
        references = {key: reference_table(value) for key, value in tables.items()}
        return self._add(SqlStep(self._step_name("sql", name), checked, references))

    def foreach(self, function: Callable[..., Any], *, name: str | None = None, **retry: Any) -> Self:
        """Call a function for each event. After a failure, it may be called again for the same event."""
        if not is_python(function):
            raise InvalidRequest(f"foreach takes a function of an event, not {short_repr(function)}")
        check_not_async(function, "foreach")
        takes_context(function, "foreach")
        return self._add(ForeachStep(self._step_name("foreach", name), function, parse_retries(retry)))

    def join(
        self,
        other: Definition,
        *,
        on: str | Sequence[str] | Mapping[str, str],
        within: str | float | tuple[str | float, str | float] | None = None,
        how: str = "inner",
        event_time: Any = None,
        **rules: Any,
    ) -> Self:
        """Pair this stream's events with another's.

        With ``within``, a pair has two fields, ``left`` and ``right``. Without it, the result is a materialized view
        with the columns of both, which follows both streams forever.

        ::

            bids.join(auctions, on={"auction": "id"}, within="10 minutes").map("left.price, right.item")

        Args:
            other: The right stream.
            on: Fields that both streams have, or a mapping of this stream's fields to the other's. A pair has equal
                values in them.
            within: How far apart the times of a pair may be. Of two values, ``("0 seconds", "1 hour")``, the first is
                how far the other's event may be before this one's, the second how far after.
            how: ``"left"`` also passes an event of this stream without a pair, with ``right`` null, once none can
                arrive. Without ``within`` also ``"right"``, ``"full"``, ``"semi"`` and ``"anti"``.
            event_time: As with windows, for both sides or as a tuple of two.
            rules: ``allowed_lateness_seconds`` (``within`` by default), ``idle_flush_seconds`` and ``late``.
        """
        if not isinstance(other, Definition):
            raise InvalidRequest(
                f"join takes another stream, not {short_repr(other)}; a table is for .enrich(table, on=...)"
            )
        if within is None:
            if event_time is not None or rules:
                raise InvalidRequest("event_time and the rules of time belong to a join with within=...")
            view: Self = self._view_builder.join_view(self, other, parse_join_keys(on), how)
            return view
        check_joinable(self, other)
        return dataclasses.replace(
            type(self)((*self.sources, *other.sources)),
            joined=make_join(self, other, on, within, how, event_time),
            time=parse_join_rules(rules, max(parse_within(within))),
        )

    # Gates

    def gate(self, gate: Gate) -> Self:
        """Hold events back in their queue until the gate admits them, in order per key.

        An event must be admitted by all gates of a stream, and it is charged to all of them or to none. ::

            Stream.from_("ota.requests").gate(token_bucket_gate(capacity=200, refill_per_sec=100)).to("ota.approved")
        """
        checked = check_gate(gate)
        check_gate_position(self)
        return dataclasses.replace(self, gates=(*self.gates, checked))

    # Windows

    def key_by(self, *expressions: Expression) -> Self:
        """Group windows by another key than the event's, whatever the partitioning of the queue.

        Several expressions, as in ``key_by("country", "city")``, make a composite key: a JSON list of their values.
        Events for which the expression is null have no key. An empty text is the key ``""``, two quotes, because the
        key of an event must not be empty.
        """
        check_key_position(self)
        checked = tuple(check_expression(expression, "key_by") for expression in expressions)
        if not checked or (len(checked) > 1 and any(is_python(expression) for expression in checked)):
            raise InvalidRequest("key_by takes a field, several, or one function of an event")
        is_single = len(checked) == 1
        return dataclasses.replace(self, key=checked[0] if is_single else checked, distinguishes_null_key=is_single)

    def window_tumbling(self, *, seconds: float, **rules: Any) -> Self:
        """Add windows of one length, one after the other."""
        return self._add_window(windows.tumbling_window(seconds), rules)

    def window_sliding(self, *, size: float, slide: float, **rules: Any) -> Self:
        """Add windows of ``size`` seconds that start every ``slide`` seconds."""
        return self._add_window(windows.sliding_window(size, slide), rules)

    def window_session(self, *, gap: float, **rules: Any) -> Self:
        """Add windows that last while a key's events follow one another within ``gap`` seconds."""
        return self._add_window(windows.session_window(gap), rules)

    def window_calendar(
        self, *, every: str, timezone: str = "UTC", anchor_day: int = 1, anchor_month: int = 1, **rules: Any
    ) -> Self:
        """Add windows of a minute, hour, day, week, month, quarter or year on the clock of a time zone.

        Args:
            every: The unit.
            timezone: The name of the time zone.
            anchor_day: The day on which a month, quarter or year begins. In a month that is too short, its last day.
            anchor_month: A month in which a quarter or a year begins.
            rules: The time rules, as for the other windows.
        """
        return self._add_window(windows.calendar_window(every, timezone, anchor_day, anchor_month), rules)

    def aggregate(self, aggregates: Mapping[str, Any]) -> Self:
        """Aggregate the events of each window: ``{"count": agg.count(), "total": "sum(amount)"}``.

        Without a window, the result is a materialized view with one row per key, forever.
        """
        given: object = aggregates
        if not isinstance(given, Mapping) or not given:
            raise InvalidRequest("aggregate takes a mapping such as {'count': agg.count(), 'total': 'sum(amount)'}")
        for name in given:
            check_aggregate_name(name, given)
        checked = {name: check_aggregate(name, aggregate) for name, aggregate in given.items()}
        if not self.windows and not self.gates and self.joined is None:
            made: Self = self._view_builder.aggregate_view(self, checked)
            return made
        check_aggregate_position(self, "aggregate")
        return dataclasses.replace(self, aggregates=checked)

    def reduce(self, function: Callable[[Any, Any], Any], initial: Any) -> Self:
        """Fold the events of each window, in order: ``function(value, event)`` returns the next value, any JSON."""
        check_aggregate_position(self, "reduce")
        if not is_python(function):
            raise InvalidRequest("reduce takes a function of a value and an event, and the initial value")
        check_not_async(function, "reduce")
        check_fold(function, initial)
        return dataclasses.replace(self, fold=Reduce(function, initial))

    def select(self, fields: Mapping[str, str]) -> Self:
        """Choose the fields of the events for closed windows: SQL over ``key``, the span and the aggregates.

        ::

        .aggregate({"n": "count(*)", "total": "sum(amount)"}).select({"customer": "key", "mean": "total / n"})
        """
        if self.view is not None:
            return self.map(fields)
        given: object = fields
        if not self.aggregates or not isinstance(given, Mapping) or not given:
            raise InvalidRequest("select comes after .aggregate({...}) and takes fields such as {'mean': 'total / n'}")
        for name in given:
            check_output_name(name)
        return dataclasses.replace(
            self, outputs={name: self._check_window_expression(text) for name, text in given.items()}
        )

    def having(self, condition: str) -> Self:
        """Show and send only the windows for which a condition holds: SQL over ``key``, the span and the aggregates."""
        if self.view is not None:
            return self.filter(condition)
        if not self.aggregates:
            raise InvalidRequest("having comes after .aggregate({...}): .having('n > 10')")
        return dataclasses.replace(self, condition=self._check_window_expression(condition))

    # Results

    def to(self, queue: str | NamedQueue, *sinks: StreamSink, partition: Expression | None = None) -> Self:
        """Append the results to a queue.

        Args:
            queue: The name of the queue, or a client's handle of it.
            sinks: Sinks that read the results from the queue, each as a group of its own: ``.to("totals", Console(),
                File("totals.jsonl"))``. They run while the query runs. With the option ``sinks=False`` they do not,
                and ``Sinks().follow(stream)`` runs them elsewhere.
            partition: The key of the results in the queue.
        """
        for each in (queue, *sinks):
            if hasattr(each, "write") is (each is queue):
                raise InvalidRequest(
                    "the results go to a queue, and from there to sinks: .to('totals', File('totals.jsonl')); "
                    f"{short_repr(each)} is in the wrong position"
                )
        if self.sink is not None:
            raise InvalidRequest(f"the stream writes to {self.sink!r} already; read that queue for more")
        sink = _queue_name(queue)
        if sink in self.sources:
            raise InvalidRequest(f"the stream reads {sink!r}, so it would never end: write to another queue")
        key = None if partition is None else check_expression(partition, "partition")
        if key is not None and any(isinstance(gate, ConcurrencyGate) for gate in self.gates):
            raise InvalidRequest(
                "a concurrency gate counts the events in flight under the same key in the sink: leave out partition"
            )
        bindings = tuple(SinkBinding(sink, each) for each in sinks)
        return dataclasses.replace(self, sink=sink, sink_key=key, sink_bindings=bindings)

    def check(self) -> None:
        """Raise InvalidRequest if the stream is incomplete."""
        check_complete(self)

    def _add(self, step: Step) -> Self:
        check_step_position(self, step)
        return dataclasses.replace(self, steps=(*self.steps, step))

    def _has_known_columns(self) -> bool:
        """Return whether the events have the fields that a step names, and no others."""
        for step in reversed(self.steps):
            if runs_in_python(step):
                return False
            if makes_columns(step):
                return True
        return False

    def _step_name(self, kind: str, given: str | None) -> str:
        if given is not None:
            return check_name(given, "stage")
        taken = {step.name for step in self.steps}
        return next(n for n in (f"{kind}-{i}" for i in range(1, 10_000)) if n not in taken)

    def _add_window(self, window: Window, options: dict[str, Any]) -> Self:
        check_window_position(self, window)
        rules = parse_window_rules(options)
        if self.windows and options and rules != self.time:
            raise InvalidRequest(
                f"the windows of one stream share one time: give {', '.join(options)} at the first window only"
            )
        return dataclasses.replace(
            self, windows=(*self.windows, window), time=rules if options or not self.windows else self.time
        )

    def _check_window_expression(self, text: object) -> str:
        from penstock.stream.sql.postgres_translation import compile_window_expression

        if self.sink is not None:
            raise InvalidRequest("select and having come before .to(...): move them there")
        if not isinstance(text, str):
            raise InvalidRequest(f"select and having take SQL over the aggregates, 'total / n', not {short_repr(text)}")
        checked: str = check_expression(text, "select and having")
        compile_window_expression(checked, self.aggregates)
        return checked


def _queue_name(queue: str | NamedQueue) -> str:
    return check_name(queue if isinstance(queue, str) else getattr(queue, "name", queue), "queue")
