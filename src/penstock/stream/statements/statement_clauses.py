"""Which clauses a statement may have. All others are refused by name, so that none is ignored silently."""

from __future__ import annotations

from typing import Any

from sqlglot import exp

from penstock.stream.sql.sql_source import SqlSource

_ENDLESS = "a stream never ends"
_WHY = {
    "order": f"ORDER BY: {_ENDLESS}, and is in the order of its events; leave it out",
    "sort": f"SORT BY: {_ENDLESS}, and is in the order of its events; leave it out",
    "limit": f"LIMIT: {_ENDLESS}; leave it out, or ask the view penstock_live for the first rows",
    "offset": f"OFFSET: {_ENDLESS}; leave it out",
    "qualify": "QUALIFY: window functions need several rows; group by a window instead",
    "windows": "WINDOW: window functions need several rows; group by a window instead",
    "distinct": "SELECT DISTINCT would store every row for ever: group by a window instead",
    "pivots": "PIVOT: write count_if(...) for each column instead",
    "cluster": "CLUSTER BY: write DISTRIBUTE BY for the key of the results",
    "sample": "TABLESAMPLE: a stream is not counted before it is read; write WHERE rand() < 0.1",
    "version": "VERSION AS OF and TIMESTAMP AS OF: a stream is read from where its query stands; leave it out",
    "partition": "PARTITION: a queue chooses the partition by the key; write DISTRIBUTE BY for the key of the results",
    "locks": "FOR UPDATE: events never change; leave it out",
    "recursive": "WITH RECURSIVE would read all rows repeatedly: leave RECURSIVE out",
    "conflict": "ON CONFLICT: events are appended to a queue; leave it out",
    "returning": "RETURNING: the events can be read from the queue; leave it out",
}
_SUPPORTED = {
    "Select": {"with_", "expressions", "from_", "laterals", "joins", "where", "group", "having", "distribute"},
    "Union": {"with_", "this", "expression", "distinct", "distribute", "by_name"},
    "Subquery": {"this", "alias"},
    "Table": {"this", "db", "catalog", "alias"},
    "Join": {"this", "on", "side", "kind", "using", "method"},
    "With": {"expressions"},
    "CTE": {"this", "alias"},
    "TableAlias": {"this"},
    "Insert": {"this", "expression", "with_", "overwrite", "by_name"},
}


def check_clauses(source: SqlSource, node: Any) -> None:
    """Refuse the clauses of a part of a statement that are not supported."""
    supported = _SUPPORTED.get(type(node).__name__)
    if supported is None:
        return
    for name, value in node.args.items():
        if not value or name in supported:
            continue
        if name == "columns":
            raise source.error(
                node, "columns are named where they are selected, SELECT x AS name: leave out the names after the table"
            )
        clause = value[0] if isinstance(value, list) else value
        why = _WHY.get(name) or f"{name.strip('_').upper().replace('_', ' ')} is not supported: leave it out"
        raise source.error(clause if isinstance(clause, exp.Expr) else node, why)
    for name in ("alias", "with_"):
        if node.args.get(name) is not None:
            check_clauses(source, node.args[name])
    if isinstance(node, exp.With):
        for cte in node.expressions:
            check_clauses(source, cte)


def check_select(source: SqlSource, select: exp.Select | exp.SetOperation) -> None:
    """Refuse the clauses of a SELECT or a UNION that are not supported, and those of its joins."""
    check_clauses(source, select)
    if isinstance(select, exp.SetOperation):
        return
    over = select.find(exp.Window)
    if over is not None:
        raise source.error(
            over, "OVER needs several rows, and a stream never has all of them: group by a window instead"
        )
    where = select.args.get("where")
    aggregate = None if where is None else where.find(exp.AggFunc)
    if aggregate is not None and aggregate.find_ancestor(exp.Query) is select:
        raise source.error(aggregate, f"WHERE looks at single events: write HAVING {aggregate.sql('spark')} ...")
    for join in select.args.get("joins") or []:
        check_clauses(source, join)
