"""What a SELECT of a stream may be: its answer for an event must not depend on which events came along with it."""

from __future__ import annotations

from penstock.core.errors import InvalidRequest, shown
from penstock.stream.sql_text import Token, closing, problem_in, tokens_of

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
