"""Drops the table of a view's result. Needs no Spark."""

from __future__ import annotations

from psycopg import sql

from penstock.db.statements import Statements, fill_placeholders

_sql = Statements("penstock.engine.views", "view_table.sql")


def drop_view_statements(query_id: int, name: str) -> list[str]:
    return [
        fill_placeholders(_sql["drop_view"], view=sql.Identifier(name).as_string()),
        fill_placeholders(_sql["drop_table"], id=query_id),
    ]
