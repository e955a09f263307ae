"""The one JSON codec: exact for integers of any size, decimals as literals, never NaN."""

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

#: Deeper nesting than this is refused: parsers downstream recurse, and none of them agrees on a limit.
MAX_DEPTH = 256

_WHITESPACE = b" \t\r\n"

_encoder = msgspec.json.Encoder(decimal_format="number")
_decoder = msgspec.json.Decoder()
_syntax = msgspec.json.Decoder(msgspec.Raw)

_TEXT = frozenset((str,))
# The encoder has one way to write each of these, as text.
_WRITTEN_AS_TEXT = (datetime, date, time, timedelta, UUID)
_SCALARS = frozenset((str, int, float, bool, type(None), *_WRITTEN_AS_TEXT))
_LEAVES = _SCALARS | {Decimal}
_CONTAINERS = frozenset((dict, list, tuple))
_PLAIN = _LEAVES | _CONTAINERS

_string = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"', re.DOTALL)
_not_brackets = bytes(byte for byte in range(256) if byte not in b"[]{}")
# What other languages have, and programs write in place of JSON; and what to do about it.
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
    """A value that JSON cannot hold, or text that is not JSON; of several, ``index`` says which."""

    def __init__(self, reason: str, *, index: int = 0) -> None:
        super().__init__(reason)
        self.index = index


def encode(value: Any) -> bytes:
    """Encode one value, refusing what JSON cannot hold."""
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
    """Encode the values of each part as NDJSON, without the last line end; refuses all of them if one is bad."""
    try:
        texts = [_encoder.encode_lines(part)[:-1] for part in parts]
    except (TypeError, ValueError, RecursionError, OverflowError) as error:
        raise JSONProblem(_explain(error)) from None
    _inspect(parts[0] if len(parts) == 1 else list(chain.from_iterable(parts)), texts)
    return texts


def decode(text: bytes | str) -> Any:
    """Decode JSON; integers of any size are exact, a number beyond a double is a Decimal."""
    try:
        return _decoder.decode(text)
    except msgspec.ValidationError:
        return _decode_exactly(text)
    except (ValueError, RecursionError) as error:
        raise JSONProblem(explain(error, text if isinstance(text, bytes) else text.encode())) from None


def validate(text: bytes) -> None:
    """Check that bytes are one JSON value, without building it."""
    try:
        _syntax.decode(text)
        text.decode()
    except (ValueError, RecursionError) as error:
        raise JSONProblem(explain(error, text)) from None
    check_depth(text)


def split_lines(text: bytes) -> list[bytes]:
    """The lines of NDJSON less the blank ones, each checked to be one JSON value, without building them."""
    text = text.strip(_WHITESPACE)
    if not text:
        return []
    lines = text.split(b"\n")
    try:
        values = _syntax.decode_lines(text)
        text.decode()
    except (ValueError, RecursionError):
        return _split_carefully(lines)
    # The parser does not care where a line ends: several values on one, or one on several, are found by comparison.
    if len(values) != len(lines) or b"\n".join(values) != text:
        return _split_carefully(lines)
    # What is opened is closed again: half of a line can be brackets that open.
    if max(map(len, lines)) > 2 * MAX_DEPTH:
        for i, line in enumerate(lines):
            if len(line) > 2 * MAX_DEPTH:
                check_depth(line, i)
    return lines


def check_lines(lines: list[bytes]) -> list[bytes]:
    """The same for texts that were taken apart already: each is one JSON value, and comes back on one line."""
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
    """Refuse what the encoder has written as something else, and what is nested too deep.

    It goes through all values one level at a time, because that can be done at the speed of C.
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
                may_hide_nan = any([b"null" in text for text in texts])  # which is what the encoder writes for one
            if may_hide_nan:
                _check_numbers([value for value in level if type(value) is float])
        if Decimal in types:
            _check_decimals([value for value in level if type(value) is Decimal])
        if types <= _LEAVES:
            return
        containers = level if types <= _CONTAINERS else [value for value in level if type(value) in _CONTAINERS]
        if dict in types:
            # A dict refers to its values and, unless all its keys are plain text, to its keys: counting tells.
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
    """The same for values of any type."""
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
    """What a container holds; None for a value that is whole."""
    kind = type(value)
    if kind is str or value is None or isinstance(value, _WRITTEN_AS_TEXT):
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
        raise JSONProblem("holds bytes, which JSON does not have; decode them to text, or send base64 or hex text")
    if isinstance(value, set | frozenset):
        raise JSONProblem("holds a set, which JSON does not have; send a list, such as sorted(...)")
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
        raise JSONProblem("holds JSON text of several lines; write it on one")


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
            raise JSONProblem(f"the number {text:.40} is beyond all bounds") from None
        return near
    return exact if exact else near


def _int(text: str) -> int | Decimal:
    try:
        return int(text)
    except ValueError:  # more digits than Python is willing to read
        return Decimal(text)


def _constant(text: str) -> NoReturn:
    raise JSONProblem(f"{text} is not JSON")


_exact_decoder = json.JSONDecoder(parse_float=_float, parse_int=_int, parse_constant=_constant)


def check_depth(text: bytes, index: int = 0) -> None:
    """Refuse JSON that is nested too deep; ``index`` is for the error."""
    if text.count(b"[") + text.count(b"{") <= MAX_DEPTH:
        return
    brackets = _string.sub(b"", text).translate(None, _not_brackets)
    if max(accumulate(map(_steps.__getitem__, brackets)), default=0) > MAX_DEPTH:
        _refuse_depth(index)


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
    return f"holds a {kind}, which JSON does not have; send text, numbers, booleans, None, lists and dicts"


def explain(error: BaseException, text: bytes) -> str:
    """What is wrong with text that the parser refused: it says where it stopped, and of some mistakes no more."""
    said = _explain(error)
    if text.startswith(codecs.BOM_UTF8):
        return "begins with a byte order mark, which JSON does not have; leave it out"
    stopped = re.search(r"\(byte (\d+)\)$", said)
    if stopped is not None and (word := _word.match(text, int(stopped[1]))):
        return f"{word[0].decode()} is not JSON (byte {stopped[1]}); {_NOT_JSON[word[0]]}"
    if "truncated" in said or "escape" in said or "surrogate" in said:
        for found in _surrogates.finditer(text):
            if found["alone"] is not None:
                return f"holds a lone surrogate, which UTF-8 cannot carry (byte {found.start()})"
    return "ends in the middle of a value" if "truncated" in said else said


def _explain(error: BaseException) -> str:
    if isinstance(error, UnicodeEncodeError):
        return "holds a lone surrogate, which UTF-8 cannot carry"
    if isinstance(error, UnicodeDecodeError):
        return "is not valid UTF-8"
    if isinstance(error, RecursionError):
        return f"nested deeper than {MAX_DEPTH} levels; flatten it, or send the inner part as text"
    unknown = re.fullmatch(r"Encoding objects of type (\S+) is unsupported", str(error))
    return str(error) if unknown is None else _unknown(unknown[1])
