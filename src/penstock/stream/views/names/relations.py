"""The relations after FROM and JOIN: queues, views, subqueries, TUMBLE and HOP."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sqlglot import exp

from penstock.stream.views.names.inline import relation_name
from penstock.stream.views.names.scope import NamedRelation, RelationKind, Scope
from penstock.stream.views.names.time_windows import is_table_function, parse_table_function
from penstock.stream.views.names.view_clauses import check_clauses
from penstock.stream.views.select_tree import function_name, quoted, relation_column, unwrap

if TYPE_CHECKING:
    from penstock.stream.views.names.qualify import Qualifier


def add_relation(statement: Qualifier, node: Any, parent: Scope | None) -> NamedRelation:
    """Add a relation to the statement, and give the node its unique alias."""
    source = statement.source
    if isinstance(node, exp.Subquery):
        return _add_subquery(statement, node, parent)
    if isinstance(node, exp.Lateral):
        raise source.error(
            node, "LATERAL is supported as LATERAL VIEW explode(values) t AS value: join the subquery instead"
        )
    if isinstance(node, exp.Table):
        check_clauses(source, node)
        function = node.this
        if function_name(function) == "table" and function.expressions:
            function = function.expressions[0]
        if is_table_function(function):
            return _add_windowed_table(statement, node, function, parent)
        if isinstance(function, exp.Identifier):
            return _add_source(statement, node)
    raise source.error(node, f"{node.sql('spark')} is no queue, view or subquery")


def add_lateral(statement: Qualifier, name: str, columns: tuple[str, ...]) -> NamedRelation:
    """Add a relation whose rows are the elements of an array."""
    relation = NamedRelation(name.lower(), statement.unique_alias(name), RelationKind.LATERAL, columns)
    statement.relations[relation.alias] = relation
    return relation


def _add_source(statement: Qualifier, node: exp.Table) -> NamedRelation:
    if node.args.get("alias") is not None and node.args["alias"].args.get("columns"):
        raise statement.source.error(node, "columns are named where they are selected: SELECT x AS name")
    name, written = relation_name(node), node.alias or node.name
    relation = NamedRelation(written.lower(), statement.unique_alias(written), RelationKind.QUEUE, None, name)
    if name in statement.catalog.views:
        relation.kind, relation.columns = RelationKind.VIEW, tuple(statement.catalog.views[name])
    elif name in statement.catalog.references:
        relation.kind = RelationKind.REFERENCE
    else:
        relation.columns = statement.catalog.queues.get(name)
    return _register(statement, relation, node)


def _add_subquery(statement: Qualifier, node: exp.Subquery, parent: Scope | None) -> NamedRelation:
    check_clauses(statement.source, node)
    if isinstance(node.this, exp.Table):
        raise statement.source.error(
            node, "joins in parentheses are not supported: write JOIN (SELECT ... FROM ...) t ON ..."
        )
    columns = statement.qualify(node.this, parent)
    alias = node.args.get("alias")
    names = alias.args.get("columns") if alias is not None else None
    if names:
        if len(names) != len(columns):
            raise statement.source.error(node, f"{len(columns)} columns are selected, and {len(names)} are named")
        columns = tuple(name.name for name in names)
        _rename_columns(node.this, columns)
    written = node.alias or "t"
    # Columns of a subquery without an alias cannot be qualified.
    name = written.lower() if node.alias else ""
    relation = NamedRelation(name, statement.unique_alias(written), RelationKind.SUBQUERY, tuple(columns))
    return _register(statement, relation, node)


def _rename_columns(query: Any, names: tuple[str, ...]) -> None:
    """Name the columns of a resolved query."""
    query = unwrap(query)
    if isinstance(query, exp.SetOperation):
        _rename_columns(query.this, names)
        return
    for item, name in zip(query.expressions, names, strict=True):
        item.set("alias", quoted(name))


def _add_windowed_table(
    statement: Qualifier, node: exp.Table, function: exp.Anonymous, parent: Scope | None
) -> NamedRelation:
    """Replace a table function by its table. The columns of the window are expressions over the time."""
    windowed = parse_table_function(statement.source, function)
    table: Any = windowed.table
    if node.alias:
        table.set("alias", exp.TableAlias(this=exp.to_identifier(node.alias)))
    node.replace(table)
    relation = add_relation(statement, table, parent)
    if not isinstance(windowed.time, exp.Column):
        raise statement.source.error(windowed.time, "DESCRIPTOR takes a column: DESCRIPTOR(event_time)")
    scope = Scope(statement.source)
    scope.add(relation, table)
    window = windowed.window(statement.source, scope.resolve(windowed.time))
    if relation.kind is RelationKind.SUBQUERY and relation.find("window_start") is not None:
        raise statement.source.error(
            function, "the subquery has a column window_start, as has the window: name it otherwise, AS first_start"
        )
    relation.window_time = window.time
    if window.is_sliding:
        relation.sliding = window
    start = relation_column(relation.alias, "window_start") if window.is_sliding else window.tumbling_start()
    relation.computed = {"window_start": start, "window_end": window.end(start)}
    return relation


def _register(statement: Qualifier, relation: NamedRelation, node: exp.Expr) -> NamedRelation:
    node.set("alias", exp.TableAlias(this=quoted(relation.alias)))
    statement.relations[relation.alias] = relation
    return relation
