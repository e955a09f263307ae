"""SQL operators and functions over single JSON values, for SQL that is evaluated without Spark.

A value is None, a bool, an int or a Decimal, text, a list or a dict. Null in, null out. Unlike Spark, no value is cast
implicitly: a number in quotes is text until the expression casts it.
"""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Mapping
from decimal import ROUND_CEILING, ROUND_DOWN, ROUND_FLOOR, ROUND_HALF_UP, Context, Decimal, DecimalException
from functools import partial, reduce
from typing import Any

from penstock.core import json
from penstock.core.errors import InvalidRequest, short_repr

#: The most characters of a text that an expression builds.
MAX_TEXT = 1 << 24
#: The digits of a number, and those after the point of a quotient.
_DIGITS, _QUOTIENT_SCALE = 38, 18
_CONTEXT = Context(prec=_DIGITS, rounding=ROUND_HALF_UP, Emax=_DIGITS, Emin=-_DIGITS)
_INTEGERS = {"TINYINT": 2**7, "SMALLINT": 2**15, "INT": 2**31, "BIGINT": 2**63}
_TRUE, _FALSE = ("t", "true", "y", "yes", "1"), ("f", "false", "n", "no", "0")
_NUMBER = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?", re.ASCII)


def describe(value: object) -> str:
    return f"{type_name(value)} {short_repr(str(value) if isinstance(value, Decimal) else value)}"


def type_name(value: object) -> str:
    if isinstance(value, bool):
        return "the boolean"
    if isinstance(value, int | float | Decimal):
        return "the number"
    if isinstance(value, str):
        return "the text"
    return "the array" if isinstance(value, list) else "the object" if isinstance(value, dict) else "the value"


def to_number(value: Any) -> Decimal:
    if isinstance(value, bool) or not isinstance(value, int | float | Decimal):
        hint = ": cast it, as in cast(x AS decimal)" if isinstance(value, str) else ""
        raise InvalidRequest(f"a number is needed here, and this is {describe(value)}{hint}")
    number = Decimal(repr(value)) if isinstance(value, float) else Decimal(value)
    if number.adjusted() > _DIGITS:
        raise InvalidRequest(f"a number has more than {_DIGITS} digits")
    return number


def to_text(value: Any) -> str:
    """Return a value as text: the literal of a number, JSON for an array or an object."""
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Decimal | int):
        return format(to_number(value), "f")
    return json.encode(value).decode()


def need_text(value: Any) -> str:
    if not isinstance(value, str):
        raise InvalidRequest(f"text is needed here, and this is {describe(value)}: cast it, as in cast(x AS string)")
    return value


def need_boolean(value: Any) -> bool:
    if not isinstance(value, bool):
        raise InvalidRequest(f"a condition is needed here, and this is {describe(value)}")
    return value


def compute(function: Callable[[Decimal, Decimal], Decimal], left: Any, right: Any) -> Decimal:
    try:
        return function(to_number(left), to_number(right))
    except DecimalException:
        raise InvalidRequest(f"the result has more than {_DIGITS} digits, or divides by zero") from None


def _divide(left: Decimal, right: Decimal) -> Decimal:
    quotient = _CONTEXT.divide(left, right)
    if quotient.as_tuple().exponent < -_QUOTIENT_SCALE:  # type: ignore[operator]  # it is finite
        quotient = quotient.quantize(Decimal(1).scaleb(-_QUOTIENT_SCALE), ROUND_HALF_UP, _CONTEXT)
    return _plain(quotient)


def _plain(number: Decimal) -> Decimal:
    """Return the number without trailing zeros and without an exponent."""
    plain = number.normalize(_CONTEXT)
    return plain if plain.as_tuple().exponent <= 0 else plain.quantize(Decimal(1), context=_CONTEXT)  # type: ignore[operator]


def _remainder(left: Decimal, right: Decimal) -> Decimal:
    return _CONTEXT.remainder(left, right)


