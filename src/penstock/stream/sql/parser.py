"""The text of statements: where they begin and end, and how an error says where it is."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from penstock.core.errors import ConfigurationError, InvalidSql
from penstock.stream.sql.tokens import Token, closing, tokens_of

_WINDOW = "windo_"
_GOT = re.compile(r" but got <Token.*", re.DOTALL)
_MISSING = re.compile(r"Required keyword: .* missing for .*", re.DOTALL)
#: Of a message, which may quote names of any length.
_LONGEST = 1000
_ESCAPES = re.compile(r"\x1b\[[0-9;]*m")


@dataclass(frozen=True)
class Source:
    """A text with statements in it; ``name`` is its file."""

    text: str
    name: str = ""

    def refuse(self, where: Any, message: str) -> InvalidSql:
        """The error for something at a place: an index into the text, or a part of what was parsed."""
        line, column = self._place(where if isinstance(where, int) else _start(where))
        said = message if len(message) <= _LONGEST else f"{message[:_LONGEST]}..."
        return InvalidSql(f"{self._spelt(line, column)}: {said}", line=line, column=column)

    def place(self, start: int) -> str:
        """A place as errors name it."""
        return self._spelt(*self._place(start))

    def _place(self, start: int) -> tuple[int, int]:
        return self.text.count("\n", 0, start) + 1, start - self.text.rfind("\n", 0, start)

    def _spelt(self, line: int, column: int) -> str:
        return f"{self.name}:{line}:{column}" if self.name else f"line {line}, column {column}"

    def statements(self) -> Iterator[list[Token]]:
        """The tokens of each statement, without its semicolon."""
        some: list[Token] = []
        for token in tokens_of(self.text):
            if token.kind == "symbol" and token.text in "'\"`":
                raise self.refuse(token.start, f"this quote ({token.text}) is not closed, or there is nothing in it")
            if token.kind == "symbol" and token.text == ";":
                if some:
                    yield some
                some = []
            else:
                some.append(token)
        if some:
            yield some

    def parse(self, start: int, stop: int) -> Any:
        """What Spark's SQL means between two places, with the places of its parts."""
        try:
            import sqlglot
            from sqlglot import exp
            from sqlglot.errors import SqlglotError
        except ImportError:
            raise ConfigurationError("statements need sqlglot: pip install 'penstock[spark]'") from None
        # Blanks in front, so that every part knows where it stands.
        text = re.sub(r"[^\n]", " ", self.text[:start]) + self.text[start:stop]
        tokens = tokens_of(text)
        for place, (token, following) in enumerate(pairwise(tokens)):
            # The parser would leave the third out.
            if token.word == "percentile" and following.text == "(" and _arguments(tokens, place + 1) > 2:
                raise self.refuse(token.start, "percentile takes a value and a fraction: percentile(x, 0.95)")
            # After GROUP BY the parser would take it for the clause WINDOW.
            if token.word == "window" and following.text == "(":
                text = text[: token.start] + _WINDOW + text[token.start + len(_WINDOW) :]
        try:
            parsed: Any = sqlglot.parse_one(text, dialect="spark")
        except (SqlglotError, ValueError) as error:
            found: list[dict[str, Any]] = getattr(error, "errors", [])
            if not found or not found[0].get("line"):
                said = _ESCAPES.sub("", str(error)).split("\n")[0]
                raise self.refuse(start, f"it cannot be read: {said}") from None
            where, lines = found[0], self.text.split("\n")
            place = sum(len(line) + 1 for line in lines[: where["line"] - 1]) + where["col"]
            word = where.get("highlight") or ""
            said = _MISSING.sub("something is missing", _GOT.sub("", where["description"].rstrip(".")))
            raise self.refuse(max(place - len(word), 0), f"it cannot be read from {word!r} on: {said}") from None
        for call in parsed.find_all(exp.Anonymous):
            if call.name == _WINDOW:
                call.set("this", "window")
        return parsed

    def check_type(self, start: int, text: str) -> str:
        """A type of Spark's, if it is one."""
        import sqlglot
        from sqlglot import exp

        try:
            types = list(sqlglot.parse_one(f"CAST(x AS {text})", dialect="spark").find_all(exp.DataType))
        except sqlglot.errors.SqlglotError:
            types = []
        nested = (exp.DType.ARRAY, exp.DType.MAP, exp.DType.STRUCT)
        if not types or any(
            kind.this == exp.DType.USERDEFINED or (kind.this in nested and not kind.expressions) for kind in types
        ):
            raise self.refuse(
                start,
                f"{text} is no type of Spark's: write string, boolean, int, bigint, double, decimal(18,2), date, "
                "timestamp, array<...> or struct<...>",
            )
        return text


def _arguments(tokens: list[Token], opening: int) -> int:
    """How many stand between two parentheses."""
    found, place, end = 1, opening + 1, closing(tokens, opening)
    while place < end:
        if tokens[place].text in ("(", "["):
            place = closing(tokens, place)
        found += place < end and tokens[place].text == ","
        place += 1
    return found


def same_type(one: str, other: str) -> bool:
    """Whether two spellings are of the same type: ``INTEGER`` and ``int``."""
    import sqlglot

    parsed = [sqlglot.parse_one(f"CAST(x AS {text})", dialect="spark") for text in (one, other)]
    return bool(parsed[0] == parsed[1])


def _start(node: Any) -> int:
    """Where a part begins, or the smallest one around it of which that is known."""
    while node is not None:
        places = [part.meta["start"] for part in node.walk() if "start" in part.meta]
        if places:
            return int(min(places))
        node = node.parent
    return 0
