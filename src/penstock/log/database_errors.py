"""Translates errors of lost connections."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from functools import wraps
from inspect import iscoroutinefunction
from typing import Any, TypeVar

from penstock.core.errors import DatabaseUnavailable
from penstock.db.retry import CONNECTION_ERRORS

_Class = TypeVar("_Class", bound=type)


def translate_errors(decorated: _Class) -> _Class:
    """Let the public async methods of a class raise DatabaseUnavailable if the connection is lost.

    The result of the operation is unknown then.
    """
    for name, method in list(vars(decorated).items()):
        if iscoroutinefunction(method) and not name.startswith("_"):
            setattr(decorated, name, _translate(method))
    return decorated


def _translate(operation: Callable[..., Coroutine[Any, Any, Any]]) -> Callable[..., Coroutine[Any, Any, Any]]:
    @wraps(operation)
    async def translated(*args: Any, **kwargs: Any) -> Any:
        try:
            return await operation(*args, **kwargs)
        except CONNECTION_ERRORS as error:
            raise DatabaseUnavailable(
                f"the connection to the database was lost during {operation.__name__!r}: {str(error).strip()}; "
                "try again"
            ) from error

    return translated
