"""Mappings of dead letters: a select list in SQL, or a function in Python, that makes the new data of each."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, TypeAlias

from penstock.core import json
from penstock.core.errors import InvalidRequest, short_repr
from penstock.log.dead_letters.models import DeadLetter, Edit

#: A select list such as ``*, cast(price AS decimal) AS price``, or a function that takes and returns the data.
DeadLetterMapping: TypeAlias = str | Callable[[Any], Any]


def edit_function(mapping: DeadLetterMapping) -> Edit:
    """Return the function that edits a dead letter with a mapping. Raises InvalidRequest if it is no mapping."""
    if isinstance(mapping, str):
        from penstock.stream.sql.json_mapping import compile_mapping

        return compile_mapping(mapping)
    if not callable(mapping):
        raise InvalidRequest(
            f"a mapping is a select list in SQL or a function that returns the new data, not {short_repr(mapping)}"
        )
    return partial(call_mapping, mapping)


def call_mapping(function: Callable[[Any], Any], letter: DeadLetter) -> bytes:
    """Return the data that a function makes of a dead letter, or raise InvalidRequest."""
    try:
        data = function(letter.data)
    except Exception as error:
        raise InvalidRequest(f"the mapping raised {type(error).__name__}: {error}") from error
    if data is None:
        raise InvalidRequest("the mapping returned None, so the dead letter stays as it is")
    try:
        return json.encode(data)
    except json.JSONProblem as problem:
        raise InvalidRequest(f"the data that the mapping returned {problem}") from None
