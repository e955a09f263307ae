"""Computes a plan with DuckDB: every operator is a subquery."""

from __future__ import annotations

from sqlglot import parse_one

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

#: Functions of Spark that sqlglot does not translate.
MACROS = """
    CREATE OR REPLACE MACRO pmod(a, b) AS ((a % b) + b) % b;
    CREATE OR REPLACE MACRO timestamp_micros(a) AS make_timestamp(CAST(a AS bigint));
    CREATE OR REPLACE MACRO unix_micros(a) AS epoch_us(a);
"""
_FUNCTIONS = {"percentile": "quantile_disc", "stddev": "stddev_samp", "variance": "var_samp"}
#: A column for operators that have none. It is in no plan.
_NOTHING = "1 AS nothing"


def to_duckdb(sql: str) -> str:
    """Translate an expression of Spark."""
    return parse_one(sql, dialect="spark").sql("duckdb")


def plan_sql(operator: Operator) -> str:
    """Return the query of DuckDB for a plan. A queue is a table with a column for each field."""
    match operator:
        case (
            QueueSource(queue=name, columns=sources)
            | ViewSource(view=name, columns=sources)
            | ReferenceSource(table=name, columns=sources)
        ):
            return _select([f"{_name(column.field)} AS {_name(column.name)}" for column in sources], _name(name))
        case Project(input=source, columns=columns):
            return _select([f"{to_duckdb(column.sql)} AS {_name(column.name)}" for column in columns], _rows(source))
        case Filter(input=source, condition=condition):
            return _select(["*"], f"{_rows(source)} WHERE {to_duckdb(condition)}")
        case Explode(input=source, name=name, array_sql=array_sql):
            return _select(["*", f"unnest({to_duckdb(array_sql)}) AS {_name(name)}"], _rows(source))
        case UnionAll(inputs=inputs):
            assert len({output_columns(each) for each in inputs}) == 1
            return " UNION ALL ".join(_select(["*"], _rows(each)) for each in inputs)
        case Aggregate():
            return _aggregate_sql(operator)
        case Join():
            return _join_sql(operator)
        case TopN(input=source, partition_by=partition_by, order_by=order_by, limit=limit, rank_name=rank):
            name = _name(rank or "row number")
            over = _over(partition_by, order_by)
            kept = "*" if rank is not None else f"* EXCLUDE ({name})"
            numbered = _select(["*", f"row_number() OVER ({over}) AS {name}"], _rows(source))
            return _select([kept], f"({numbered}) WHERE {name} <= {limit}")
        case WindowFunctions(input=source, partition_by=partition_by, order_by=order_by, functions=functions):
            over = _over(partition_by, order_by)
            calls = [
                f"{to_duckdb(each.sql)} OVER ({over} {each.frame or ''}) AS {_name(each.name)}" for each in functions
            ]
            return _select(["*", *calls], _rows(source))


def _rows(operator: Operator) -> str:
    return f"({plan_sql(operator)})"


def _select(columns: list[str], rows: str) -> str:
    return f"SELECT {', '.join(columns) or _NOTHING} FROM {rows}"  # noqa: S608


def _name(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _over(partition_by: tuple[str, ...], order_by: tuple[SortKey, ...]) -> str:
    partition = f"PARTITION BY {', '.join(map(to_duckdb, partition_by))}" if partition_by else ""
    keys = [
        f"{to_duckdb(key.sql)} {'DESC' if key.is_descending else 'ASC'} NULLS {'FIRST' if key.nulls_first else 'LAST'}"
        for key in order_by
    ]
    return f"{partition} {'ORDER BY ' + ', '.join(keys) if keys else ''}".strip()


def _aggregate_sql(aggregate: Aggregate) -> str:
    groups = [to_duckdb(group.sql) for group in aggregate.groups]
    columns = [f"{sql} AS {_name(group.name)}" for sql, group in zip(groups, aggregate.groups, strict=True)]
    columns += [f"{_call_sql(call)} AS {_name(call.name)}" for call in aggregate.calls]
    # An expression is grouped by its position, because DuckDB takes a plain number for one.
    positions = ", ".join(str(number) for number in range(1, len(groups) + 1))
    return _select(columns, _rows(aggregate.input)) + (f" GROUP BY {positions}" if groups else "")


def _call_sql(call: AggregateCall) -> str:
    argument = "*" if call.argument is None else to_duckdb(call.argument)
    more = f", {call.fraction}" if call.fraction is not None else ""
    more += f", {to_duckdb(call.order)}" if call.order is not None else ""
    distinct = "DISTINCT " if call.is_distinct else ""
    condition = f" FILTER (WHERE {to_duckdb(call.filter)})" if call.filter is not None else ""
    return f"{_FUNCTIONS.get(call.function, call.function)}({distinct}{argument}{more}){condition}"


def _join_sql(join: Join) -> str:
    names = [*output_columns(join.left), *output_columns(join.right)]
    assert len({name.lower() for name in names}) == len(names)
    conditions = [
        f"({to_duckdb(own)}) = ({to_duckdb(other)})" for own, other in zip(join.left_keys, join.right_keys, strict=True)
    ]
    conditions += [f"({to_duckdb(join.condition)})"] if join.condition is not None else []
    kind = "" if join.kind is JoinKind.INNER else join.kind.upper()
    on = " AND ".join(conditions) or "true"
    rows = f"{_rows(join.left)} l {kind} JOIN {_rows(join.right)} r ON {on}"
    return _select([_name(name) for name in output_columns(join)], rows)
