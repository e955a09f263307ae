"""Fields with their types, as in ``customer string, amount decimal(12,2)``: read here, so that errors name the option.

Spark would find a mistake too, in a text that is not the user's: the one that the format makes of all its columns.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable

from penstock.core.errors import InvalidOption, shown
from penstock.stream.sql.tokens import Token, tokens_of

_TYPES = (
    *("string", "boolean", "tinyint", "byte", "smallint", "short", "int", "integer", "bigint", "long"),
    *("float", "real", "double", "decimal", "dec", "numeric", "timestamp", "timestamp_ltz", "timestamp_ntz"),
    # JSON has none of these: they are refused where it is known which field it is.
    *("date", "binary", "varchar", "char", "variant"),
)
_WITH_NUMBERS = ("decimal", "dec", "numeric", "varchar", "char")
_EXAMPLE = "customer string, amount decimal(12,2)"


def check_fields(text: str) -> None:
    """Raise InvalidOption for what Spark would not read as fields."""
    if text:
        _Fields(text).read()


class _Fields:
    """Goes through the tokens once."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = tokens_of(text)
        self._place = 0

    def read(self) -> None:
        self._fields()
        if self._place < len(self._tokens):
            raise self._bad(f"{shown(self._tokens[self._place].text)} is not expected")

    def _fields(self) -> None:
        while True:
            token = self._next("a field")
            if not token.is_name:
                raise self._bad(f"{shown(token.text)} is no name of a field")
            self._take(":")
            self._type(token.name)
            if self._take_word("not") and not self._take_word("null"):
                raise self._bad("after NOT there is NULL")
            if self._take_word("comment"):
                self._next("a comment")
            if not self._take(","):
                return

    def _type(self, field: str) -> None:
        token = self._next(f"the type of {shown(field)}")
        kind = token.word
        if kind == "array":
            self._inside("<", lambda: self._type(field))
        elif kind == "map":
            self._inside("<", lambda: self._pair(field))
        elif kind == "struct":
            self._inside("<", self._fields)
        elif kind not in _TYPES:
            close = difflib.get_close_matches(kind, _TYPES, n=1)
            hint = f"; did you mean {close[0]!r}?" if close else ""
            raise self._bad(f"{shown(token.text)} is no type for {shown(field)}{hint}")
        elif kind in _WITH_NUMBERS and self._peek() == "(":
            self._inside("(", self._numbers)

    def _pair(self, field: str) -> None:
        self._type(field)
        if not self._take(","):
            raise self._bad("a map has two types")
        self._type(field)

    def _numbers(self) -> None:
        while True:
            token = self._next("a number")
            if not token.text.isdecimal():
                raise self._bad(f"{shown(token.text)} is no number of digits")
            if not self._take(","):
                return

    def _inside(self, opens: str, read: Callable[[], None]) -> None:
        closes = {"<": ">", "(": ")"}[opens]
        if not self._take(opens):
            raise self._bad(f"{opens} is missing after {self._tokens[self._place - 1].text!r}")
        read()
        if not self._take(closes):
            raise self._bad(f"a {opens} is not closed")

    def _peek(self) -> str:
        return self._tokens[self._place].text if self._place < len(self._tokens) else ""

    def _take(self, text: str) -> bool:
        found = self._peek() == text
        self._place += found
        return found

    def _take_word(self, word: str) -> bool:
        return self._take(self._peek()) if self._peek().lower() == word else False

    def _next(self, what: str) -> Token:
        if self._place >= len(self._tokens):
            raise self._bad(f"{what} is missing at its end")
        self._place += 1
        return self._tokens[self._place - 1]

    def _bad(self, problem: str) -> InvalidOption:
        return InvalidOption(
            f"option 'fields' names fields with their types, as in {_EXAMPLE!r}, and in {shown(self._text)} {problem}",
            option="fields",
        )
