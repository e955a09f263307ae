"""The builder: what a pipeline is, with no Spark session and no I/O."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, Self

from penstock.core.errors import InvalidOption, InvalidRequest, shown
from penstock.core.names import check_name
from penstock.stream import windows
from penstock.stream.aggregates import Aggregate, check_aggregate
from penstock.stream.checks import (
    check_column,
    check_fold,
    only_for_functions,
    read_fields,
    read_retries,
    read_types,
    select_list,
)
from penstock.stream.expression import (
    Expression,
    check_expression,
    check_plain,
    is_frame,
    is_python,
    takes_context,
)
from penstock.stream.gates import Concurrency, Gate, check_gate
from penstock.stream.sql_select import check_select
from penstock.stream.steps import Call, Filter, FlatMap, Foreach, Lookup, Map, Sql, Step, Table
from penstock.stream.windows import Session, Window

LATE_POLICIES = ("dead_letter", "drop", "include")
_TABLE = re.compile(r'\s*(?:\w[\w$]*|"[^"]+")(?:\.(?:\w[\w$]*|"[^"]+")){0,2}\s*')
_QUERY = re.compile(r"(?:\s|--[^\n]*\n|/\*.*?\*/|\()*(?:select|with|table|values)\b", re.IGNORECASE | re.DOTALL)


class Outlet(Protocol):
    """A sink, as far as a stream has to know it."""

    name: str

    async def write(self, events: Any) -> None:
        """Take events."""


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
    #: What windows are kept by; None: the event's key.
    key: Expression | None = None
    windows: tuple[Window, ...] = ()
    time: TimeRules = TimeRules()
    aggregates: Mapping[str, Aggregate] = field(default_factory=dict)
    fold: Reduce | None = None
    #: All of them have to let an event through.
    gates: tuple[Gate, ...] = ()
    sink: str | None = None
    #: The key downstream; None: the same as the event's or the window's.
    sink_key: Expression | None = None
    #: What takes the results from there; no part of the query, which does not wait for it.
    outlets: tuple[Outlet, ...] = ()

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

    def sql(self, query: str, *, name: str | None = None, **tables: Any) -> Self:
        """Run a SELECT over ``stream`` and reference tables given by name: ``.sql("SELECT ...", fx="app.rates")``."""
        checked = check_select(query)
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

    # Gates

    def gate(self, gate: Gate) -> Self:
        """Hold events back in their queue until the gate lets them through, lane by lane, in order.

        Several gates in one stream must all let an event through, and it is charged to all of them or to none. ::

            Stream.from_("ota.requests").gate(token_bucket_gate(capacity=200, refill_per_sec=100)).to("ota.approved")
        """
        checked = check_gate(gate)
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

    def key_by(self, expression: Expression) -> Self:
        """Keep windows by something else than the event's key; right with any partitioning of the queue."""
        self._no_gate("key_by")
        if self.windows or self.sink is not None:
            raise InvalidRequest("key_by comes before the window and before .to(...): move it there")
        if self.key is not None:
            raise InvalidRequest("the stream has a key_by already; for several fields use key_by('concat_ws(...)')")
        return dataclasses.replace(self, key=check_expression(expression, "key_by"))

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

    # Where it goes

    def to(self, queue: str | Named, *sinks: Outlet, partition: Expression | None = None) -> Self:
        """Append the results to a queue; ``partition`` chooses their key there.

        ``sinks`` take them from there, each as a group of its own: ``.to("totals", Console(), File("totals.jsonl"))``.
        ``penstock run`` runs them beside the query; ``Sinks().follow(stream)`` does anywhere else.
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
        return dataclasses.replace(self, sink=sink, sink_key=key, outlets=sinks)

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
        if not self.windows and self.sink is None and not any(isinstance(step, Foreach) for step in self.steps):
            raise InvalidRequest("the stream goes nowhere: end it with .to(queue), .foreach(f) or a window")

    def _no_gate(self, what: str) -> None:
        if self.gates:
            raise InvalidRequest(
                f"{what} comes after the gate, and would see events before the gate has let them through: put it "
                "before the gate, or into another stream that reads the queue of .to(...)"
            )

    def _step(self, step: Step) -> Self:
        self._no_gate(step.name)
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

    def _name(self, kind: str, given: str | None) -> str:
        if given is not None:
            return check_name(given, "stage")
        taken = {step.name for step in self.steps}
        return next(n for n in (f"{kind}-{i}" for i in range(1, 10_000)) if n not in taken)

    def _window(self, window: Window, given: dict[str, Any]) -> Self:
        self._no_gate("a window")
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


def _queue_name(queue: str | Named) -> str:
    return check_name(queue if isinstance(queue, str) else getattr(queue, "name", queue), "queue")


def table(source: Any, refresh_seconds: float = 60.0, notify: str | None = None) -> Table:
    """A reference table from what stands for one: a name, a query, a DataFrame, a function that returns one."""
    if isinstance(source, Table):
        return source
    windows.micros("refresh_seconds", refresh_seconds)
    if notify is not None:
        check_name(notify, "channel")
    if isinstance(source, str):
        text = source.strip().removesuffix(";").rstrip()
        if not _QUERY.match(text):
            if not _TABLE.fullmatch(text):
                raise InvalidRequest(
                    f"a reference table is a name such as 'crm.customers' or a query 'SELECT ...', not {shown(source)}"
                )
            text = f"TABLE {text}"
        return Table(query=text, refresh_seconds=refresh_seconds, notify=notify)
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
    if event_time is not None and event_time is not True and not isinstance(event_time, str):
        if not is_python(event_time):
            raise InvalidOption(
                f"event_time is a field, a function of an event or True, not {shown(event_time)}", option="event_time"
            )
        check_plain(event_time, "event_time")
        takes_context(event_time, "event_time")
    if isinstance(event_time, str) and not all(part.strip() for part in event_time.split(".")):
        raise InvalidOption(
            f"event_time {shown(event_time)} names no field: write 'created_at', or 'order.created_at' for one inside",
            option="event_time",
        )
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
