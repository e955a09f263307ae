"""A text of SQL, tokenized and parsed by sqlglot, with errors that name the position in it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from sqlglot import Token, TokenType, exp
from sqlglot.dialects.dialect import Dialect
from sqlglot.errors import ParseError, SqlglotError, TokenError

from penstock.core.errors import InvalidRequest, InvalidSql
from penstock.stream.sql.dialect import SparkSql

#: Characters of a message. It may quote names of any length.
_MAX_MESSAGE = 1000
_QUOTES = ("'", '"', "`")


@dataclass(frozen=True)
class SqlSource:
    """A text of SQL in a dialect."""

    text: str
    #: The file of the text, if there is one.
    name: str = ""
    dialect: type[Dialect] = SparkSql

    def error(self, where: int | exp.Expr, message: str) -> InvalidSql:
        """Return the error for an index of the text, or for a part of the tree."""
        line, column = self._line_and_column(where if isinstance(where, int) else _start(where))
        short = message if len(message) <= _MAX_MESSAGE else f"{message[:_MAX_MESSAGE]}..."
        return InvalidSql(f"{self._format(line, column)}: {short}", line=line, column=column)

    @contextmanager
    def locate_errors(self, where: int | exp.Expr) -> Iterator[None]:
        """Raise an error of the block with a position, unless it has one."""
        try:
            yield
        except InvalidSql:
            raise
        except InvalidRequest as error:
            raise self.error(where, str(error)) from None
        except RecursionError:
            raise self.error(where, "it is nested too deep to be read: put parts of it into views") from None

    def position(self, index: int) -> str:
        return self._format(*self._line_and_column(index))

    def tokenize(self) -> list[Token]:
        """Return the tokens, without comments."""
        try:
            tokens = self.dialect().tokenize(self.text)
        except TokenError as error:
            quote = self._unclosed_quote()
            if quote is None:
                raise self.error(0, str(error)) from None
            raise self.error(quote, f"this quote ({self.text[quote]}) is not closed") from None
        for token in tokens:
            if token.token_type is TokenType.IDENTIFIER and not token.text:
                raise self.error(token.start, "there is no name between these quotes (``)")
        return tokens

    def parse(self, tokens: list[Token], into: type[exp.Expr] | None = None) -> Any:
        """Parse some of the tokens, as a statement or as the given kind of expression."""
        parser = self.dialect().parser()
        try:
            with self.locate_errors(tokens[0].start if tokens else 0):
                parsed = parser.parse(tokens, self.text) if into is None else parser.parse_into(into, tokens, self.text)
        except (SqlglotError, ValueError) as error:
            raise self._unreadable(tokens[0].start, error) from None
        if parsed[0] is None:
            raise self.error(tokens[0].start if tokens else 0, "it is empty")
        return parsed[0]

    def _unreadable(self, start: int, error: Exception) -> InvalidSql:
        details = error.errors[0] if isinstance(error, ParseError) and error.errors else {}
        if not details.get("line"):
            return self.error(start, f"it cannot be read: {error}".splitlines()[0])
        lines = self.text.split("\n")
        end = sum(len(line) + 1 for line in lines[: details["line"] - 1]) + details["col"]
        word = details["highlight"] or ""
        # All errors of sqlglot's parser have one class and no code, so they are told apart by their description.
        reason = details["description"].partition(" but got <Token")[0].rstrip(".")
        if reason.startswith("Required keyword"):
            reason = "something is missing"
        return self.error(max(end - len(word), 0), f"it cannot be read at {word!r}: {reason}")

    def _unclosed_quote(self) -> int | None:
        """Return the index of the quote that is not closed: with another such quote at the end, it would be."""
        for quote in _QUOTES:
            try:
                return self.text.index(quote, self.dialect().tokenize(self.text + quote)[-1].start)
            except TokenError:
                continue
        return None

    def _line_and_column(self, index: int) -> tuple[int, int]:
        return self.text.count("\n", 0, index) + 1, index - self.text.rfind("\n", 0, index)

    def _format(self, line: int, column: int) -> str:
        return f"{self.name}:{line}:{column}" if self.name else f"line {line}, column {column}"


def _start(node: Any) -> int:
    """Return where a part begins, or where the smallest part around it begins whose position is known."""
    while node is not None:
        starts = [part.meta["start"] for part in node.walk() if "start" in part.meta]
        if starts:
            return int(min(starts))
        node = node.parent
    return 0
