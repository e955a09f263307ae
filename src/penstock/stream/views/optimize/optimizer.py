"""Rewrites a plan so that it reads, keeps and compares less. The rows of the result stay the same."""

from __future__ import annotations

from penstock.stream.views.expressions import column_sql
from penstock.stream.views.optimize.join_order import order_joins
from penstock.stream.views.optimize.merge_projects import merge_projects
from penstock.stream.views.optimize.prune import prune
from penstock.stream.views.optimize.push_filters import push_filters
from penstock.stream.views.optimize.share import share_operators
from penstock.stream.views.optimize.top_n import find_top_n
from penstock.stream.views.view_plan import NamedExpression, Operator, Project, output_columns


def optimize(root: Operator) -> Project:
    """Return an equivalent plan whose root is a Project with the columns of the given one."""
    columns = tuple(NamedExpression(name, column_sql(name)) for name in output_columns(root))
    optimized: Operator = root if isinstance(root, Project) else Project(root, columns)
    for rewrite in (push_filters, order_joins, find_top_n, prune, share_operators, merge_projects):
        optimized = rewrite(optimized)
    return optimized if isinstance(optimized, Project) else Project(optimized, columns)
