"""Which clauses and functions a view may have. All others are refused by name, so that none is ignored silently."""

from __future__ import annotations

from typing import Any

from sqlglot import exp

from penstock.stream.sql.sql_source import SqlSource
from penstock.stream.views.select_tree import function_name

_WHY = {
    "sort": "SORT BY: a view is a table, which has no order; write ORDER BY where the view is read",
    "offset": "OFFSET: use LIMIT in the view, and OFFSET where the view is read",
    "pivots": "PIVOT: write sum(x) FILTER (WHERE kind = 'a') AS a for each column",
    "cluster": "CLUSTER BY: a view has no partitions; leave it out",
    "distribute": "DISTRIBUTE BY: the key of a view's rows follows from the statement; leave it out",
    "sample": "TABLESAMPLE: a view is computed from all rows; filter by a field, WHERE pmod(hash(id), 10) = 0",
    "version": "VERSION AS OF and TIMESTAMP AS OF: a view follows the current rows; leave it out",
    "partition": "PARTITION: write WHERE for the rows that you want",
    "locks": "FOR UPDATE: a view only reads; leave it out",
    "recursive": "WITH RECURSIVE: a view that reads itself is not supported",
    "into": "SELECT INTO: write CREATE MATERIALIZED VIEW name AS SELECT ...",
    "match_recognize": "MATCH_RECOGNIZE is not supported: join the events with themselves",
    "connect": "CONNECT BY is not supported: join the table once for each level",
}
_SUPPORTED = {
    "Select": {
        *("with_", "expressions", "from_", "laterals", "joins", "where", "group", "having", "qualify", "windows"),
        *("order", "limit", "distinct"),
    },
    "SetOperation": {"with_", "this", "expression", "distinct", "by_name", "order", "limit"},
    "Subquery": {"this", "alias", "with_"},
    "Table": {"this", "db", "catalog", "alias"},
    "Join": {"this", "on", "side", "kind", "using", "method"},
    "With": {"expressions"},
    "CTE": {"this", "alias"},
    "TableAlias": {"this", "columns"},
    "Lateral": {"this", "view", "outer", "alias"},
    "Group": {"expressions"},
}
_GROUPINGS = {"grouping_sets": "GROUPING SETS", "cube": "CUBE", "rollup": "ROLLUP", "totals": "WITH TOTALS"}
#: Functions whose result depends on when or where they are called, which need no parentheses.
_NON_DETERMINISTIC: tuple[type[exp.Expr], ...] = (
    *(exp.CurrentTimestamp, exp.CurrentDate, exp.CurrentTime, exp.CurrentDatetime),
    *(exp.CurrentUser, exp.Localtimestamp, exp.Localtime),
)
_NON_DETERMINISTIC_NAMES = frozenset(
    (
        *("now", "curdate", "random", "shuffle", "uniform", "randstr", "current_time", "current_date"),
        *("current_timestamp", "localtimestamp", "sysdate", "monotonically_increasing_id", "spark_partition_id"),
        *("input_file_name", "uuid", "rand", "randn", "current_user", "session_user"),
    )
)
#: Functions that call any method of Java.
_JAVA_CALLS = frozenset(("reflect", "try_reflect", "java_method"))
#: Functions that return several rows, other than after LATERAL VIEW.
_GENERATORS = frozenset(
    (
        *("explode", "explode_outer", "posexplode", "posexplode_outer", "inline", "inline_outer", "stack"),
        "json_tuple",
    )
)


def check_clauses(source: SqlSource, node: Any) -> None:
    """Refuse the clauses of a part of a statement that are not supported."""
    kind = "SetOperation" if isinstance(node, exp.SetOperation) else type(node).__name__
    for name, value in node.args.items():
        if not value or name in _SUPPORTED[kind]:
            continue
        if name in _GROUPINGS:
            raise source.error(node, grouping_error(_GROUPINGS[name]))
        clause = value[0] if isinstance(value, list) else value
        why = _WHY.get(name) or f"{name.strip('_').upper().replace('_', ' ')} is not supported: leave it out"
        raise source.error(clause if isinstance(clause, exp.Expr) else node, why)


def grouping_error(name: str) -> str:
    return f"{name}: a view is grouped in one way; write a SELECT for each grouping and combine them with UNION ALL"


def check_function(source: SqlSource, node: exp.Expr) -> None:
    """Refuse a function whose result depends on when it is called, or which returns several rows."""
    name = function_name(node)
    if isinstance(node, _NON_DETERMINISTIC) or name in _NON_DETERMINISTIC_NAMES:
        raise source.error(node, non_deterministic_error(name or node.sql("spark").lower()))
    if name in _JAVA_CALLS:
        raise source.error(node, f"{name} calls any method of Java: use a function of Spark")
    if name in _GENERATORS:
        raise source.error(
            node,
            f"{name} returns several rows: write FROM ... LATERAL VIEW explode(values) t AS value, and select value",
        )


def non_deterministic_error(call: str) -> str:
    return (
        f"{call} changes with every call, and the rows of a view depend on events alone: use a field of the events, "
        "such as _time, or compare with the clock where the view is read"
    )


def is_bare_function(name: str) -> bool:
    """Return whether Spark calls a function if there is no column of that name."""
    return name.lower() in ("current_time", "localtimestamp", "current_user", "session_user")
