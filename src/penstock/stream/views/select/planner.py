"""Plans the SELECT of a materialized view, without Spark and without a database."""

from __future__ import annotations

from sqlglot import exp

from penstock.stream.sql.sql_source import SqlSource
from penstock.stream.views.names.inline import inline_names
from penstock.stream.views.names.qualify import Qualifier
from penstock.stream.views.optimize.optimizer import optimize
from penstock.stream.views.select.query import QueryPlanner
from penstock.stream.views.select.references import check_references
from penstock.stream.views.select.statement import Statement
from penstock.stream.views.select_tree import unwrap
from penstock.stream.views.view_catalog import ViewCatalog
from penstock.stream.views.view_plan import Operator


def plan_select(source: SqlSource, query: exp.Expr, catalog: ViewCatalog) -> Operator:
    """Return the operators of a query. The root is a Project of the columns of the select list.

    Args:
        source: The text of the statement, for the positions of errors.
        query: The tree of the query, parsed with the dialect ViewSql. It is not changed.
        catalog: The queues, views and named subqueries that the query may read.

    Raises:
        InvalidSql: The query cannot be kept up to date; the message says what to write instead.
    """
    with source.locate_errors(query):
        inlined = unwrap(inline_names(source, query, catalog.subqueries))
        qualifier = Qualifier(source, catalog)
        names = qualifier.qualify(inlined)
        statement = Statement(source, qualifier.relations, inlined, names)
        root = optimize(QueryPlanner(statement).plan(inlined, names))
        check_references(source, query, root)
        return root
