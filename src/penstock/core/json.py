"""JSON codec: exact integers of any size, decimals as literals, no NaN.

Built on msgspec. On top of it, encoding refuses NaN and infinity, which msgspec writes as null; decoding keeps numbers
that do not fit a double; and both refuse deep nesting.
"""

from __future__ import annotations

import codecs
import gc
import json
import math
import re
from collections.abc import Iterable, Sequence
from datetime import date, datetime, time, timedelta
from decimal import Decimal, InvalidOperation
from enum import Enum
from itertools import accumulate, chain
from typing import Any, NoReturn
from uuid import UUID

import msgspec

#: Maximum nesting. Parsers downstream recurse, and each has another limit.
MAX_DEPTH = 256

_WHITESPACE = b" \t\r\n"

_encoder = msgspec.json.Encoder(decimal_format="number")
_decoder = msgspec.json.Decoder()
_syntax = msgspec.json.Decoder(msgspec.Raw)

_TEXT = frozenset((str,))
# Types that the encoder writes as text.
_TEXT_LIKE = (datetime, date, time, timedelta, UUID)
_SCALARS = frozenset((str, int, float, bool, type(None), *_TEXT_LIKE))
_LEAVES = _SCALARS | {Decimal}
_CONTAINERS = frozenset((dict, list, tuple))
_PLAIN = _LEAVES | _CONTAINERS

_string = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"', re.DOTALL)
_exponent = re.compile(rb"[0-9][eE][+-]?0*([0-9]*)")
_not_brackets = bytes(byte for byte in range(256) if byte not in b"[]{}")
# Words of other languages that programs write in place of JSON, with the remedy.
_NOT_JSON = {
    b"NaN": "send null or leave the field out",
    b"Infinity": "send null or leave the field out",
    b"undefined": "send null or leave the field out",
    b"None": "write null",
    b"True": "write true",
    b"False": "write false",
}
_word = re.compile(b"|".join(_NOT_JSON))
_surrogates = re.compile(rb"(?:\\[^u])+|\\u[dD][89abAB]..\\u[dD][c-fC-F]..|(?P<alone>\\u[dD][89a-fA-F]..)")
_steps = {ord("["): 1, ord("{"): 1, ord("]"): -1, ord("}"): -1}


class JSONProblem(ValueError):
    """A value that JSON cannot express, or text that is not JSON. ``index`` is its position among several."""

    def __init__(self, reason: str, *, index: int = 0) -> None:
        super().__init__(reason)
        self.index = index


def encode(value: Any) -> bytes:
    """Encode one value. Raises JSONProblem if JSON cannot express it."""
    try:
        text = _encoder.encode(value)
    except (TypeError, ValueError, RecursionError, OverflowError) as error:
        raise JSONProblem(_explain(error)) from None
    if (
        type(value) is dict
        and _SCALARS.issuperset(map(type, value.values()))
        and _TEXT.issuperset(map(type, value))
        and b"null" not in text
    ):
        return text
    _inspect([value], [text])
    return text


def encode_lines(parts: Sequence[list[Any]]) -> list[bytes]:
    """Encode the values of each part as NDJSON without the last line end. Raises JSONProblem if one is invalid."""
    try:
        texts = [_encoder.encode_lines(part)[:-1] for part in parts]
    except (TypeError, ValueError, RecursionError, OverflowError) as error:
        raise JSONProblem(_explain(error)) from None
    _inspect(parts[0] if len(parts) == 1 else list(chain.from_iterable(parts)), texts)
    return texts


def decode(text: bytes | str) -> Any:
    """Decode JSON. Integers of any size are exact; a number outside the range of a double becomes a Decimal."""
    try:
        return _decoder.decode(text)
    except msgspec.ValidationError:
        return _decode_exactly(text)
    except (ValueError, RecursionError) as error:
        raise JSONProblem(explain(error, text if isinstance(text, bytes) else text.encode())) from None


def decode_decimals(text: bytes | str) -> Any:
    """Decode JSON with each number that is not an integer as a Decimal, which keeps its digits."""
    try:
        return _decimal_decoder.decode(text if isinstance(text, str) else text.decode())
    except (ValueError, RecursionError) as error:
        raise JSONProblem(_explain(error)) from None


def validate(text: bytes) -> None:
    """Check that bytes are one JSON value, without building it."""
    try:
        _syntax.decode(text)
        text.decode()
    except (ValueError, RecursionError) as error:
        raise JSONProblem(explain(error, text)) from None
    check_depth(text)


