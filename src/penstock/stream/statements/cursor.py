"""Reads the tokens of a statement one after the other."""

from __future__ import annotations

from typing import Any

from sqlglot import Token, TokenType

from penstock.core.errors import InvalidSql
from penstock.stream.sql.column_types import parse_type
from penstock.stream.sql.sql_source import SqlSource
from penstock.stream.sql.sql_text import closing_bracket

_CONSTANTS = {"true": True, "false": False, "null": None}
_LITERALS = (TokenType.NUMBER, TokenType.STRING, TokenType.RAW_STRING, TokenType.HEX_STRING)
_STRINGS = (TokenType.STRING, TokenType.RAW_STRING)
_TYPE_BRACKETS = {TokenType.L_PAREN: 1, TokenType.LT: 1, TokenType.R_PAREN: -1, TokenType.GT: -1}


def split_statements(source: SqlSource) -> list[list[Token]]:
    """Return the tokens of each statement of a text."""
    statements: list[list[Token]] = [[]]
    for token in source.tokenize():
        if token.token_type is TokenType.SEMICOLON:
            statements.append([])
        else:
            statements[-1].append(token)
    return [tokens for tokens in statements if tokens]


class TokenCursor:
    """A position in the tokens of a statement."""

    def __init__(self, source: SqlSource, tokens: list[Token]) -> None:
        self._source = source
        self._tokens = tokens
        self._index = 0

    @property
    def start(self) -> int:
        return self._tokens[0].start

    @property
    def is_at_end(self) -> bool:
        return self._index >= len(self._tokens)

    @property
    def is_last(self) -> bool:
        """Whether the current token is the last one of the statement."""
        return self._index == len(self._tokens) - 1

    def error(self, message: str) -> InvalidSql:
        """Return the error for the current token, or for the last one at the end of the statement."""
        return self._source.error(self._tokens[min(self._index, len(self._tokens) - 1)].start, message)

    def word(self, offset: int = 0) -> str:
        """Return the word at an offset from the current token, in lower case; empty if it is not a word."""
        token = self._peek(offset)
        return token.text.lower() if token is not None and self._is_word(token) else ""

    def is_string(self) -> bool:
        token = self._peek()
        return token is not None and token.token_type in _STRINGS

    def is_open_bracket(self) -> bool:
        return self._is(TokenType.L_PAREN)

    def take(self, word: str) -> bool:
        """Skip a word if it is the current token."""
        if self.word() != word:
            return False
        self._index += 1
        return True

    def expect(self, word: str) -> None:
        if not self.take(word):
            raise self.error(f"{word.upper()} is expected here")

    def expect_end(self) -> None:
        token = self._peek()
        if token is not None:
            raise self.error(f"nothing is expected here: {token.text!r} is too much; perhaps a ; is missing")

    def rest(self) -> list[Token]:
        """Return the tokens from the current one on, which are a SELECT."""
        if self.is_at_end:
            raise self.error("a SELECT is expected after this")
        return self._tokens[self._index :]

    def rest_of_text(self) -> str:
        tokens = self.rest()
        return self._source.text[tokens[0].start : tokens[-1].end + 1]

    def name(self, what: str) -> str:
        parts: list[str] = []
        while (token := self._peek()) is not None and self._is_name(token):
            parts.append(token.text)
            self._index += 1
            if not self._is(TokenType.DOT):
                break
            self._index += 1
        if not parts:
            raise self.error(f"the name of {what} is expected here; one with other characters is quoted: `my-queue`")
        return ".".join(parts)

    def string(self) -> str:
        token = self._peek()
        if token is None or token.token_type not in _STRINGS:
            raise self.error("a text in quotes is expected here")
        self._index += 1
        return token.text

    def columns(self) -> tuple[dict[str, str], bool]:
        """Read ``(amount decimal(18,2), at timestamp)``. A ``*`` at the end means that there are more columns."""
        last = self._closing_bracket()
        items, has_star = self._tokens[self._index + 1 : last], False
        if items and items[-1].token_type is TokenType.STAR:
            star, has_star = items.pop(), True
            if items and items.pop().token_type is not TokenType.COMMA:
                raise self._source.error(star.start, "a , is expected before the *")
        types: dict[str, str] = {}
        for column in _split_columns(items):
            name, *kind = column
            if not kind or not self._is_name(name):
                raise self._source.error(name.start, "a column is a name and a type: amount decimal(18,2)")
            types[name.text] = self._parse_type(kind)
        self._index = last + 1
        return types, has_star

    def type(self) -> str:
        """Read a type: the tokens up to AS."""
        begin = self._index
        while not self.is_at_end and self.word() != "as":
            self._index += 1
        if begin == self._index:
            raise self.error("a type is expected here, such as bigint")
        return self._parse_type(self._tokens[begin : self._index])

    def _parse_type(self, tokens: list[Token]) -> str:
        text = self._source.text[tokens[0].start : tokens[-1].end + 1]
        if parse_type(text) is None:
            raise self._source.error(
                tokens[0].start,
                f"{text} is no type of Spark's: write string, boolean, int, bigint, double, decimal(18,2), date, "
                "timestamp, array<...> or struct<...>",
            )
        return text

    def options(self) -> dict[str, Any]:
        """Read ``WITH (name = value, ...)``, if it is there. Values are numbers, strings, TRUE, FALSE and NULL."""
        if not self.take("with"):
            return {}
        if not self.is_open_bracket():
            raise self.error("options are in parentheses: WITH (partitions = 4)")
        end = self._closing_bracket()
        self._index += 1
        options: dict[str, Any] = {}
        while self._index < end:
            token = self._tokens[self._index]
            self._index += 1
            if not self._is_name(token) or not self._is(TokenType.EQ):
                self._index -= 1
                raise self.error("an option is a name and a value: partitions = 4")
            self._index += 1
            if token.text in options:
                raise self.error(f"{token.text} is given twice")
            options[token.text] = self._value()
            if self._index < end and not self._is(TokenType.COMMA):
                raise self.error("a , is expected between options")
            self._index += self._index < end
        self._index = end + 1
        return options

    def _value(self) -> Any:
        is_negative = self._is(TokenType.DASH)
        self._index += is_negative
        token = self._tokens[self._index]
        if token.token_type is TokenType.NUMBER:
            self._index += 1
            number = float(token.text) if not token.text.isdecimal() else int(token.text)
            return -number if is_negative else number
        if not is_negative and (self.is_string() or self.word() in _CONSTANTS):
            self._index += 1
            return token.text if token.token_type in _STRINGS else _CONSTANTS[token.text.lower()]
        raise self.error(f"{token.text} is no value: write a number, a text in quotes, TRUE, FALSE or NULL")

    def _closing_bracket(self) -> int:
        end = closing_bracket(self._tokens, self._index)
        if end is None:
            raise self.error("this ( is not closed")
        return end

    def _peek(self, offset: int = 0) -> Token | None:
        index = self._index + offset
        return self._tokens[index] if index < len(self._tokens) else None

    def _is(self, kind: TokenType) -> bool:
        token = self._peek()
        return token is not None and token.token_type is kind

    def _is_quoted(self, token: Token) -> bool:
        return self._source.text[token.start] == "`"

    def _is_word(self, token: Token) -> bool:
        is_literal = token.token_type in _LITERALS or self._is_quoted(token)
        return not is_literal and (token.text[:1].isalnum() or token.text[:1] == "_")

    def _is_name(self, token: Token) -> bool:
        return self._is_quoted(token) or self._is_word(token)


def _split_columns(tokens: list[Token]) -> list[list[Token]]:
    """Split at the commas outside the brackets of types."""
    columns: list[list[Token]] = [[]]
    depth = 0
    for token in tokens:
        depth += _TYPE_BRACKETS.get(token.token_type, 0)
        if depth == 0 and token.token_type is TokenType.COMMA:
            columns.append([])
        else:
            columns[-1].append(token)
    return [column for column in columns if column]
