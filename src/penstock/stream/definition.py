"""The builder: what a pipeline is, with no Spark session and no I/O."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, Self

from penstock.core.errors import InvalidOption, InvalidRequest, shown
from penstock.core.names import check_name
from penstock.stream import joins, windows
from penstock.stream.aggregates import Aggregate, check_aggregate
from penstock.stream.expression import (
    Expression,
    check_expression,
    check_plain,
    is_frame,
    is_python,
    takes_context,
)
from penstock.stream.gates import Concurrency, Gate, check_gate
from penstock.stream.joins import Join
from penstock.stream.sink_binding import Flow, Outlet
from penstock.stream.sql.select_rules import check_select, names_exceptions
from penstock.stream.sql.statement_or_step import statement_or_step
from penstock.stream.steps import (
    Call,
    Filter,
    FlatMap,
    Foreach,
    Lookup,
    Map,
    Sql,
    Step,
    Table,
    makes_columns,
    runs_in_python,
)
from penstock.stream.validation import (
    check_column,
    check_field,
    check_fold,
    check_frame_maker,
    check_time,
    only_for_functions,
    read_fields,
    read_retries,
    read_types,
    select_list,
)
from penstock.stream.windows import Session, Window

LATE_POLICIES = ("dead_letter", "drop", "include")
_TABLE = re.compile(r'\s*(?:\w[\w$]*|"[^"]+")(?:\.(?:\w[\w$]*|"[^"]+")){0,2}\s*')
#: PostgreSQL cuts off the rest.
_MOST_OF_A_NAME = 63
_QUERY = re.compile(r"(?:\s|--[^\n]*\n|/\*.*?\*/|\()*(?:select|with|table|values)\b", re.IGNORECASE | re.DOTALL)


class Named(Protocol):
    """What has a queue's name, as the handle of a client does."""

    @property
    def name(self) -> str:
        """The queue's name."""


@dataclass(frozen=True, slots=True)
class TimeRules:
    """Which time the windows go by, and when they close."""

    #: None: when the event was appended. True: when it happened, as its producer said. A dotted field of the data,
    #: or a function of an event: that.
    event_time: Any = None
    #: A window closes this long after its end.
    grace_us: int = 0
    #: How far the events of a partition may be out of order.
    lateness_us: int = 0
    #: A partition that has had no event for this long no longer holds windows open.
    idle_flush_us: int = 5_000_000
    late: str = "dead_letter"


@dataclass(frozen=True, slots=True)
class Reduce:
    """A fold over the events of a window, in order."""

    function: Callable[[Any, Any], Any]
    initial: Any


