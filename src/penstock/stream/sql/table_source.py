"""SQL text for PostgreSQL: the name of a table, or a query."""

from __future__ import annotations

from sqlglot import TokenType
from sqlglot.dialects.postgres import Postgres

from penstock.stream.sql.sql_source import SqlSource

_QUERY_STARTS = (TokenType.SELECT, TokenType.WITH, TokenType.TABLE, TokenType.VALUES)
_MAX_NAME_PARTS = 3


def is_query(text: str) -> bool:
    """Return whether a text starts like a query: ``SELECT``, ``WITH``, ``TABLE`` or ``VALUES``."""
    tokens = SqlSource(text, dialect=Postgres).tokenize()
    first = next((token for token in tokens if token.token_type is not TokenType.L_PAREN), None)
    return first is not None and first.token_type in _QUERY_STARTS


def is_table_name(text: str) -> bool:
    """Return whether a text is a name such as ``customers``, ``crm.customers`` or ``crm."Odd name"``."""
    tokens = SqlSource(text, dialect=Postgres).tokenize()
    names, dots = tokens[::2], tokens[1::2]
    return (
        0 < len(names) <= _MAX_NAME_PARTS
        and len(tokens) == 2 * len(names) - 1
        and all(dot.token_type is TokenType.DOT for dot in dots)
        and all(_is_name(text, name.start, name.end + 1) for name in names)
    )


def _is_name(text: str, start: int, end: int) -> bool:
    name = text[start:end]
    return name.startswith('"') or name.replace("$", "_").isidentifier()
