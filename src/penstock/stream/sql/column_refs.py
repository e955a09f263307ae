"""Which columns SQL text means, so that only those are read from the events.

A name too many costs a little; a name too few would be a column that is missing. So the words of Spark's language
count as columns wherever they can be one: ``timestamp > 5``, ``end - start``.
"""

from __future__ import annotations

import re

from penstock.stream.sql.tokens import Token, closing, tokens_of

#: After these an expression goes on; as columns they need backquotes.
_WORDS = frozenset(
    (
        *("select", "distinct", "from", "where", "having", "on", "using", "join", "by", "and", "or", "not", "is"),
        *("in", "between", "like", "rlike", "ilike", "regexp", "div", "case", "when", "then", "else", "as", "with"),
    )
)
#: These stand for a value.
_VALUES = frozenset(("null", "true", "false", "end"))
#: Words that are columns after all where an operand is expected and none follows: ``end - start``, ``from = 'a'``.
_RATHER_COLUMNS = frozenset(
    ("from", "where", "having", "on", "using", "join", "by", "in", "is", "like", "div", "when", "then", "else", "end")
)
_INFIX = frozenset(("and", "or", "is", "in", "between", "like", "rlike", "ilike", "not", "as", "then", "else", "when"))
#: Functions without parentheses; a column of that name would hide them.
_BARE_FUNCTIONS = frozenset(
    ("current_date", "current_time", "current_timestamp", "localtimestamp", "current_user", "session_user")
)
_TYPED_LITERALS = frozenset(("date", "time", "timestamp", "timestamp_ntz", "timestamp_ltz", "interval"))
_FROM_INSIDE = frozenset(("extract", "trim", "substring", "substr", "overlay", "position"))
_COLUMN = re.compile(r"Column<'(.*)'>", re.DOTALL)
_FRESH = re.compile(r"\b([xyz])_\d+\b")
_NOTHING = Token("", "", 0)


def names_in(text: str) -> list[str]:
    """The names of columns that SQL text may mean, in order.

    Left out are words of the language, functions, aliases, the variables of lambdas, the fields of structs and the
    columns of tables other than ``stream``. A Spark Column's text will do too, as long as its names need no quotes.
    """
    return list(_Reading(tokens_of(column_text(text))).columns())


def column_text(text: str) -> str:
    """What a Spark Column prints, as SQL: without ``Column<'...'>`` and with lambda variables numbered from 1."""
    match = _COLUMN.fullmatch(text)
    if match is None:
        return text
    fresh: dict[str, str] = {}
    return _FRESH.sub(
        lambda found: fresh.setdefault(found[0], f"{found[1]}_{len(fresh) + 1}") if "->" in match[1] else found[0],
        match[1],
    )


