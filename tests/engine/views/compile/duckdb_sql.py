"""The plan of a view as a query for DuckDB, which answers it over all rows at once."""

# ruff: noqa: S608 - SQL of tests

from __future__ import annotations

from collections.abc import Iterable

from penstock.stream.views.view_plan import (
    Aggregate,
    AggregateCall,
    Explode,
    Filter,
    Join,
    JoinKind,
    Operator,
    Project,
    QueueSource,
    ReferenceSource,
    SortKey,
    TopN,
    UnionAll,
    ViewSource,
    WindowFunctions,
    output_columns,
)

_FUNCTIONS = {
    "stddev": "stddev_samp({})",
    "variance": "var_samp({})",
    "min_by": "arg_min_null({}, {})",
    "max_by": "arg_max_null({}, {})",
    "percentile": "quantile_disc({}, {})",
}


def to_duckdb(sql: str) -> str:
    return sql.replace("`", '"').replace("array(", "list_value(")


def query(operator: Operator) -> str:
    """A SELECT with the columns of the operator."""
    match operator:
        case (
            QueueSource(queue=name, columns=columns)
            | ViewSource(view=name, columns=columns)
            | ReferenceSource(table=name, columns=columns)
        ):
            return _select((f'"{column.field}" AS "{column.name}"' for column in columns), f'"{name}"')
        case Project(input=source, columns=computed):
            return _select((f'{to_duckdb(c.sql)} AS "{c.name}"' for c in computed), _from(source))
        case Filter(input=source, condition=condition):
            return f"SELECT * FROM {_from(source)} WHERE {to_duckdb(condition)}"
        case Explode(input=source, name=name, array_sql=sql):
            return f'SELECT *, unnest({to_duckdb(sql)}) AS "{name}" FROM {_from(source)}'
        case UnionAll(inputs=inputs):
            return " UNION ALL ".join(f"({query(source)})" for source in inputs)
        case Aggregate():
            return _aggregate(operator)
        case Join():
            return _join(operator)
        case TopN(input=source, rank_name=rank):
            number = f"row_number() OVER ({_window(operator.partition_by, operator.order_by)})"
            shown = [f'"{name}"' for name in output_columns(source)] + ([f'number AS "{rank}"'] if rank else [])
            numbered = f"(SELECT *, {number} AS number FROM {_from(source)})"
            return f"{_select(shown, numbered)} WHERE number <= {operator.limit}"
        case WindowFunctions(input=source, functions=functions):
            window = _window(operator.partition_by, operator.order_by)
            calls = [f'{to_duckdb(f.sql)} OVER ({window} {f.frame or ""}) AS "{f.name}"' for f in functions]
            return _select(["*", *calls], _from(source))


def _select(columns: Iterable[str], source: str) -> str:
    return f"SELECT {', '.join(columns)} FROM {source}"


def _from(source: Operator) -> str:
    return f"({query(source)})"


def _window(partition_by: tuple[str, ...], order_by: tuple[SortKey, ...]) -> str:
    partition = f"PARTITION BY {', '.join(map(to_duckdb, partition_by))} " if partition_by else ""
    order = [
        f"{to_duckdb(each.sql)} {'DESC' if each.is_descending else 'ASC'} "
        f"NULLS {'FIRST' if each.nulls_first else 'LAST'}"
        for each in order_by
    ]
    return partition + (f"ORDER BY {', '.join(order)}" if order else "")


def _aggregate(aggregate: Aggregate) -> str:
    groups = [f'{to_duckdb(group.sql)} AS "{group.name}"' for group in aggregate.groups]
    calls = [f'{_call(call)} AS "{call.name}"' for call in aggregate.calls]
    by = ", ".join(to_duckdb(group.sql) for group in aggregate.groups)
    return _select([*groups, *calls], _from(aggregate.input)) + (f" GROUP BY {by}" if by else "")


def _call(call: AggregateCall) -> str:
    argument = "*" if call.argument is None else to_duckdb(call.argument)
    argument = f"DISTINCT {argument}" if call.is_distinct else argument
    extra = to_duckdb(call.order) if call.order is not None else str(call.fraction)
    text = _FUNCTIONS.get(call.function, call.function + "({})").format(argument, extra)
    return text + (f" FILTER (WHERE {to_duckdb(call.filter)})" if call.filter is not None else "")


def _join(join: Join) -> str:
    conditions = [f"{to_duckdb(a)} = {to_duckdb(b)}" for a, b in zip(join.left_keys, join.right_keys, strict=True)]
    conditions += [to_duckdb(join.condition)] if join.condition is not None else []
    condition = " AND ".join(conditions) or "true"
    if join.kind in (JoinKind.SEMI, JoinKind.ANTI):
        exists = "EXISTS" if join.kind is JoinKind.SEMI else "NOT EXISTS"
        return (
            f"SELECT * FROM {_from(join.left)} l WHERE {exists} (SELECT 1 FROM {_from(join.right)} r WHERE {condition})"
        )
    return f"SELECT * FROM {_from(join.left)} {join.kind} JOIN {_from(join.right)} ON {condition}"
