"""The event of a closed window: the fields that a stream selects, as SQL over the state columns."""

from __future__ import annotations

import dataclasses
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.stream.checks.arguments import RESERVED_COLUMNS
from penstock.stream.sql.postgres_translation import WindowExpression, compile_window_expression

if TYPE_CHECKING:
    from penstock.engine.compile.windows.aggregate_columns import ResultColumn
    from penstock.stream.definition import Definition

_WINDOW_BOUNDS = frozenset(("window_start", "window_end"))


@dataclass(frozen=True, slots=True)
class WindowOutput:
    """The event of a closed window: SQL over the state columns, each written ``{column}``."""

    #: Name and SQL of each field; empty if the stream selects none, and the event has all columns.
    fields: tuple[tuple[str, str], ...] = ()
    #: The windows for which this is false are not emitted.
    condition: str | None = None


def window_output(stream: Definition, columns: list[ResultColumn]) -> WindowOutput:
    """The output of a stream's windows. Computed fields are added to the columns, so that the views show them."""
    from penstock.engine.compile.windows.aggregate_columns import ResultColumn  # imports Spark, which servers lack

    by_name = {column.name: column for column in columns}
    doubles = [column.name for column in columns if column.pg_type == "double precision"]

    def compiled(text: str) -> WindowExpression:
        return compile_window_expression(text, stream.aggregates, doubles)

    def to_sql(final: WindowExpression) -> str:
        sql = re.sub(r"\{(\w+)\}", lambda m: _operand(by_name[m[1]], final) if m[1] in by_name else m[0], final.text)
        if not final.is_exact:
            return sql
        return f"penstock.mean({sql}, 1)" if final.divides else f"trim_scale({sql})"

    expressions = {name: compiled(text) for name, text in stream.outputs.items()}
    fields = [(name, to_sql(expression)) for name, expression in expressions.items()]
    for name, sql in fields:
        if name in by_name and sql != f"({by_name[name].final})":
            # The field replaces the aggregate of the same name in the views. Its state stays.
            columns[columns.index(by_name[name])] = dataclasses.replace(by_name[name], final=sql)
        elif name not in by_name and name not in RESERVED_COLUMNS and not expressions[name].names & _WINDOW_BOUNDS:
            columns.append(ResultColumn(name, "jsonb", (), sql))
    return WindowOutput(tuple(fields), None if stream.condition is None else to_sql(compiled(stream.condition)))


def _operand(column: ResultColumn, final: WindowExpression) -> str:
    """A column in an expression: numbers as numeric, which no result overflows, and text compared by bytes."""
    if final.is_column:
        return f"({column.final})"
    match column.pg_type:
        case "text":
            return f'(({column.final}) COLLATE "C")'
        case "bigint" if final.computes:
            return f"({column.final})::numeric"
        case "double precision" if final.computes:
            return f"({column.final})::text::numeric"
        case _:
            return f"({column.final})"