def split_lines(text: bytes) -> list[bytes]:
    """Return the lines of NDJSON that are not blank, after checking that each is one JSON value."""
    text = text.strip(_WHITESPACE)
    if not text:
        return []
    lines = text.split(b"\n")
    try:
        values = _syntax.decode_lines(text)
        text.decode()
    except (ValueError, RecursionError):
        return _split_carefully(lines)
    # The parser ignores line ends. The comparison finds several values on one line, or one value on several lines.
    if len(values) != len(lines) or b"\n".join(values) != text:
        return _split_carefully(lines)
    # At most half of a line can be opening brackets.
    if max(map(len, lines)) > 2 * MAX_DEPTH:
        for i, line in enumerate(lines):
            if len(line) > 2 * MAX_DEPTH:
                check_depth(line, i)
    return lines


def check_lines(lines: list[bytes]) -> list[bytes]:
    """Check that each text is one JSON value, and return each on one line."""
    if not lines:
        return []
    joined = b"\n".join(lines)
    if joined.count(b"\n") >= len(lines) or b"\r" in joined:
        lines = [_on_one_line(line, i) for i, line in enumerate(lines)]
        joined = b"\n".join(lines)
    found = split_lines(joined)
    if len(found) != len(lines):
        raise JSONProblem("is empty", index=next(i for i, line in enumerate(lines) if not line.strip(_WHITESPACE)))
    return found


def _on_one_line(text: bytes, index: int) -> bytes:
    if b"\n" not in text and b"\r" not in text:
        return text
    try:
        return msgspec.json.format(text, indent=-1)
    except (ValueError, RecursionError) as error:
        raise JSONProblem(explain(error, text), index=index) from None


def _split_carefully(lines: Iterable[bytes]) -> list[bytes]:
    found = [line for raw in lines if (line := raw.strip(_WHITESPACE))]
    for i, line in enumerate(found):
        try:
            validate(line)
        except JSONProblem as problem:
            raise JSONProblem(str(problem), index=i) from None
    return found


def _inspect(values: Sequence[Any], texts: Sequence[bytes]) -> None:
    """Refuse NaN, infinity, keys that are not text, and deep nesting, none of which the encoder refuses.

    It visits all values one level at a time, because that runs in C.
    """
    level = values
    depth = 0
    may_hide_nan: bool | None = None
    while True:
        types = set(map(type, level))
        if not types <= _PLAIN:
            _inspect_any(level, depth)
            return
        if float in types:
            if may_hide_nan is None:
                may_hide_nan = any([b"null" in text for text in texts])  # the encoder writes NaN as null
            if may_hide_nan:
                _check_numbers([value for value in level if type(value) is float])
        if Decimal in types:
            _check_decimals([value for value in level if type(value) is Decimal])
        if types <= _LEAVES:
            return
        containers = level if types <= _CONTAINERS else [value for value in level if type(value) in _CONTAINERS]
        if dict in types:
            # The referents of a dict include its keys only if one of them is not plain text.
            inner = gc.get_referents(*containers)
            if len(inner) != sum(map(len, containers)):
                _inspect_any(containers, depth)
                return
        else:
            inner = list(chain.from_iterable(containers))
        depth += 1
        if depth > MAX_DEPTH:
            _refuse_depth()
        level = inner


def _inspect_any(level: Sequence[Any], depth: int) -> None:
    """Do the same for values of any type."""
    while level:
        inner: list[Any] = []
        nested = False
        for value in level:
            parts = _parts(value)
            if parts is not None:
                nested = True
                inner.extend(parts)
        depth += nested
        if depth > MAX_DEPTH:
            _refuse_depth()
        level = inner


def _parts(value: Any) -> Iterable[Any] | None:
    """Return the elements of a container, or None for a scalar."""
    kind = type(value)
    if kind is str or value is None or isinstance(value, _TEXT_LIKE):
        return None
    if isinstance(value, Enum):
        return _parts(value.value)
    if isinstance(value, int):
        return None
    if isinstance(value, float):
        _check_numbers([value])
        return None
    if isinstance(value, Decimal):
        _check_decimals([value])
        return None
    if isinstance(value, dict):
        for name in value:
            if not isinstance(name, str):
                raise JSONProblem(f"has the name {name!r:.100}; names in a JSON object are text, so send str() of it")
        return value.values()
    if isinstance(value, list | tuple):
        return value
    if isinstance(value, msgspec.Raw):
        _check_raw(bytes(value))
        return None
    if isinstance(value, bytes | bytearray | memoryview):
        raise JSONProblem("contains bytes, which JSON does not have; decode them to text, or send base64 or hex text")
    if isinstance(value, set | frozenset):
        raise JSONProblem("contains a set, which JSON does not have; send a list, such as sorted(...)")
    fields = (
        getattr(kind, "__dataclass_fields__", None)
        or getattr(kind, "__struct_fields__", None)
        or [attribute.name for attribute in getattr(kind, "__attrs_attrs__", ())]
    )
    if not fields:
        raise JSONProblem(_unknown(kind.__name__))
    return [getattr(value, name, None) for name in fields]


