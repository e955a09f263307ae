"""Materialized views from the methods of a stream: each method makes a SELECT over the one before."""

# ruff: noqa: S608 - the SQL is the user's own, and no database executes it

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from sqlglot import exp

from penstock.core.errors import InvalidRequest
from penstock.core.names import check_name
from penstock.core.option_checks import check_integer
from penstock.stream.aggregates import WindowAggregate
from penstock.stream.expression import is_python
from penstock.stream.sql.expression_parser import parse_select
from penstock.stream.sql.sql_source import SqlSource
from penstock.stream.steps import MapStep, makes_columns, runs_in_python
from penstock.stream.views.select.planner import plan_select
from penstock.stream.views.view import MaterializedView, OtherView
from penstock.stream.views.view_catalog import ViewCatalog
from penstock.stream.views.view_dialect import ViewSql
from penstock.stream.views.view_plan import Operator, output_columns

if TYPE_CHECKING:
    from penstock.stream.definition import Definition

_Stream = TypeVar("_Stream", bound="Definition")

_JOINS = {"inner": "JOIN", "left": "LEFT JOIN", "right": "RIGHT JOIN", "full": "FULL JOIN"}
_JOINS |= {"semi": "LEFT SEMI JOIN", "anti": "LEFT ANTI JOIN"}


def aggregate_view(stream: _Stream, aggregates: Mapping[str, WindowAggregate]) -> _Stream:
    """One row per key: running aggregates, without a window."""
    if stream.view is not None and stream.key is None:
        raise InvalidRequest("the rows of a view have no key of their own: name the columns, .key_by('country')")
    keys = {"key": "_key"} if stream.key is None else _key_columns(stream.key)
    columns = [f"{sql} AS {_quoted(name)}" for name, sql in keys.items()]
    columns += [f"{_aggregate_sql(name, each)} AS {_quoted(name)}" for name, each in aggregates.items()]
    return _select(
        dataclasses.replace(stream, key=None), f"SELECT {', '.join(columns)} FROM {{}} GROUP BY {_ordinals(keys)}"
    )


def latest_view(stream: _Stream, by: str | Sequence[str], order: str) -> _Stream:
    """The latest row of each key. Of events with the same time, the last one counts."""
    ties = ", _offset DESC" if stream.view is None else ""
    return _first_rows(stream, 1, f"{order} DESC NULLS LAST{ties}", by)


def top_view(stream: _Stream, count: int, by: str, per: str | Sequence[str]) -> _Stream:
    """The rows with the highest values, of all rows or of each group."""
    check_integer("n", count, 1, 1_000_000)
    return _first_rows(stream, count, f"{by} DESC NULLS LAST", per)


def _first_rows(stream: _Stream, count: int, order: str, per: str | Sequence[str]) -> _Stream:
    groups = [_quoted(name) for name in _names(per)]
    partition = f"PARTITION BY {', '.join(groups)} " if groups else ""
    number = f"row_number() OVER ({partition}ORDER BY {order})"
    return _select(stream, f"SELECT * FROM {{}} QUALIFY {number} <= {count}")


def distinct_view(stream: _Stream) -> _Stream:
    return _select(stream, "SELECT DISTINCT * FROM {}")


def filter_view(stream: _Stream, condition: Any) -> _Stream:
    return _select(stream, f"SELECT * FROM {{}} WHERE {_sql_only(condition, 'filter')}")


def map_view(stream: _Stream, columns: Any) -> _Stream:
    return _select(stream, f"SELECT {_sql_only(columns, 'map')} FROM {{}}")


def join_view(stream: _Stream, other: Definition, on: Mapping[str, str], how: str) -> _Stream:
    """A join without a time bound. The columns of the other stream that have the same name get the suffix _right."""
    if how not in _JOINS:
        raise InvalidRequest(f"how={how!r}: a join is {', '.join(_JOINS)}")
    left, right = _Input(stream), _Input(other)
    columns = [f"l.{_quoted(name)} AS {_quoted(name)}" for name in left.columns]
    if how not in ("semi", "anti"):
        columns += [
            f"r.{_quoted(name)} AS {_quoted(name + '_right' if name in left.columns else name)}"
            for name in right.columns
        ]
    condition = " AND ".join(f"l.{_quoted(own)} = r.{_quoted(others)}" for own, others in on.items())
    inputs, texts = _merge_inputs([left, right])
    select = f"SELECT {', '.join(columns)} FROM {texts[0]} l {_JOINS[how]} {texts[1]} r ON {condition}"
    return _make_view(stream, select, inputs)


def materialize(
    stream: _Stream,
    name: str,
    changes: str | None,
    indexes: Sequence[str | Sequence[str]],
    state_ttl_seconds: float | None,
    max_state_bytes: int | None,
) -> _Stream:
    """Name the view, its changes queue and its indexes, and bound its state."""
    if stream.view is None:
        stream = _select(stream, "SELECT * FROM {}")
    view = stream.view
    assert view is not None  # noqa: S101 - made above
    columns = output_columns(view.root)
    lists = tuple(_names(index) for index in indexes)
    for column in (column for index in lists for column in index):
        if column not in columns:
            raise InvalidRequest(f"there is no column {column!r} to index; there are {', '.join(columns)}")
    named = dataclasses.replace(
        view,
        name=check_name(name, "query"),
        indexes=lists,
        state_ttl_seconds=state_ttl_seconds,
        max_state_bytes=max_state_bytes,
    )
    sink = stream.sink if changes is None else check_name(changes, "queue")
    return dataclasses.replace(stream, view=named, sink=sink)


