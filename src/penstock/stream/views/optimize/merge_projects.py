"""Merges a Project with the one below it, and removes those that change nothing."""

from __future__ import annotations

from collections import Counter

from sqlglot import exp

from penstock.stream.views.expressions import parse_sql, plain_column, substitute_sql
from penstock.stream.views.optimize.rebuild import map_inputs
from penstock.stream.views.select_tree import full_name
from penstock.stream.views.view_plan import NamedExpression, Operator, Project, output_columns


def merge_projects(operator: Operator) -> Operator:
    operator = map_inputs(operator, merge_projects)
    if not isinstance(operator, Project):
        return operator
    source = operator.input
    if isinstance(source, Project) and _is_mergeable(operator, source):
        expressions = {column.name: parse_sql(column.sql) for column in source.columns}
        columns = tuple(
            NamedExpression(column.name, substitute_sql(column.sql, expressions)) for column in operator.columns
        )
        operator = Project(source.input, columns)
    names = tuple(column.name for column in operator.columns if plain_column(column.sql) == column.name)
    return (
        operator.input if names == output_columns(operator.input) and len(names) == len(operator.columns) else operator
    )


def _is_mergeable(project: Project, source: Project) -> bool:
    """Return whether nothing would be computed twice."""
    uses = Counter(full_name(part) for column in project.columns for part in parse_sql(column.sql).find_all(exp.Column))
    return all(uses[column.name] <= 1 or _is_cheap(column.sql) for column in source.columns)


def _is_cheap(sql: str) -> bool:
    return isinstance(parse_sql(sql), exp.Column | exp.Literal | exp.Null | exp.Boolean)
