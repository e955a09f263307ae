"""Translates errors of lost connections."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from functools import wraps
from typing import Any, ParamSpec, TypeVar

from penstock.core.errors import DatabaseUnavailable
from penstock.db.retry import CONNECTION_ERRORS

_Params = ParamSpec("_Params")
_Result = TypeVar("_Result")


def translate_errors(
    operation: Callable[_Params, Coroutine[Any, Any, _Result]],
) -> Callable[_Params, Coroutine[Any, Any, _Result]]:
    """Raise DatabaseUnavailable if the connection is lost during an operation. Its result is unknown then."""

    @wraps(operation)
    async def translated(*args: _Params.args, **kwargs: _Params.kwargs) -> _Result:
        try:
            return await operation(*args, **kwargs)
        except CONNECTION_ERRORS as error:
            raise DatabaseUnavailable(
                f"the connection to the database was lost during {operation.__name__!r}: {str(error).strip()}; "
                "try again"
            ) from error

    return translated
