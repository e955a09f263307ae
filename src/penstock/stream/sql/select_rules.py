"""What a SELECT of a stream may be: its answer for an event must not depend on which events came along with it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from penstock.core.errors import InvalidRequest, shown
from penstock.stream.sql.tokens import Token, closing, problem_in, tokens_of

_AGGREGATES = frozenset(
    (
        *("count", "count_if", "sum", "avg", "mean", "min", "max", "stddev", "variance", "first", "last", "median"),
        *(
            "collect_list",
            "collect_set",
            "approx_count_distinct",
            "percentile",
            "percentile_approx",
            "max_by",
            "min_by",
        ),
    )
)
#: What may follow a table that has no other name.
_AFTER_TABLE = frozenset(
    (
        *("anti", "cross", "full", "inner", "join", "left", "natural", "on", "outer", "right", "semi", "using"),
        *("cluster", "distribute", "group", "having", "lateral", "limit", "offset", "order", "sort", "where", "window"),
        *("except", "intersect", "minus", "pivot", "tablesample", "union", "unpivot"),
    )
)
_EXAMPLE = "SELECT a, b * 2 AS c FROM stream"


def check_select(query: object) -> str:
    """Return the query if it is a SELECT that works event by event."""
    given = query.strip().removesuffix(";") if isinstance(query, str) else ""
    tokens = tokens_of(given)
    if not tokens or tokens[0].word != "select":
        raise InvalidRequest(f"sql takes a SELECT over the table `stream`, such as '{_EXAMPLE}', not {shown(query)}")
    problem = problem_in(given)
    if problem is not None:
        raise InvalidRequest(f"sql: {shown(given)} {problem}; write it like '{_EXAMPLE}'")
    if not any(_reads_stream(tokens, place) for place in range(len(tokens))):
        raise InvalidRequest(f"sql must read FROM stream, which stands for the events: '{_EXAMPLE}'")
    for place in range(len(tokens)):
        clause = _gathers(tokens, place)
        if clause is not None and _over_stream(tokens, place):
            raise InvalidRequest(
                f"sql works event by event, and {clause} needs several: add a window and .aggregate({{...}}) after it"
            )
    return given


def passes_all(query: str) -> bool:
    """Whether it selects all fields of the stream, and perhaps more beside them."""
    return any(True for _ in _stars(tokens_of(query)))


def names_exceptions(query: str) -> bool:
    """Whether it selects all fields of the stream but some."""
    tokens = tokens_of(query)
    return any(_word(tokens, star + 1) == "except" and _word(tokens, star + 2) == "(" for star in _stars(tokens))


def _stars(tokens: list[Token]) -> Iterator[int]:
    """Where the outermost SELECT has a * that stands for the fields of the stream."""
    called = {"stream"}
    for place in range(len(tokens)):
        if _reads_stream(tokens, place):
            called.add((_alias(tokens, place + 1) or "stream").strip("`").lower())
    place = 1
    while place < len(tokens) and tokens[place].word != "from":
        if tokens[place].text in ("(", "["):
            place = closing(tokens, place)
        elif tokens[place].text == "*":
            before = _word(tokens, place - 1)
            if before in ("select", ",") or (before == "." and tokens[place - 2].name.lower() in called):
                yield place
        place += 1


def with_columns(query: str, columns: Sequence[str]) -> str:
    """The query with some columns of the stream in front of those that it selects, whatever it calls the stream.

    Where it selects all of the stream, they are among them.
    The stream's name is put into quotes: FROM stream s means something else to Spark, a table s that is streamed.
    """
    tokens = tokens_of(query)
    places = [place for place in range(len(tokens)) if _reads_stream(tokens, place)]
    called = _alias(tokens, places[0] + 1) or "`stream`"
    first = tokens[0].start + len(tokens[0].text)
    added = [] if passes_all(query) else columns
    edits = [(first, first, "".join(f" {called}.{column}," for column in added))]
    edits += [(tokens[p].start, tokens[p].start + len(tokens[p].text), "`stream`") for p in places]
    for start, stop, text in sorted(edits, reverse=True):
        query = f"{query[:start]}{text}{query[stop:]}"
    return query


def _alias(tokens: list[Token], place: int) -> str | None:
    """The name that what stands before a place is given there."""
    if _word(tokens, place) == "as":
        place += 1
    if place >= len(tokens) or not tokens[place].is_name or tokens[place].word in _AFTER_TABLE:
        return None
    return tokens[place].text


def _word(tokens: list[Token], place: int) -> str:
    return tokens[place].text.lower() if 0 <= place < len(tokens) and tokens[place].kind in ("name", "symbol") else ""


def _reads_stream(tokens: list[Token], place: int) -> bool:
    if not tokens[place].is_name or tokens[place].name.lower() != "stream":
        return False
    return _word(tokens, place - 1) in ("from", "join", ",") and _word(tokens, place + 1) != "."


def _gathers(tokens: list[Token], place: int) -> str | None:
    """What at a place looks at several events at a time, or None."""
    word, following = tokens[place].word, _word(tokens, place + 1)
    if word in ("group", "cluster", "distribute") and following == "by":
        return f"{word.upper()} BY"
    if word == "select" and following == "distinct":
        return "SELECT DISTINCT"
    if word == "limit" and place + 1 < len(tokens) and tokens[place + 1].kind == "number":
        return "LIMIT"
    if word == "over" and following == "(":
        return "a window function (OVER)"
    if word in _AGGREGATES and following == "(" and _word(tokens, place - 1) != ".":
        return f"{word}(...)"
    return None


def _over_stream(tokens: list[Token], place: int) -> bool:
    """Whether the innermost SELECT around a place reads the stream, itself or in a SELECT inside it."""
    begin, end = 0, len(tokens)
    for opening in range(place + 1):
        if tokens[opening].text == "(" and _word(tokens, opening + 1) == "select":
            close = closing(tokens, opening)
            if close > place:
                begin, end = opening, close
    return any(_reads_stream(tokens, inner) for inner in range(begin, end))