@dataclass(frozen=True)
class Definition:
    """A stream: where it reads, what it does, where it writes. Each method returns a new one.

    ::

        Definition.from_("orders").filter("amount > 0").window_tumbling(seconds=5).aggregate({"total": "sum(amount)"})
    """

    sources: tuple[str, ...]
    #: Types of fields, as Spark spells them; the others are inferred.
    schema: Mapping[str, str] = field(default_factory=dict)
    steps: tuple[Step, ...] = ()
    #: What windows are kept by; None: the event's key. Several: all of them together.
    key: Expression | tuple[Expression, ...] | None = None
    #: Whether no key is another key than the empty text, as in SQL; it is the same to the builder.
    null_apart: bool = False
    windows: tuple[Window, ...] = ()
    time: TimeRules = TimeRules()
    aggregates: Mapping[str, Aggregate] = field(default_factory=dict)
    fold: Reduce | None = None
    #: The fields of a closed window, as SQL over its aggregates; empty: its key, its span and all aggregates.
    outputs: Mapping[str, str] = field(default_factory=dict)
    #: Windows for which it does not hold are kept, and not shown or sent on.
    condition: str | None = None
    #: All of them have to let an event through.
    gates: tuple[Gate, ...] = ()
    #: Where its events come from, if they are pairs of two streams' events.
    joined: Join | None = None
    sink: str | None = None
    #: The key downstream; None: the same as the event's or the window's.
    sink_key: Expression | None = None
    #: What takes the results from there; no part of the query, which does not wait for it.
    outlets: tuple[Flow, ...] = ()

    @classmethod
    def from_(cls, *queues: str | Named, schema: Mapping[str, str] | None = None) -> Self:
        """Read a queue, or several, by name or as a client's handle; ``schema`` declares types of fields."""
        if not queues:
            raise InvalidRequest("name the queue to read: Stream.from_('orders')")
        given: tuple[object, ...] = queues
        if any(isinstance(queue, list | tuple | set) for queue in given):
            raise InvalidRequest("give the queues one by one, Stream.from_('orders', 'refunds'), not as a list")
        sources = tuple(_queue_name(queue) for queue in queues)
        for queue in sources:
            if sources.count(queue) > 1:
                raise InvalidRequest(f"the queue {queue!r} is named twice; name it once, each is read once")
        return cls(sources, read_types("schema", schema) or {})

    # Steps

    def map(
        self,
        expression: Expression | Mapping[str, str],
        *,
        name: str | None = None,
        returns: Mapping[str, str] | None = None,
        **retry: Any,
    ) -> Self:
        """Make each event another one.

        ``{"total": "price * quantity", "customer": "customer"}`` or ``"price * quantity AS total, customer"`` runs
        inside Spark. A function gets the event's data and returns what takes its place: one event, a list of
        several, or None for none.
        """
        if isinstance(expression, Mapping):
            expression = select_list(expression)
        checked = check_expression(expression, "map")
        only_for_functions(checked, returns, retry)
        return self._step(Map(self._name("map", name), checked, read_types("returns", returns), read_retries(retry)))

    def filter(self, condition: Expression, *, name: str | None = None, **retry: Any) -> Self:
        """Keep the events for which the condition holds."""
        checked = check_expression(condition, "filter")
        only_for_functions(checked, None, retry)
        return self._step(Filter(self._name("filter", name), checked, read_retries(retry)))

    def flat_map(
        self,
        expression: Expression,
        *,
        name: str | None = None,
        returns: Mapping[str, str] | None = None,
        **retry: Any,
    ) -> Self:
        """Make each event any number of others: a function that returns a list, or SQL for an array of structs."""
        checked = check_expression(expression, "flat_map")
        only_for_functions(checked, returns, retry)
        return self._step(
            FlatMap(self._name("flat_map", name), checked, read_types("returns", returns), read_retries(retry))
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
        """Add fields from somewhere else.

        With ``on``: from a PostgreSQL table or query (``"crm.customers"``, ``"SELECT ..."``) or a Spark DataFrame,
        joined on those fields and read again every ``refresh_seconds`` or on NOTIFY. Without: from a function, plain
        or async, that gets the event and returns the fields to add; ``concurrency`` calls run at a time.
        """
        called = self._name("enrich", name)
        if on is None:
            if not is_python(source):
                raise InvalidRequest("enrich needs on=..., the fields to join on, or a function of an event")
            takes_context(source, "enrich")
            calls: object = concurrency
            if isinstance(calls, bool) or not isinstance(calls, int) or not 1 <= calls <= 1000:
                raise InvalidOption(
                    f"concurrency must be a whole number from 1 to 1000, not {shown(concurrency)}", option="concurrency"
                )
            return self._step(Call(called, source, concurrency, read_types("returns", returns), read_retries(retry)))
        only_for_functions("", returns, retry)
        columns = read_fields(on)
        if how not in ("left", "inner"):
            raise InvalidOption(f"how must be 'left' or 'inner', not {shown(how)}", option="how")
        return self._step(Lookup(called, table(source, refresh_seconds, notify), columns, how))

    @statement_or_step
    def sql(self, query: str, *, name: str | None = None, **tables: Any) -> Self:
        """Run a SELECT over ``stream`` and reference tables given by name: ``.sql("SELECT ...", fx="app.rates")``."""
        checked = check_select(query)
        if names_exceptions(checked) and not self._has_columns():
            raise InvalidRequest(
                "sql: what events have beside the fields that are named is not known before they come, so * EXCEPT "
                "cannot leave anything out: name the fields that are wanted"
            )
        if any(key.lower() == "stream" for key in tables):
            raise InvalidRequest("the table `stream` stands for the events: give the reference table another name")
        return self._step(Sql(self._name("sql", name), checked, {key: table(value) for key, value in tables.items()}))

    def foreach(self, function: Callable[..., Any], *, name: str | None = None, **retry: Any) -> Self:
        """Call a function for each event. It may be called again for the same event after a failure."""
        if not is_python(function):
            raise InvalidRequest(f"foreach takes a function of an event, not {shown(function)}")
        check_plain(function, "foreach")
        takes_context(function, "foreach")
        return self._step(Foreach(self._name("foreach", name), function, read_retries(retry)))

    def join(
        self,
        other: Definition,
        *,
        on: str | Sequence[str] | Mapping[str, str],
        within: str | float | tuple[str | float, str | float],
        how: str = "inner",
        event_time: Any = None,
        **rules: Any,
    ) -> Self:
        """Pairs of this stream's events and another's, with the same values of ``on`` and times close together.

        ::

            bids.join(auctions, on={"auction": "id"}, within="10 minutes").map("left.price, right.item")

        A pair has two fields, ``left`` and ``right``. ``on`` names fields that both have, or maps those of this stream
        to those of the other. ``within`` is how far apart the times may be; two of them, ``("0 seconds", "1 hour")``,
        are how far before and after this one's the other's may be. With ``how="left"``, an event of this stream that is
        in no pair goes on with ``right`` null, once none can come any more. ``event_time`` is as with windows, or two
        of them; so are ``allowed_lateness_seconds`` (as long as ``within``, unless it is given),
        ``idle_flush_seconds`` and ``late``.
        """
        return dataclasses.replace(
            type(self)((*self.sources, *_checked_sides(self, other))),
            joined=joins.join(self, other, on, within, how, event_time),
            time=_join_rules(within, rules),
        )

    # Gates

    def gate(self, gate: Gate) -> Self:
        """Hold events back in their queue until the gate lets them through, lane by lane, in order.

        Several gates in one stream must all let an event through, and it is charged to all of them or to none. ::

            Stream.from_("ota.requests").gate(token_bucket_gate(capacity=200, refill_per_sec=100)).to("ota.approved")
        """
        checked = check_gate(gate)
        self._no_join("a gate")
        if self.windows:
            raise InvalidRequest(
                "a gate and a window do not go into one stream, because a gate lets part of a cycle through and a "
                "window counts all of it: end this one with .to(queue), and gate or aggregate that queue with another"
            )
        if self.sink is not None:
            raise InvalidRequest("gate comes before .to(...): move it there")
        if self.key is not None:
            raise InvalidRequest(
                "a gate has one budget for each lane of the queue, so key_by cannot give it another key: let a stream "
                "in front repartition, Stream.from_(...).to('by-tenant', partition='tenant'), into a queue that was "
                "created by 'key', and gate that queue"
            )
        if len(self.sources) > 1:
            raise InvalidRequest(
                "a gate has one budget for each lane of one queue: bring the queues together with a stream "
                "in front, Stream.from_('a', 'b').to('all'), and gate that queue"
            )
        return dataclasses.replace(self, gates=(*self.gates, checked))

    # Windows

    def key_by(self, *expressions: Expression) -> Self:
        """Keep windows by something else than the event's key; right with any partitioning of the queue.

        Several, as in ``key_by("country", "city")``, are a key together: their values as a list in JSON.
        """
        self._no_gate("key_by")
        self._no_join("key_by")
        if self.windows or self.sink is not None:
            raise InvalidRequest("key_by comes before the window and before .to(...): move it there")
        if self.key is not None:
            raise InvalidRequest("the stream has a key_by already; for several fields write key_by('country', 'city')")
        checked = tuple(check_expression(expression, "key_by") for expression in expressions)
        if not checked or (len(checked) > 1 and any(is_python(expression) for expression in checked)):
            raise InvalidRequest("key_by takes a field, several, or one function of an event")
        return dataclasses.replace(self, key=checked[0] if len(checked) == 1 else checked)

    def window_tumbling(self, *, seconds: float, **rules: Any) -> Self:
        """Windows of one length, one after the other."""
        return self._window(windows.tumbling(seconds), rules)

    def window_sliding(self, *, size: float, slide: float, **rules: Any) -> Self:
        """Windows of ``size`` seconds that begin every ``slide`` seconds."""
        return self._window(windows.sliding(size, slide), rules)

    def window_session(self, *, gap: float, **rules: Any) -> Self:
        """Windows that last while a key's events follow one another within ``gap`` seconds."""
        return self._window(windows.session(gap), rules)

    def window_calendar(self, *, every: str, timezone: str = "UTC", **rules: Any) -> Self:
        """A minute, hour, day or week, as the clocks of a time zone show it."""
        return self._window(windows.calendar(every, timezone), rules)

    def aggregate(self, aggregates: Mapping[str, Any]) -> Self:
        """Compute these of each window: ``{"count": agg.count(), "total": "sum(amount)"}``."""
        given: object = aggregates
        if not isinstance(given, Mapping) or not given:
            raise InvalidRequest("aggregate takes a mapping such as {'count': agg.count(), 'total': 'sum(amount)'}")
        self._needs_window("aggregate")
        for name in given:
            check_column(name, given)
        return dataclasses.replace(self, aggregates={name: check_aggregate(name, a) for name, a in given.items()})

    def reduce(self, function: Callable[[Any, Any], Any], initial: Any) -> Self:
        """Fold the events of each window, in order: ``function(value, event)`` returns the next value, any JSON."""
        self._needs_window("reduce")
        if not is_python(function):
            raise InvalidRequest("reduce takes a function of a value and an event, and the value to begin with")
        check_plain(function, "reduce")
        check_fold(function, initial)
        return dataclasses.replace(self, fold=Reduce(function, initial))

    def select(self, fields: Mapping[str, str]) -> Self:
        """Make the events of closed windows of these fields: SQL over ``key``, the span and the aggregates.

        ::

        .aggregate({"n": "count(*)", "total": "sum(amount)"}).select({"customer": "key", "mean": "total / n"})
        """
        given: object = fields
        if not self.aggregates or not isinstance(given, Mapping) or not given:
            raise InvalidRequest("select comes after .aggregate({...}) and takes fields such as {'mean': 'total / n'}")
        for name in given:
            check_field(name)
        return dataclasses.replace(self, outputs={name: self._over_windows(text) for name, text in given.items()})

    def having(self, condition: str) -> Self:
        """Show and send on only those windows for which it holds: SQL over ``key``, the span and the aggregates."""
        if not self.aggregates:
            raise InvalidRequest("having comes after .aggregate({...}): .having('n > 10')")
        return dataclasses.replace(self, condition=self._over_windows(condition))

    def _over_windows(self, text: object) -> str:
        from penstock.stream.sql.window_outputs import final_of

        if self.sink is not None:
            raise InvalidRequest("select and having come before .to(...): move them there")
        if not isinstance(text, str):
            raise InvalidRequest(f"select and having take SQL over the aggregates, 'total / n', not {shown(text)}")
        checked: str = check_expression(text, "select and having")
        final_of(checked, self.aggregates)
        return checked

    # Where it goes

    def to(self, queue: str | Named, *sinks: Outlet, partition: Expression | None = None) -> Self:
        """Append the results to a queue; ``partition`` chooses their key there.

        ``sinks`` take them from there, each as a group of its own: ``.to("totals", Console(), File("totals.jsonl"))``.
        They run beside the query, for as long as it does; with the option ``sinks=False`` they do not, and
        ``Sinks().follow(stream)`` runs them anywhere else.
        """
        for each in (queue, *sinks):
            if hasattr(each, "write") is (each is queue):
                raise InvalidRequest(
                    f"the results go to a queue, and from there to sinks: .to('totals', File('totals.jsonl')); "
                    f"{shown(each)} is in the other's place"
                )
        if self.sink is not None:
            raise InvalidRequest(f"the stream goes to {self.sink!r} already; read that queue for more")
        sink = _queue_name(queue)
        if sink in self.sources:
            raise InvalidRequest(f"the stream reads {sink!r}, so it would never end: write to another queue")
        key = None if partition is None else check_expression(partition, "partition")
        if key is not None and any(isinstance(gate, Concurrency) for gate in self.gates):
            raise InvalidRequest(
                "a concurrency gate counts what is in flight under the same key in the sink: leave partition=... out"
            )
        flows = tuple(Flow(sink, each) for each in sinks)
        return dataclasses.replace(self, sink=sink, sink_key=key, outlets=flows)

    # Inside

    def check(self) -> None:
        """Raise if the stream is not whole."""
        if self.windows and not self.aggregates and self.fold is None:
            raise InvalidRequest("the stream has a window and nothing to compute in it: add .aggregate({...})")
        if self.fold is not None and any(isinstance(window, Session) for window in self.windows):
            raise InvalidRequest(
                "two sessions can become one, and reduce cannot make one value of two: use .aggregate({...}), "
                "or another window"
            )
        if self.gates and self.sink is None:
            raise InvalidRequest("what the gate lets through has to go somewhere: end the stream with .to(queue)")
        if not self.windows and self.key is not None:
            raise InvalidRequest("key_by says what windows are kept by: add a window, or use .to(queue, partition=...)")
        if self.joined is not None and self.sink is None:
            raise InvalidRequest("pairs go to a queue: end the stream with .to(queue)")
        if not self.windows and self.sink is None and not any(isinstance(step, Foreach) for step in self.steps):
            raise InvalidRequest("the stream goes nowhere: end it with .to(queue), .foreach(f) or a window")

    def _no_join(self, what: str) -> None:
        if self.joined is not None:
            raise InvalidRequest(
                f"{what} does not go into one stream with a join: end this one with .to(queue), and let another read it"
            )

    def _no_gate(self, what: str) -> None:
        if self.gates:
            raise InvalidRequest(
                f"{what} comes after the gate, and would see events before the gate has let them through: put it "
                "before the gate, or into another stream that reads the queue of .to(...)"
            )

    def _step(self, step: Step) -> Self:
        self._no_gate(step.name)
        if self.joined is not None and runs_in_python(step):
            raise InvalidRequest(
                f"{step.name} is a function, and what comes after a join is SQL: put it before the join, or into a "
                "stream that reads the queue of .to(...)"
            )
        if self.windows or self.sink is not None:
            raise InvalidRequest(
                f"{step.name} comes after the window or after .to(...): put it before, or read the result's queue "
                "with another stream"
            )
        if self.key is not None and isinstance(step, Map | FlatMap | Sql):
            raise InvalidRequest(f"{step.name} changes the events that key_by looks at: put key_by after it")
        if any(other.name == step.name for other in self.steps):
            raise InvalidRequest(f"two steps are called {step.name!r}; give each a name of its own")
        return dataclasses.replace(self, steps=(*self.steps, step))

    def _has_columns(self) -> bool:
        """Whether the fields of the events are those that a step has named, and no others."""
        for step in reversed(self.steps):
            if runs_in_python(step):
                return False
            if makes_columns(step):
                return True
        return False

    def _name(self, kind: str, given: str | None) -> str:
        if given is not None:
            return check_name(given, "stage")
        taken = {step.name for step in self.steps}
        return next(n for n in (f"{kind}-{i}" for i in range(1, 10_000)) if n not in taken)

    def _window(self, window: Window, given: dict[str, Any]) -> Self:
        self._no_gate("a window")
        self._no_join("a window")
        if self.aggregates or self.fold is not None or self.sink is not None:
            raise InvalidRequest("a window comes before .aggregate(...), .reduce(...) and .to(...): move it there")
        if any(isinstance(other, Session) != isinstance(window, Session) for other in self.windows):
            raise InvalidRequest("session windows do not mix with others: use two streams")
        if window in self.windows:
            raise InvalidRequest(f"the window ({window.describe()}) is there twice: leave one out")
        rules = _time_rules(given)
        if self.windows and given and rules != self.time:
            raise InvalidRequest(
                f"the windows of one stream go by one time: say {', '.join(given)} at the first window only"
            )
        return dataclasses.replace(
            self, windows=(*self.windows, window), time=rules if given or not self.windows else self.time
        )

    def _needs_window(self, what: str) -> None:
        if not self.windows:
            raise InvalidRequest(f"{what} needs a window before it, such as .window_tumbling(seconds=5)")
        if self.aggregates or self.fold is not None:
            raise InvalidRequest(f"{what}: the stream aggregates already; put everything into one .aggregate({{...}})")


def _checked_sides(left: Definition, right: object) -> tuple[str, ...]:
    """The queues of the right, if the two can be joined."""
    if not isinstance(right, Definition):
        raise InvalidRequest(f"join takes another stream, not {shown(right)}; a table is for .enrich(table, on=...)")
    for side in (left, right):
        side._no_join("a second join")
        if side.windows or side.key is not None or side.gates or side.sink is not None:
            raise InvalidRequest(
                "a join takes streams of events, without windows, keys, gates and .to(...): let those write to a "
                "queue, and join what is in it"
            )
    both = sorted(set(left.sources) & set(right.sources))
    if both:
        raise InvalidRequest(
            f"both sides read {', '.join(map(repr, both))}: bring what one of them needs into a queue of its own "
            f"first, Stream.from_({both[0]!r}).to('{both[0]}-copy')"
        )
    return right.sources


def _join_rules(within: Any, given: dict[str, Any]) -> TimeRules:
    known = ("allowed_lateness_seconds", "idle_flush_seconds", "late")
    for name in given:
        if name not in known:
            raise InvalidOption(f"{name!r} is no option of a join; there are {', '.join(known)}", option=name)
    if given.get("late") == "include":
        raise InvalidOption("late is 'dead_letter' or 'drop': what a late event belongs to is gone", option="late")
    rules = _time_rules(given)
    if "allowed_lateness_seconds" in given:
        return rules
    return dataclasses.replace(rules, lateness_us=max(joins.reach(within)))


def _queue_name(queue: str | Named) -> str:
    return check_name(queue if isinstance(queue, str) else getattr(queue, "name", queue), "queue")


def table(source: Any, refresh_seconds: float = 60.0, notify: str | None = None) -> Table:
    """A reference table from what stands for one: a name, a query, a DataFrame, a function that returns one."""
    if isinstance(source, Table):
        return source
    windows.micros("refresh_seconds", refresh_seconds)
    if notify is not None:
        check_name(notify, "channel")
        if len(notify.encode()) > _MOST_OF_A_NAME:
            raise InvalidOption(
                f"a channel of PostgreSQL's has a name of {_MOST_OF_A_NAME} bytes at the most, and {shown(notify)} has "
                "more: nothing would be heard on it",
                option="notify",
            )
    if isinstance(source, str):
        text = source.strip().removesuffix(";").rstrip()
        if not _QUERY.match(text):
            if not _TABLE.fullmatch(text):
                raise InvalidRequest(
                    f"a reference table is a name such as 'crm.customers' or a query 'SELECT ...', not {shown(source)}"
                )
            text = f"TABLE {text}"
        return Table(query=text, refresh_seconds=refresh_seconds, notify=notify)
    if is_python(source):
        check_frame_maker(source)
    if not is_frame(source) and not is_python(source):
        raise InvalidRequest(
            "a reference table is a name, a query, a Spark DataFrame or a function that returns one, "
            f"not {shown(source)}"
        )
    return Table(frame=source, refresh_seconds=refresh_seconds, notify=notify)


def _time_rules(given: dict[str, Any]) -> TimeRules:
    known = ("event_time", "grace_seconds", "allowed_lateness_seconds", "idle_flush_seconds", "late")
    for name in given:
        if name not in known:
            raise InvalidOption(f"{name!r} is no option of a window; there are {', '.join(known)}", option=name)
    event_time = given.get("event_time")
    check_time(event_time)
    late = given.get("late", "dead_letter")
    if late not in LATE_POLICIES:
        raise InvalidOption(f"late must be one of {', '.join(LATE_POLICIES)}, not {shown(late)}", option="late")
    return TimeRules(
        event_time,
        windows.micros("grace_seconds", given.get("grace_seconds", 0), least=0),
        windows.micros("allowed_lateness_seconds", given.get("allowed_lateness_seconds", 0), least=0),
        windows.micros("idle_flush_seconds", given.get("idle_flush_seconds", 5), least=0.1),
        late,
    )