@dataclasses.dataclass(frozen=True)
class _Input:
    """A stream of events, or a view, as the relation of a SELECT."""

    stream: Definition

    @property
    def columns(self) -> tuple[str, ...]:
        view = self.stream.view
        if view is not None:
            return output_columns(view.root)
        known = _event_columns(self.stream)
        if known is None:
            raise InvalidRequest(
                f"the fields of the events of {', '.join(self.stream.sources)} are not known: name them before, "
                ".map('order_id, status, amount'), or declare them, Stream.from_(..., schema={...})"
            )
        return known


def _select(stream: _Stream, template: str) -> _Stream:
    """Return the view that a SELECT with one relation, ``{}``, makes of a stream."""
    relation = _Input(stream)
    if template.startswith(("SELECT *", "SELECT DISTINCT *")):
        relation.columns  # noqa: B018 - raises if they are not known
    inputs, (text,) = _merge_inputs([relation])
    return _make_view(stream, template.replace("{}", text, 1), inputs)


def _make_view(stream: _Stream, select: str, inputs: dict[str, Definition]) -> _Stream:
    planner = partial(_plan, select, inputs)
    root, _ = planner({})
    sources = tuple(dict.fromkeys(queue for each in inputs.values() for queue in each.sources))
    return type(stream)(sources, view=MaterializedView(root, inputs, select=select, planner=planner))


def _plan(
    select: str, inputs: Mapping[str, Definition], others: Mapping[str, OtherView]
) -> tuple[Operator, Mapping[str, Definition]]:
    """Return the operators of a SELECT and the streams that they read. ``others`` are views of the database."""
    for name in others:
        if inputs[name].steps:
            raise InvalidRequest(
                f"{name!r} is a view, and {inputs[name].steps[0].name} a step on events: put it after a method that "
                "makes a view, such as .aggregate(...), or write CREATE MATERIALIZED VIEW"
            )
    source = SqlSource(select, "", ViewSql)
    catalog = ViewCatalog(
        {name: _event_columns(each) for name, each in inputs.items()},
        {name: other.columns for name, other in others.items()},
    )
    root = plan_select(source, source.parse(source.tokenize()), catalog)
    changes = {name: type(inputs[name]).from_(other.changes) for name, other in others.items()}
    return root, {**inputs, **changes}


def _merge_inputs(relations: Sequence[_Input]) -> tuple[dict[str, Definition], list[str]]:
    """Return the streams that relations read by name, and the text of each relation."""
    inputs: dict[str, Definition] = {}
    texts = []
    for relation in relations:
        view = relation.stream.view
        if view is None:
            name = relation.stream.sources[0]
            while inputs.get(name, relation.stream) != relation.stream:
                name = f"{name}_2"
            inputs[name] = relation.stream
            texts.append(_quoted(name))
            continue
        if not view.select:
            raise InvalidRequest(
                "a view that a statement has made takes no more steps: write them in the SELECT, or let another view "
                "read this one"
            )
        for name, each in view.inputs.items():
            if inputs.setdefault(name, each) != each:
                raise InvalidRequest(f"both sides read {name!r} with other steps: let one read a copy of the queue")
        texts.append(f"({view.select})")
    return inputs, texts


def _event_columns(stream: Definition) -> tuple[str, ...] | None:
    """The fields of a stream's events, if a step names them or if they are declared."""
    for step in reversed(stream.steps):
        if runs_in_python(step):
            returns = getattr(step, "returns", None)
            return tuple(returns) if returns else None
        if makes_columns(step):
            if not isinstance(step, MapStep) or not isinstance(step.expression, str):
                return None
            tree: Any = parse_select(step.expression)
            selects = tree.selects
            return None if any(each.is_star for each in selects) else tuple(each.alias_or_name for each in selects)
    return tuple(stream.schema) or None


def _key_columns(key: Any) -> dict[str, str]:
    keys = key if isinstance(key, tuple) else (key,)
    columns = {}
    for each in keys:
        text = _sql_only(each, "key_by")
        columns[text if text.isidentifier() else "key"] = text
    if len(columns) != len(keys):
        raise InvalidRequest("key_by of several expressions: name them in a .map(...) before, and use the names")
    return columns


def _aggregate_sql(name: str, aggregate: WindowAggregate) -> str:
    argument = "*" if aggregate.argument is None else _sql_only(aggregate.argument, f"aggregate {name!r}")
    match aggregate.kind:
        case "count_distinct" | "approx_distinct":
            return f"count(DISTINCT {argument})"
        case "percentile":
            return f"percentile_disc({aggregate.number}) WITHIN GROUP (ORDER BY {argument})"
        case "top_k":
            raise InvalidRequest(f"aggregate {name!r}: top_k needs a window; write .top(n, by=..., per=...) for a view")
    return f"{aggregate.kind}({argument})"


def _sql_only(value: Any, what: str) -> str:
    if is_python(value) or not isinstance(value, str):
        raise InvalidRequest(f"{what} of a view is SQL: compute it with a function in a .map(...) before")
    return value


def _names(given: str | Sequence[str]) -> tuple[str, ...]:
    return (given,) if isinstance(given, str) else tuple(given)


def _quoted(name: str) -> str:
    return str(exp.to_identifier(name, quoted=True).sql("spark"))


def _ordinals(keys: Mapping[str, str]) -> str:
    return ", ".join(str(number) for number in range(1, len(keys) + 1))
