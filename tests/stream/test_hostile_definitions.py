"""Whatever a stream, a gate, a rule or a sink is given, it takes it or says what is wrong with it, in our words."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest

from penstock import agg
from penstock.connector.options import OPTIONS, parse_read_options, parse_result_options, parse_write_options
from penstock.core.errors import PenstockError
from penstock.engine.run_options import RunOptions
from penstock.sinks import Console, File, Table, Webhook
from penstock.sinks.files.parquet import Parquet
from penstock.sinks.forward import Forward
from penstock.sinks.spec import read_sink
from penstock.stream import gates, rules
from penstock.stream.definition import Definition
from penstock.stream.fingerprint import describe, fingerprint
from tests.corpus.hostile import VALUES

STREAM = Definition.from_("orders")
WINDOWED = STREAM.window_tumbling(seconds=5)
COUNTED = WINDOWED.aggregate({"n": "count(*)"})


def f(value: Any, event: Any = None) -> Any:
    return value


def joined(**options: Any) -> Definition:
    return STREAM.join(Definition.from_("payments"), **{"on": "id", "within": 5, **options})


def hashable(value: Any) -> bool:
    """Whether a mapping can have it as a key, which not even all numbers can be."""
    try:
        hash(value)
    except TypeError:
        return False
    return True


def option(name: str, value: Any) -> Any:
    """An option of the connector, as which Spark hands on texts alone."""
    if not isinstance(value, str):
        return None
    if name in ("query", "rows"):
        return parse_result_options({"query": "q", name: value})
    if name in ("keyColumn", "txnAppId", "txnVersion", "fullQueueTimeoutSeconds"):
        return parse_write_options({"queue": "a", "txnAppId": "a", "txnVersion": "1", name: value}, streaming=False)
    return parse_read_options({"queue": "a", name: value}, streaming=name in ("maxRecordsPerTrigger", "group"))


#: Each takes one value in one place, and is otherwise as it should be.
PLACES: dict[str, Callable[[Any], Any]] = {
    "from_": Definition.from_,
    "from_ two": lambda v: Definition.from_("a", v),
    "schema": lambda v: Definition.from_("a", schema=v),
    "schema type": lambda v: Definition.from_("a", schema={"x": v}),
    "map": STREAM.map,
    "map field": lambda v: STREAM.map({"a": v}),
    "map name": lambda v: STREAM.map("a", name=v),
    "map returns": lambda v: STREAM.map(f, returns=v),
    "map retry_limit": lambda v: STREAM.map(f, retry_limit=v),
    "map retry_pause_seconds": lambda v: STREAM.map(f, retry_pause_seconds=v),
    "map timeout_seconds": lambda v: STREAM.map(f, timeout_seconds=v),
    "filter": STREAM.filter,
    "flat_map": STREAM.flat_map,
    "enrich": lambda v: STREAM.enrich(v, on="customer"),
    "enrich function": STREAM.enrich,
    "enrich on": lambda v: STREAM.enrich("crm.customers", on=v),
    "enrich how": lambda v: STREAM.enrich("crm.customers", on="customer", how=v),
    "enrich refresh": lambda v: STREAM.enrich("crm.customers", on="customer", refresh_seconds=v),
    "enrich notify": lambda v: STREAM.enrich("crm.customers", on="customer", notify=v),
    "enrich concurrency": lambda v: STREAM.enrich(f, concurrency=v),
    "sql": STREAM.sql,
    "sql table": lambda v: STREAM.sql("SELECT * FROM stream JOIN x USING (a)", x=v),
    "statement": Definition.sql,
    "statement table": lambda v: Definition.sql("INSERT INTO b SELECT n FROM a JOIN x USING (n)", x=v),
    "foreach": STREAM.foreach,
    "join": lambda v: STREAM.join(v, on="id", within=5),
    "join on": lambda v: joined(on=v),
    "join on field": lambda v: joined(on={"id": v}),
    "join within": lambda v: joined(within=v),
    "join within two": lambda v: joined(within=(v, 1)),
    "join how": lambda v: joined(how=v),
    "join event_time": lambda v: joined(event_time=v),
    "join event_time two": lambda v: joined(event_time=("at", v)),
    "join lateness": lambda v: joined(allowed_lateness_seconds=v),
    "join idle_flush": lambda v: joined(idle_flush_seconds=v),
    "join late": lambda v: joined(late=v),
    "gate": STREAM.gate,
    "key_by": STREAM.key_by,
    "tumbling": lambda v: STREAM.window_tumbling(seconds=v),
    "sliding size": lambda v: STREAM.window_sliding(size=v, slide=1),
    "sliding slide": lambda v: STREAM.window_sliding(size=10, slide=v),
    "session": lambda v: STREAM.window_session(gap=v),
    "calendar": lambda v: STREAM.window_calendar(every=v),
    "calendar day": lambda v: STREAM.window_calendar(every="month", anchor_day=v),
    "calendar month": lambda v: STREAM.window_calendar(every="year", anchor_month=v),
    "calendar zone": lambda v: STREAM.window_calendar(every="day", timezone=v),
    "event_time": lambda v: STREAM.window_tumbling(seconds=5, event_time=v),
    "grace": lambda v: STREAM.window_tumbling(seconds=5, grace_seconds=v),
    "lateness": lambda v: STREAM.window_tumbling(seconds=5, allowed_lateness_seconds=v),
    "idle_flush": lambda v: STREAM.window_tumbling(seconds=5, idle_flush_seconds=v),
    "late": lambda v: STREAM.window_tumbling(seconds=5, late=v),
    "aggregate": WINDOWED.aggregate,
    "aggregate text": lambda v: WINDOWED.aggregate({"n": v}),
    "aggregate name": lambda v: WINDOWED.aggregate({v if isinstance(v, str) else str(type(v)): "count()"}),
    "select": COUNTED.select,
    "select field": lambda v: COUNTED.select({"mean": v}),
    "select name": lambda v: COUNTED.select({v: "n"}) if hashable(v) else None,
    "having": COUNTED.having,
    "having text": lambda v: COUNTED.having(f"key = '{v}'") if isinstance(v, str) else None,
    "reduce": lambda v: WINDOWED.reduce(v, 0),
    "reduce initial": lambda v: WINDOWED.reduce(f, v),
    "to": STREAM.to,
    "to sink": lambda v: STREAM.to("totals", v),
    "to partition": lambda v: STREAM.to("totals", partition=v),
    **{f"agg.{name}": getattr(agg, name) for name in ("sum", "avg", "min", "max", "first", "last", "stddev", "top_k")},
    "agg.percentile": lambda v: agg.percentile("a", v),
    "agg.top_k k": lambda v: agg.top_k("a", v),
    "bucket capacity": lambda v: gates.token_bucket_gate(capacity=v, refill_per_sec=1),
    "bucket refill": lambda v: gates.token_bucket_gate(capacity=1, refill_per_sec=v),
    "bucket cost": lambda v: gates.token_bucket_gate(capacity=1, refill_per_sec=1, cost_fn=v),
    "bucket zero": lambda v: gates.token_bucket_gate(capacity=1, refill_per_sec=1, allow_zero_cost=v),
    "bucket shared": lambda v: gates.token_bucket_gate(capacity=1, refill_per_sec=1, shared=v),
    "window limit": lambda v: gates.sliding_window_gate(limit=v, window_sec=1),
    "window span": lambda v: gates.sliding_window_gate(limit=1, window_sec=v),
    "concurrency": lambda v: gates.concurrency_gate(limit=v, group="g"),
    "concurrency group": lambda v: gates.concurrency_gate(limit=1, group=v),
    **{f"rules.{name}": getattr(rules, name) for name in ("above", "below", "change", "zscore", "absent")},
    "rule clear": lambda v: rules.above(1, clear=v),
    "rule over": lambda v: rules.zscore(1, over=v),
    "rule name": lambda v: rules.rule(v, on="q", when=rules.above(1)),
    "rule on": lambda v: rules.rule("r", on=v, when=rules.above(1)),
    "rule when": lambda v: rules.rule("r", on="q", when=v),
    "rule value": lambda v: rules.rule("r", on="q", when=rules.above(1), value=v),
    "rule alerts": lambda v: rules.rule("r", on="q", when=rules.above(1), alerts=v),
    "rule fire_after": lambda v: rules.rule("r", on="q", when=rules.above(1), fire_after=v),
    "rule clear_after": lambda v: rules.rule("r", on="q", when=rules.above(1), clear_after=v),
    "rule live": lambda v: rules.rule("r", on="q", when=rules.above(1), live=v),
    "rule expect": lambda v: rules.rule("r", on="q", when=rules.absent(1), expect=v),
    "webhook": Webhook,
    "webhook secret": lambda v: Webhook("https://example.com/", secret=v),
    "webhook headers": lambda v: Webhook("https://example.com/", headers=v),
    "webhook header": lambda v: Webhook("https://example.com/", headers={"x": v}),
    "webhook timeout": lambda v: Webhook("https://example.com/", timeout=v),
    "webhook allow": lambda v: Webhook("https://example.com/", allow=v),
    "webhook breaker": lambda v: Webhook("https://example.com/", breaker=v),
    "file": File,
    "file rotate_bytes": lambda v: File("x", rotate_bytes=v),
    "file rotate_seconds": lambda v: File("x", rotate_seconds=v),
    "parquet": Parquet,
    "forward": Forward,
    "table": Table,
    "table key": lambda v: Table("x", key=v),
    "table columns": lambda v: Table("x", columns=v),
    "table column": lambda v: Table("x", columns={"a": v}),
    "console alerts": lambda v: Console(alerts=v),
    "read_sink": lambda v: read_sink(str(v)) if isinstance(v, str) else None,
    "read_sink file": lambda v: read_sink(f"file:{v}") if isinstance(v, str) else None,
    **{
        f"option {name}": lambda v, name=name: option(name, v)  # type: ignore[misc]  # its default is its value
        for name in OPTIONS
    },
    "option of any name": lambda v: (
        parse_read_options({"queue": "a", v: "b"}, streaming=True) if isinstance(v, str) else None
    ),
    **{
        f"run {name}": lambda v, name=name: RunOptions.from_mapping({name: v})  # type: ignore[misc]  # its default is its value
        for name in RunOptions.__slots__
    },
}


@pytest.mark.parametrize("place", PLACES)
def test_hostile_value_is_accepted_or_raises_a_penstock_error(place: str) -> None:
    for value in VALUES:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                made = PLACES[place](value)
            except PenstockError as error:
                if not 10 < len(str(error)) < 2000:
                    pytest.fail(f"{place} says too much or too little: {str(error)[:200]}")
                continue
            except Exception as error:
                kind = type(value).__name__
                shown = value[:60] if isinstance(value, str) else kind
                pytest.fail(f"{place} with {shown!r}: {type(error).__name__}: {error}")
            if isinstance(made, Definition):
                # What was taken can be told apart from others, and is not a promise that breaks later.
                fingerprint(describe(made))