def _check_raw(text: bytes) -> None:
    validate(text)
    if b"\n" in text:
        raise JSONProblem("contains JSON text of several lines; write it on one")


def _decode_exactly(text: bytes | str) -> Any:
    try:
        return _exact_decoder.decode(text if isinstance(text, str) else text.decode())
    except (ValueError, RecursionError) as error:
        raise JSONProblem(_explain(error)) from None


def _float(text: str) -> float | Decimal:
    near = float(text)
    if near and math.isfinite(near):
        return near
    try:
        exact = Decimal(text)
    except InvalidOperation:
        if near:
            raise JSONProblem(f"the number {text:.40} is too large") from None
        return near
    return exact if exact else near


def _int(text: str) -> int | Decimal:
    try:
        return int(text)
    except ValueError:  # more digits than sys.get_int_max_str_digits()
        return Decimal(text)


def _constant(text: str) -> NoReturn:
    raise JSONProblem(f"{text} is not JSON")


_exact_decoder = json.JSONDecoder(parse_float=_float, parse_int=_int, parse_constant=_constant)
_decimal_decoder = json.JSONDecoder(parse_float=Decimal, parse_int=_int, parse_constant=_constant)


def check_depth(text: bytes, index: int = 0) -> None:
    """Raise JSONProblem with ``index`` if the text is nested deeper than MAX_DEPTH."""
    if text.count(b"[") + text.count(b"{") <= MAX_DEPTH:
        return
    brackets = _string.sub(b"", text).translate(None, _not_brackets)
    if max(accumulate(map(_steps.__getitem__, brackets)), default=0) > MAX_DEPTH:
        _refuse_depth(index)


def sum_exponents(text: bytes) -> int:
    """Return the sum of the exponents of all numbers in JSON text, without their signs."""
    if _exponent.search(text) is None:
        return 0
    # Nine digits are enough for a sum that is too large.
    return sum(int(digits[:9] or b"0") for digits in _exponent.findall(_string.sub(b"", text)))


def _refuse_depth(index: int = 0) -> NoReturn:
    raise JSONProblem(f"nested deeper than {MAX_DEPTH} levels; flatten it, or send the inner part as text", index=index)


def _check_numbers(numbers: Sequence[float]) -> None:
    if not all(map(math.isfinite, numbers)):
        _refuse_number(next(number for number in numbers if not math.isfinite(number)))


def _check_decimals(numbers: Sequence[Decimal]) -> None:
    if not all(map(Decimal.is_finite, numbers)):
        _refuse_number(next(number for number in numbers if not number.is_finite()))


def _refuse_number(value: float | Decimal) -> NoReturn:
    raise JSONProblem(f"{value} is not a JSON number; send null or leave the field out")


def _unknown(kind: str) -> str:
    return f"contains a {kind}, which JSON does not have; send text, numbers, booleans, None, lists and dicts"


def explain(error: BaseException, text: bytes) -> str:
    """Describe why the parser refused ``text``, more precisely than its own message for some mistakes."""
    message = _explain(error)
    if text.startswith(codecs.BOM_UTF8):
        return "starts with a byte order mark, which JSON does not have; remove it"
    # msgspec raises one class for all mistakes, so only its text tells them apart.
    position = re.search(r"\(byte (\d+)\)$", message)
    if position is not None and (word := _word.match(text, int(position[1]))):
        return f"{word[0].decode()} is not JSON (byte {position[1]}); {_NOT_JSON[word[0]]}"
    if "truncated" in message or "escape" in message or "surrogate" in message:
        for match in _surrogates.finditer(text):
            if match["alone"] is not None:
                return f"contains a lone surrogate, which UTF-8 cannot encode (byte {match.start()})"
    return "ends in the middle of a value" if "truncated" in message else message


def _explain(error: BaseException) -> str:
    if isinstance(error, UnicodeEncodeError):
        return "contains a lone surrogate, which UTF-8 cannot encode"
    if isinstance(error, UnicodeDecodeError):
        return "is not valid UTF-8"
    if isinstance(error, RecursionError):
        return f"nested deeper than {MAX_DEPTH} levels; flatten it, or send the inner part as text"
    unknown = re.fullmatch(r"Encoding objects of type (\S+) is unsupported", str(error))
    return str(error) if unknown is None else _unknown(unknown[1])