ARITHMETIC: Mapping[str, Callable[[Any, Any], Any]] = {
    "+": partial(compute, _CONTEXT.add),
    "-": partial(compute, _CONTEXT.subtract),
    "*": partial(compute, _CONTEXT.multiply),
    "/": partial(compute, _divide),
    "%": partial(compute, _remainder),
    "div": partial(compute, lambda left, right: _CONTEXT.divide_int(left, right)),
}


def compare(function: Callable[[Any, Any], bool], left: Any, right: Any) -> bool:
    """Compare two values of one type."""
    is_number = [isinstance(value, int | float | Decimal) and not isinstance(value, bool) for value in (left, right)]
    if all(is_number):
        return function(to_number(left), to_number(right))
    if type(left) is not type(right):
        raise InvalidRequest(f"cannot compare {describe(left)} with {describe(right)}: cast one of them")
    if isinstance(left, list | dict) and function not in (operator.eq, operator.ne):
        raise InvalidRequest(f"{describe(left)} has no order")
    return function(left, right)


def is_like(value: Any, pattern: Any) -> bool:
    """Match a pattern of LIKE: ``%`` for any text, ``_`` for a character, and a backslash before one of these."""
    # Without backtracking: the parts between % are searched from left to right.
    text, parts = need_text(value), _like_parts(need_text(pattern))
    if len(parts) == 1:
        return len(text) == len(parts[0]) and _matches(text, 0, parts[0])
    first, *middle, last = parts
    end = len(text) - len(last)
    if len(first) > end or not _matches(text, 0, first) or not _matches(text, end, last):
        return False
    start = len(first)
    for part in middle:
        while start + len(part) <= end and not _matches(text, start, part):
            start += 1
        if start + len(part) > end:
            return False
        start += len(part)
    return True


def _like_parts(pattern: str) -> list[list[str | None]]:
    """Split a pattern at each ``%``. None stands for ``_``."""
    parts: list[list[str | None]] = [[]]
    characters = iter(pattern)
    for character in characters:
        if character == "%":
            parts.append([])
        else:
            parts[-1].append(next(characters, "\\") if character == "\\" else None if character == "_" else character)
    return parts


def _matches(text: str, start: int, part: list[str | None]) -> bool:
    return all(wanted is None or text[start + i] == wanted for i, wanted in enumerate(part))


def cast(value: Any, kind: str, parameters: list[int]) -> Any:
    """Cast a value to a type of Spark SQL. ``decimal`` without digits keeps all of them."""
    match kind:
        case "TEXT" | "VARCHAR" | "CHAR":
            return to_text(value)
        case "BOOLEAN":
            return _cast_to_boolean(value)
        case "DECIMAL":
            return _round_to_type(_parse_number(value), *parameters)
        case "DOUBLE" | "FLOAT":
            number = float(_parse_number(value))
            if not math.isfinite(number):
                raise InvalidRequest(f"{describe(value)} is too large for a double")
            return number
        case _:
            number = int(_parse_number(value).to_integral_value(ROUND_DOWN))
            if not -_INTEGERS[kind] <= number < _INTEGERS[kind]:
                raise InvalidRequest(f"{describe(value)} is out of range for {kind.lower()}")
            return number


def is_castable(kind: str) -> bool:
    return kind in _INTEGERS or kind in ("TEXT", "VARCHAR", "CHAR", "BOOLEAN", "DECIMAL", "DOUBLE", "FLOAT")


def _cast_to_boolean(value: Any) -> bool:
    if isinstance(value, bool):
        return value
    if isinstance(value, str):
        word = value.strip().lower()
        if word in _TRUE or word in _FALSE:
            return word in _TRUE
        raise InvalidRequest(f"{describe(value)} is not a boolean")
    return to_number(value) != 0


def _parse_number(value: Any) -> Decimal:
    if isinstance(value, bool):
        return Decimal(value)
    if not isinstance(value, str):
        return to_number(value)
    text = value.strip()
    if not _NUMBER.fullmatch(text):
        raise InvalidRequest(f"{describe(value)} is not a number")
    return to_number(Decimal(text))


