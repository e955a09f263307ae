"""SQL text cut into tokens, as far as a definition must understand it without Spark."""

from __future__ import annotations

import re
from typing import NamedTuple

_TOKEN = re.compile(
    r"""
      (?P<space> \s+ | --[^\n]* | /\*.*?\*/ )
    | (?P<string> [rR]'[^']*' | [rR]"[^"]*" | [xX]?'(?:[^'\\]|\\.)*' | [xX]?"(?:[^"\\]|\\.)*" )
    | (?P<quoted> `(?:[^`]|``)+` )
    | (?P<number> (?:\d+(?:\.\d*)?|\.\d+) (?:[eE][+-]?\d+)? (?:[bB][dD]|[lLsSyYdDfF])? (?!\w) )
    | (?P<name> \w+ )
    | (?P<symbol> -> | => | :: | . )
    """,
    re.VERBOSE | re.DOTALL,
)
_CLOSES = {")": "(", "]": "["}


class Token(NamedTuple):
    """A piece of SQL: its kind (string, quoted, number, name, symbol), its text, and where it begins."""

    kind: str
    text: str
    start: int

    @property
    def word(self) -> str:
        """In lower case if it is a bare name, else empty: what a word of the language is compared with."""
        return self.text.lower() if self.kind == "name" else ""

    @property
    def is_name(self) -> bool:
        """Whether it can name something."""
        return self.kind in ("name", "quoted")

    @property
    def name(self) -> str:
        """The name it means, without its backquotes."""
        return self.text[1:-1].replace("``", "`") if self.kind == "quoted" else self.text


def tokens_of(text: str) -> list[Token]:
    """The tokens, without spaces and comments."""
    return [
        Token(str(match.lastgroup), match.group(), match.start())
        for match in _TOKEN.finditer(text)
        if match.lastgroup != "space"
    ]


def problem_in(text: str) -> str | None:
    """Say what makes it no SQL expression, or None if nothing does."""
    open_ones: list[str] = []
    tokens = tokens_of(text)
    if not tokens:
        return "is empty"
    for token in tokens:
        if token.kind != "symbol":
            continue
        if token.text in "'\"`":
            return f"has a quote ({token.text}) that is not closed"
        if token.text == ";":
            return "has a semicolon, and takes one expression only"
        if token.text in "([":
            open_ones.append(token.text)
        elif token.text in _CLOSES and (not open_ones or open_ones.pop() != _CLOSES[token.text]):
            return f"has a {token.text} that closes nothing"
    return f"has a {open_ones[-1]} that is not closed" if open_ones else None


def arguments_in(text: str) -> list[str]:
    """What stands between the commas that no bracket encloses."""
    depth, begin, found = 0, 0, []
    for token in tokens_of(text):
        if token.kind != "symbol":
            continue
        if token.text in "([":
            depth += 1
        elif token.text in _CLOSES:
            depth -= 1
        elif token.text == "," and depth == 0:
            found.append(text[begin : token.start].strip())
            begin = token.start + 1
    return [*found, text[begin:].strip()]


def closing(tokens: list[Token], index: int) -> int:
    """The place of the bracket that closes the one at a place, or the end."""
    depth = 0
    for place in range(index, len(tokens)):
        if tokens[place].kind == "symbol":
            depth += (tokens[place].text in "([") - (tokens[place].text in _CLOSES)
            if depth == 0:
                return place
    return len(tokens)


def one_line(text: str) -> str:
    """The same SQL on one line, without comments; what is inside quotes stays as it is."""
    parts: list[str] = []
    for match in _TOKEN.finditer(text):
        if match.lastgroup != "space":
            parts.append(match.group())
        elif parts and parts[-1] != " ":
            parts.append(" ")
    return "".join(parts).strip()
