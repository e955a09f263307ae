"""SQL text that Spark gets as the user wrote it: what is wrong with it, its parts, and its layout."""

from __future__ import annotations

from sqlglot import Token, TokenType
from sqlglot.dialects.dialect import Dialect

from penstock.core.errors import InvalidSql
from penstock.stream.sql.dialect import SparkSql
from penstock.stream.sql.sql_source import SqlSource

_BRACKETS = {TokenType.R_PAREN: TokenType.L_PAREN, TokenType.R_BRACKET: TokenType.L_BRACKET}
_OPENING = frozenset(_BRACKETS.values())
_STRINGS = frozenset((TokenType.STRING, TokenType.RAW_STRING, TokenType.HEX_STRING))


def find_problem(text: str) -> str | None:
    """Return why a text cannot be an SQL expression; None if it can."""
    source = SqlSource(text)
    try:
        tokens = source.tokenize()
    except InvalidSql as error:
        return f"cannot be read, {error}"
    if not tokens:
        return "is empty"
    opened: list[Token] = []
    for token in tokens:
        if token.token_type is TokenType.SEMICOLON:
            return "has a semicolon, and takes one expression only"
        if token.token_type in _OPENING:
            opened.append(token)
        elif token.token_type in _BRACKETS and (
            not opened or opened.pop().token_type is not _BRACKETS[token.token_type]
        ):
            return f"has a {token.text} that closes nothing"
    return f"has a {opened[-1].text} that is not closed" if opened else None


def split_arguments(text: str) -> list[str]:
    """Return the parts of a text between the commas that no bracket encloses."""
    depth, begin, parts = 0, 0, []
    for token in SqlSource(text).tokenize():
        if token.token_type in _OPENING:
            depth += 1
        elif token.token_type in _BRACKETS:
            depth -= 1
        elif token.token_type is TokenType.COMMA and depth == 0:
            parts.append(text[begin : token.start].strip())
            begin = token.end + 1
    return [*parts, text[begin:].strip()]


def closing_bracket(tokens: list[Token], index: int) -> int | None:
    """Return the index of the token that closes the bracket at an index; None if none does."""
    depth = 0
    for end in range(index, len(tokens)):
        depth += (tokens[end].token_type in _OPENING) - (tokens[end].token_type in _BRACKETS)
        if depth == 0:
            return end
    return None


def on_one_line(text: str, dialect: type[Dialect] = SparkSql) -> str:
    """Return the same SQL on one line and without comments. Literals and quoted names stay as they are."""
    parts: list[str] = []
    end = 0
    for token in SqlSource(text, dialect=dialect).tokenize():
        # The tokens of a literal such as 10L overlap: 10, :: and bigint.
        if token.start >= end:
            written = text[token.start : token.end + 1]
            normalized = " ".join(written.split())
            is_keyword = normalized.upper() == token.text.upper()
            parts += [" "] if parts and token.start > end else []
            parts.append(normalized if is_keyword else written)
            end = token.end + 1
    return "".join(parts)


def has_plain_literals(text: str) -> bool:
    """Return whether every string of an expression is written as it reads, and there are no comments.

    Parsers disagree about escapes, doubled quotes and double quotes.
    """
    return all(
        not token.comments
        and (
            token.token_type not in _STRINGS
            or (token.text != "" and text[token.start : token.end + 1] == f"'{token.text}'")
        )
        for token in SqlSource(text).tokenize()
    )


def split_call(text: str) -> tuple[str, str]:
    """Return the name, in lower case, and the arguments of ``name(arguments)`` or ``name``; both empty otherwise."""
    tokens = SqlSource(text).tokenize()
    if not tokens or not tokens[0].text.isidentifier():
        return "", ""
    if len(tokens) == 1:
        return tokens[0].text.lower(), ""
    if tokens[1].token_type is not TokenType.L_PAREN or tokens[-1].token_type is not TokenType.R_PAREN:
        return "", ""
    return tokens[0].text.lower(), text[tokens[1].end + 1 : tokens[-1].start].strip()


def without_distinct(text: str) -> str | None:
    """Return the expression after DISTINCT; None if a text does not start with DISTINCT."""
    first = SqlSource(text).tokenize()[0]
    return text[first.end + 1 :].strip() if first.token_type is TokenType.DISTINCT else None