def _round_to_type(number: Decimal, precision: int = _DIGITS, scale: int | None = None) -> Decimal:
    if precision == _DIGITS and scale is None:
        return number
    rounded = _round(number, scale or 0)
    if rounded.adjusted() >= precision - (scale or 0) and rounded:
        raise InvalidRequest(f"the number {number} does not fit decimal({precision}, {scale or 0})")
    return rounded


def _round(number: Decimal, scale: int, rounding: str = ROUND_HALF_UP) -> Decimal:
    if not -_DIGITS <= scale <= _DIGITS:
        raise InvalidRequest(f"a number has at most {_DIGITS} digits after the point")
    try:
        rounded = number.quantize(Decimal(1).scaleb(-scale), rounding, Context(prec=2 * _DIGITS))
    except DecimalException:
        raise InvalidRequest(f"the number {number} has too many digits") from None
    return _plain(rounded) if scale < 0 else rounded


def _concat(*values: Any) -> str:
    texts = [to_text(value) for value in values]
    _check_length(sum(map(len, texts)))
    return "".join(texts)


def _replace(value: Any, old: Any, new: Any = "") -> str:
    text, before, after = need_text(value), need_text(old), need_text(new)
    if not before:
        return text
    _check_length(len(text) + text.count(before) * (len(after) - len(before)))
    return text.replace(before, after)


def _check_length(length: int) -> None:
    if length > MAX_TEXT:
        raise InvalidRequest(f"the text would have {length} characters; at most {MAX_TEXT} are allowed")


def _substring(value: Any, start: Any, length: Any = None) -> str:
    text, first = need_text(value), _to_index(start)
    begin = first - 1 if first > 0 else max(len(text) + first, 0) if first else 0
    return text[begin:] if length is None else text[begin : begin + max(_to_index(length), 0)]


def _split_part(value: Any, separator: Any, index: Any) -> str:
    parts, number = need_text(value).split(need_text(separator) or None), _to_index(index)
    if number == 0:
        raise InvalidRequest("split_part counts parts from 1, or from -1 at the end")
    place = number - 1 if number > 0 else len(parts) + number
    return parts[place] if 0 <= place < len(parts) else ""


def _to_index(value: Any) -> int:
    return int(to_number(value))


def _length(value: Any) -> int:
    return len(value) if isinstance(value, list | dict) else len(need_text(value))


def _extreme(function: Callable[[Any, Any], bool], *values: Any) -> Any:
    return reduce(lambda best, value: value if compare(function, value, best) else best, values)


#: Functions by their name in Spark SQL, with the least and the most arguments. Null in, null out.
FUNCTIONS: Mapping[str, tuple[Callable[..., Any], int, int]] = {
    "abs": (lambda value: abs(to_number(value)), 1, 1),
    "ceil": (lambda value: int(to_number(value).to_integral_value(ROUND_CEILING)), 1, 1),
    "concat": (_concat, 1, 1000),
    "floor": (lambda value: int(to_number(value).to_integral_value(ROUND_FLOOR)), 1, 1),
    "length": (_length, 1, 1),
    "lower": (lambda value: need_text(value).lower(), 1, 1),
    "ltrim": (lambda value: need_text(value).lstrip(" "), 1, 1),
    "mod": (ARITHMETIC["%"], 2, 2),
    "replace": (_replace, 2, 3),
    "round": (lambda value, scale=0: _round(to_number(value), _to_index(scale)), 1, 2),
    "rtrim": (lambda value: need_text(value).rstrip(" "), 1, 1),
    "size": (_length, 1, 1),
    "split_part": (_split_part, 3, 3),
    "substring": (_substring, 2, 3),
    "trim": (lambda value: need_text(value).strip(" "), 1, 1),
    "upper": (lambda value: need_text(value).upper(), 1, 1),
}
#: Functions that ignore nulls among their arguments.
FUNCTIONS_OF_NON_NULLS: Mapping[str, Callable[..., Any]] = {
    "greatest": partial(_extreme, operator.gt),
    "least": partial(_extreme, operator.lt),
}
