"""Plans ORDER BY and LIMIT."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlglot import exp

from penstock.stream.views.select.statement import Statement
from penstock.stream.views.view_plan import Operator, SortKey


def sort_keys(statement: Statement, ordered: Sequence[Any], operator: Operator) -> tuple[SortKey, ...]:
    """Return the keys of ORDER BY over the columns of an operator."""
    return tuple(
        SortKey(statement.sql(node.this, operator), bool(node.args.get("desc")), bool(node.args.get("nulls_first")))
        for node in ordered
    )


def parse_limit(statement: Statement, query: Any) -> int | None:
    """Return the number of LIMIT, or None without one. ORDER BY needs a LIMIT."""
    limit, order = query.args.get("limit"), query.args.get("order")
    is_all = isinstance(limit, exp.Limit) and limit.expression.name.upper() == "ALL"
    if limit is None or is_all:
        if order is not None:
            raise statement.source.error(
                order,
                "ORDER BY without LIMIT: a view is a table, which has no order; add LIMIT, or sort where it is read",
            )
        return None
    options = limit.args.get("limit_options")
    if options is not None and (options.args.get("percent") or options.args.get("with_ties")):
        raise statement.source.error(
            limit,
            "FETCH FIRST with PERCENT or WITH TIES is not supported: write LIMIT 10, or QUALIFY rank() OVER (ORDER BY "
            "...) <= 10 to keep ties",
        )
    number = limit.expression if isinstance(limit, exp.Limit) else limit.args.get("count")
    if not isinstance(number, exp.Literal) or not number.name.isdecimal() or int(number.name) < 1:
        raise statement.source.error(limit, "LIMIT takes a whole number from 1: LIMIT 10")
    return int(number.name)