class _Reading:
    def __init__(self, tokens: list[Token]) -> None:
        self.tokens = tokens
        self.calls = self._calls()
        self.hidden = self._lambda_variables() | self._types()
        self.reads, self.tables = self._tables()

    def columns(self) -> dict[str, None]:
        found: dict[str, None] = {}
        after_value = False
        place = 0
        while place < len(self.tokens):
            token = self.tokens[place]
            if not token.is_name or place in self.hidden:
                after_value = token.kind != "symbol" or token.text in ")]"
                place += 1
                continue
            parts = self._dotted(place)
            past = place + 2 * len(parts) - 1
            if len(parts) == 1 and self._is_word(place, after_value):
                after_value = token.word not in _WORDS
                if token.word in _TYPED_LITERALS:
                    after_value = False
            else:
                if not after_value and self._at(past).text != "(" and not self._is_named_otherwise(place):
                    found.update(dict.fromkeys(self._meant(parts, past)))
                after_value = True
            place = past
        return found

    def _at(self, place: int) -> Token:
        return self.tokens[place] if 0 <= place < len(self.tokens) else _NOTHING

    def _dotted(self, place: int) -> list[str]:
        parts = [self.tokens[place].name]
        while self._at(place + 1).text == "." and self._at(place + 2).is_name:
            place += 2
            parts.append(self.tokens[place].name)
        return parts

    def _is_word(self, place: int, after_value: bool) -> bool:
        """Whether the bare name there is a word of the language."""
        word, following = self.tokens[place].word, self._at(place + 1)
        if word in _RATHER_COLUMNS and not after_value and self._at(place - 1).word not in ("case", "distinct"):
            alone = following.kind in ("", "symbol") and following.text != "("
            return not alone and following.word not in _INFIX
        if word in _WORDS or word in _VALUES or word in _BARE_FUNCTIONS:
            return True
        if word in _TYPED_LITERALS and not after_value:
            return following.kind == "string" or (word == "interval" and following.kind == "number")
        return following.word == "by" or (word, following.word) in (
            ("unbounded", "preceding"),
            ("unbounded", "following"),
            ("current", "row"),
        )

    def _is_named_otherwise(self, place: int) -> bool:
        """Whether it is a field of a struct, a type, a named argument, an alias or a table."""
        before = self._at(place - 1)
        return (
            before.text in (".", "::")
            or self._at(place + 1).text == "=>"
            or before.word == "as"
            or self._is_part_of_call(place)
            or self._names_table(place - 1)
        )

    def _is_part_of_call(self, place: int) -> bool:
        """Whether it says what to take: ``extract(year FROM t)``, ``trim(BOTH 'x' FROM t)``."""
        if self._at(place - 1).text != "(" or self.calls[place] not in ("extract", "trim"):
            return False
        return self._at(place + 1).word == "from" or self.tokens[place].word in ("both", "leading", "trailing")

    def _meant(self, parts: list[str], past: int) -> list[str]:
        """The columns of the stream that ``a``, ``a.b`` or ``a.*`` can mean."""
        table = self.tables.get(parts[0].lower())
        if table is None or (len(parts) == 1 and self._at(past).text != "."):
            # In a query, a may be a subquery's name as well as a struct.
            return parts[:2] if self.reads else parts[:1]
        return parts[1:2] if table == "stream" else []

    def _calls(self) -> list[str]:
        """For each token, the function in whose parentheses it stands."""
        found: list[str] = []
        around: list[str] = [""]
        for place, token in enumerate(self.tokens):
            if token.text == "(":
                around.append(self._at(place - 1).word)
            elif token.text == ")" and len(around) > 1:
                around.pop()
            found.append(around[-1])
        return found

    def _lambda_variables(self) -> set[int]:
        hidden: set[int] = set()
        for arrow in (place for place, token in enumerate(self.tokens) if token.text == "->"):
            begin = arrow - 1
            if self._at(begin).text == ")":
                while begin > 0 and self.tokens[begin].text != "(":
                    begin -= 1
            variables = {token.name for token in self.tokens[max(begin, 0) : arrow] if token.is_name}
            end = arrow + 1
            while end < len(self.tokens) and self.tokens[end].text not in (")", "]", ","):
                end = closing(self.tokens, end) + 1 if self.tokens[end].text in ("(", "[") else end + 1
            hidden.update(
                place
                for place in range(max(begin, 0), min(end, len(self.tokens)))
                if self.tokens[place].is_name
                and self.tokens[place].name in variables
                and self._at(place - 1).text != "."
                and self._at(place + 1).text != "("
            )
        return hidden

    def _types(self) -> set[int]:
        """The places of types in casts, and of lists of aliases."""
        hidden: set[int] = set()
        for place, token in enumerate(self.tokens):
            if token.word != "as":
                continue
            if self._at(place + 1).text == "(":
                hidden.update(range(place + 1, closing(self.tokens, place + 1)))
            elif self.calls[place] in ("cast", "try_cast"):
                depth, end = 0, place + 1
                while end < len(self.tokens) and not (depth == 0 and self.tokens[end].text == ")"):
                    depth += (self.tokens[end].text == "(") - (self.tokens[end].text == ")")
                    end += 1
                hidden.update(range(place + 1, end))
        return hidden

    def _names_table(self, place: int) -> bool:
        """Whether a table follows the word there."""
        word = self._at(place).word
        if word == "from":
            return self._at(place - 1).word != "distinct" and self.calls[place] not in _FROM_INSIDE
        return word == "join"

    def _tables(self) -> tuple[bool, dict[str, str]]:
        """Whether it is a query, and its tables by alias."""
        reads, tables = False, {}
        for place in range(len(self.tokens)):
            following = self._at(place + 1)
            if not self._names_table(place) or not (following.is_name or following.text == "("):
                continue
            reads = True
            if following.is_name:
                parts = self._dotted(place + 1)
                past = place + 2 * len(parts)
                tables[parts[-1].lower()] = parts[-1].lower()
                past += self._at(past).word == "as"
                alias = self._at(past)
                if alias.is_name and alias.word not in _WORDS:
                    tables[alias.name.lower()] = parts[-1].lower()
        return reads, tables
