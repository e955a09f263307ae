"""Parse expressions, select lists and queries of Spark SQL, each text once.

The trees are shared: copy one before changing it.
"""

from __future__ import annotations

from functools import lru_cache
from typing import cast

from sqlglot import Token, TokenType, exp

from penstock.stream.sql.sql_source import SqlSource

_QUERY_STARTS = (TokenType.SELECT, TokenType.WITH)


@lru_cache(maxsize=1024)
def parse_expression(text: str) -> exp.Expr:
    """Parse one expression. Raises InvalidSql."""
    source = SqlSource(text)
    return cast(exp.Expr, source.parse(source.tokenize(), exp.Expr))


@lru_cache(maxsize=1024)
def parse_select(text: str) -> exp.Expr:
    """Parse a query, or a select list as the query of these columns. Raises InvalidSql."""
    source = SqlSource(text)
    tokens = source.tokenize()
    if tokens and tokens[0].token_type not in _QUERY_STARTS:
        tokens.insert(0, Token(TokenType.SELECT, "SELECT"))
    return cast(exp.Expr, source.parse(tokens, exp.Select))
