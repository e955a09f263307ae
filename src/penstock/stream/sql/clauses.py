"""Which clauses a statement may have. All others are refused by name: nothing of it is left out silently."""

from __future__ import annotations

from typing import Any

from penstock.stream.sql.parser import Source

_ENDLESS = "a stream goes on for ever"
_WHY = {
    "order": f"ORDER BY: {_ENDLESS}, and is in the order of its events; leave it out",
    "sort": f"SORT BY: {_ENDLESS}, and is in the order of its events; leave it out",
    "limit": f"LIMIT: {_ENDLESS}; leave it out, or ask the view penstock_live for the first rows",
    "offset": f"OFFSET: {_ENDLESS}; leave it out",
    "qualify": "QUALIFY: window functions look at several rows; group by a window instead",
    "windows": "WINDOW: window functions look at several rows; group by a window instead",
    "distinct": "SELECT DISTINCT would remember everything for ever: group by a window instead",
    "pivots": "PIVOT: write count_if(...) for each column instead",
    "cluster": "CLUSTER BY: write DISTRIBUTE BY for the key of the results",
    "sample": "TABLESAMPLE: a stream is not counted before it is read; write WHERE rand() < 0.1",
    "version": "VERSION AS OF and TIMESTAMP AS OF: a stream is read from where its query stands; leave it out",
    "partition": "PARTITION: a queue chooses the partition by the key; write DISTRIBUTE BY for the key of the results",
    "locks": "FOR UPDATE: events never change; leave it out",
    "recursive": "WITH RECURSIVE would look at all rows again and again: leave RECURSIVE out",
    "conflict": "ON CONFLICT: a queue is appended to; leave it out",
    "returning": "RETURNING: what is appended can be read from the queue; leave it out",
}
#: What is understood of each part, and hints, which change no result.
_UNDERSTOOD = {
    "Select": {"with_", "expressions", "from_", "laterals", "joins", "where", "group", "having", "distribute", "hint"},
    "Union": {"with_", "this", "expression", "distinct", "distribute", "by_name"},
    "Subquery": {"this", "alias"},
    "Table": {"this", "db", "catalog", "alias"},
    "Join": {"this", "on", "side", "kind", "using", "method", "hint"},
    "With": {"expressions"},
    "CTE": {"this", "alias"},
    "TableAlias": {"this"},
    "Insert": {"this", "expression", "with_", "overwrite", "by_name"},
}
_ALIASED = "columns are named where they are selected, SELECT x AS name: leave out the names after the table"


def check_clauses(source: Source, node: Any) -> None:
    """Refuse what this part of a statement has beyond what is understood."""
    understood = _UNDERSTOOD.get(type(node).__name__)
    if understood is None:
        return
    for name, part in node.args.items():
        if not part or name in understood:
            continue
        if name == "columns":
            raise source.refuse(node, _ALIASED)
        # What stands there says more of where it is than the whole, if it is a part itself.
        where = part[0] if isinstance(part, list) else part
        why = _WHY.get(name) or f"{name.strip('_').upper().replace('_', ' ')} is not known in a stream: leave it out"
        raise source.refuse(where if hasattr(where, "walk") else node, why)
    for name in ("alias", "with_"):
        inside = node.args.get(name)
        if inside is not None:
            check_clauses(source, inside)
    if type(node).__name__ == "With":
        for each in node.expressions:
            check_clauses(source, each)


def check_select(source: Source, select: Any) -> None:
    """The same of a SELECT or a UNION, and of the tables that it reads."""
    from sqlglot import exp

    check_clauses(source, select)
    if isinstance(select, exp.SetOperation):
        return
    over = select.find(exp.Window)
    if over is not None:
        raise source.refuse(
            over, "OVER looks at several rows, and a stream never has all of them: group by a window instead"
        )
    where = select.args.get("where")
    counted = None if where is None else where.find(exp.AggFunc)
    if counted is not None and counted.find_ancestor(exp.Query) is select:
        raise source.refuse(counted, f"WHERE looks at single events: write HAVING {counted.sql('spark')} ...")
    for join in select.args.get("joins") or []:
        check_clauses(source, join)
