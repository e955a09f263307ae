"""The one JSON codec: exact for integers of any size, decimals as literals, never NaN."""

from __future__ import annotations

import math
from decimal import Decimal
from typing import Any

import msgspec

#: Deeper nesting than this is refused: parsers downstream recurse, and none of them agrees on a limit.
MAX_DEPTH = 256

_encoder = msgspec.json.Encoder(decimal_format="number")
_decoder = msgspec.json.Decoder()
# A number outside the range of a double is kept exact instead of becoming infinite.
_exact_decoder = msgspec.json.Decoder(float_hook=Decimal)
_syntax = msgspec.json.Decoder(msgspec.Raw)
_deepest = b"[" * MAX_DEPTH


class JSONProblem(ValueError):
    """A value that JSON cannot hold, or text that is not JSON."""


def encode(value: Any) -> bytes:
    """Encode one value, refusing what JSON cannot hold."""
    try:
        text = _encoder.encode(value)
    except (TypeError, ValueError, RecursionError, OverflowError) as error:
        raise JSONProblem(_explain(error)) from None
    _check(value, text)
    return text


def encode_lines(values: list[Any]) -> bytes:
    """Encode many values as NDJSON (each line ends in a newline); refuses all of them if one is bad."""
    try:
        text = _encoder.encode_lines(values)
    except (TypeError, ValueError, RecursionError, OverflowError) as error:
        raise JSONProblem(_explain(error)) from None
    if b"null" in text or b"NaN" in text or b"Inf" in text or _may_be_deep(text):
        for value in values:
            _check(value, _encoder.encode(value))
    return text


def decode(text: bytes | str) -> Any:
    """Decode JSON; integers of any size are exact, a number beyond a double is a Decimal."""
    try:
        return _decoder.decode(text)
    except msgspec.ValidationError:
        return _exact_decoder.decode(text)
    except (ValueError, RecursionError) as error:
        raise JSONProblem(_explain(error)) from None


def validate(text: bytes) -> None:
    """Check that bytes are one JSON value, without building it."""
    try:
        _syntax.decode(text)
        text.decode()
    except (ValueError, RecursionError) as error:
        raise JSONProblem(_explain(error)) from None
    _check_depth(text)


def validate_lines(text: bytes) -> None:
    """Check that every line of NDJSON is one JSON value, without building them."""
    try:
        _syntax.decode_lines(text)
        text.decode()
    except (ValueError, RecursionError) as error:
        raise JSONProblem(_explain(error)) from None
    if _may_be_deep(text):
        for line in text.split(b"\n"):
            _check_depth(line)


def _check(value: Any, text: bytes) -> None:
    _check_depth(text)
    # The encoder writes a NaN as null (a Decimal's as NaN): only text that shows one is worth a walk.
    if b"null" in text or b"NaN" in text or b"Inf" in text:
        _refuse_non_finite(value)


def _refuse_non_finite(value: Any) -> None:
    stack = [value]
    while stack:
        item = stack.pop()
        if isinstance(item, float):
            if not math.isfinite(item):
                raise JSONProblem(f"{item!r} is not a JSON number; send null or leave the field out")
        elif isinstance(item, Decimal):
            if not item.is_finite():
                raise JSONProblem(f"{item} is not a JSON number; send null or leave the field out")
        elif isinstance(item, dict):
            stack.extend(item.values())
        elif isinstance(item, list | tuple | set | frozenset):
            stack.extend(item)


def _may_be_deep(text: bytes) -> bool:
    return text.count(b"[") + text.count(b"{") > MAX_DEPTH and (b"[[" in text or b":{" in text or b":[" in text)


def _check_depth(text: bytes) -> None:
    if text.count(b"[") + text.count(b"{") <= MAX_DEPTH:
        return
    depth = 0
    in_string = escaped = False
    for byte in text:
        if in_string:
            if escaped:
                escaped = False
            elif byte == 0x5C:
                escaped = True
            elif byte == 0x22:
                in_string = False
        elif byte == 0x22:
            in_string = True
        elif byte in b"[{":
            depth += 1
            if depth > MAX_DEPTH:
                raise JSONProblem(f"nested deeper than {MAX_DEPTH} levels")
        elif byte in b"]}":
            depth -= 1


def _explain(error: BaseException) -> str:
    if isinstance(error, UnicodeEncodeError):
        return "holds a lone surrogate, which UTF-8 cannot carry"
    if isinstance(error, UnicodeDecodeError):
        return "is not valid UTF-8"
    if isinstance(error, RecursionError):
        return f"nested deeper than {MAX_DEPTH} levels"
    return str(error)
