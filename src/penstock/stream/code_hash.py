"""A hash of the code of a function: equal in other processes and at other positions of a file."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import date, time, timedelta
from decimal import Decimal
from enum import Enum
from fractions import Fraction
from inspect import CO_ASYNC_GENERATOR, CO_COROUTINE, CO_GENERATOR, CO_VARARGS, CO_VARKEYWORDS
from pathlib import PurePath
from types import BuiltinFunctionType, CodeType, FunctionType, MethodType, ModuleType
from typing import Any
from uuid import UUID

_SCALARS = (type(None), type(...), bool, int, float, complex, str, bytes, Decimal, Fraction, UUID, range)
_PRINTABLE = (date, time, timedelta, PurePath)  # a datetime is a date
#: Other flags depend on where the function is defined.
_FLAGS = CO_VARARGS | CO_VARKEYWORDS | CO_GENERATOR | CO_COROUTINE | CO_ASYNC_GENERATOR


def code_hash(function: Callable[..., Any]) -> str:
    """Return twelve digits that depend on the code of a function, its defaults and the values it closes over.

    The hash includes the functions of the same module that it calls, and the fields and methods of a callable object
    or of the object of a bound method. It ignores docstrings and other global values.
    It depends on the version of Python, which determines the bytecode.
    """
    return hashlib.sha256(_CodePrinter().print(function).encode("utf-8", "backslashreplace")).hexdigest()[:12]


class _CodePrinter:
    """Prints values so that equal ones have equal texts in every process. Other objects are printed as their types."""

    def __init__(self) -> None:
        self._open: list[int] = []
        self._printed: dict[int, int] = {}

    def print(self, value: object) -> str:
        if isinstance(value, Enum):
            return f"{type(value).__name__}.{value.name}"
        if isinstance(value, _SCALARS) and type(value).__repr__ is not object.__repr__:
            return f"{type(value).__name__} {value!r}"
        if isinstance(value, _PRINTABLE):
            return f"{type(value).__name__} {value}"
        if isinstance(value, CodeType):
            return self._code(value)
        if id(value) in self._open:
            return f"again {len(self._open) - self._open.index(id(value))}"
        # Functions that share helpers would print these exponentially often.
        if isinstance(value, FunctionType | type):
            if id(value) in self._printed:
                return f"known {self._printed[id(value)]}"
            self._printed[id(value)] = len(self._printed)
        self._open.append(id(value))
        try:
            return self._compound(value)
        finally:
            self._open.pop()

    def _compound(self, value: object) -> str:
        if isinstance(value, Mapping):
            return self._list("map", sorted(f"{self.print(k)}: {self.print(v)}" for k, v in value.items()))
        if isinstance(value, set | frozenset):
            return self._list("set", sorted(map(self.print, value)))
        if isinstance(value, list | tuple):
            return self._list(type(value).__name__, map(self.print, value))
        if isinstance(value, re.Pattern):
            return f"pattern {value.pattern!r} {value.flags}"
        if isinstance(value, ModuleType):
            return f"module {value.__name__}"
        if isinstance(value, functools.partial):
            return self._list("partial", map(self.print, (value.func, value.args, value.keywords)))
        if isinstance(value, MethodType):
            return self._list("method", (self.print(value.__func__), self._owner(value.__self__)))
        if isinstance(value, FunctionType):
            return self._function(value)
        if isinstance(value, BuiltinFunctionType):
            owner = "" if isinstance(value.__self__, ModuleType) else self.print(value.__self__)
            return f"builtin {value.__module__}.{value.__qualname__} {owner}"
        if isinstance(value, type):
            return self._class(value)
        if callable(value) and hasattr(value, "__wrapped__"):  # functools.cache, staticmethod
            return f"{type(value).__name__} of {self.print(value.__wrapped__)}"
        if callable(value) or dataclasses.is_dataclass(value):
            return self._object(value)
        return f"some {type(value).__name__}"

    def _owner(self, value: object) -> str:
        """Print the object of a bound method, which may read the object's fields and call its other methods."""
        if isinstance(value, type | ModuleType) or id(value) in self._open:
            return self.print(value)
        self._open.append(id(value))
        try:
            return self._object(value)
        finally:
            self._open.pop()

    def _object(self, value: object) -> str:
        return f"{self.print(type(value))} with {self.print(dict(_fields(value)))}"

    def _function(self, function: FunctionType) -> str:
        code = function.__code__
        if function.__doc__ is not None and code.co_consts[:1] == (function.__doc__,):
            code = code.replace(co_consts=(None, *code.co_consts[1:]))
        return self._list(
            "function",
            (
                self.print(code),
                self.print(function.__defaults__),
                self.print(function.__kwdefaults__),
                *(self.print(_cell(cell)) for cell in function.__closure__ or ()),
                *(f"{name} {self.print(called)}" for name, called in _helpers(function)),
            ),
        )

    def _code(self, code: CodeType) -> str:
        signature = (code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount, code.co_flags & _FLAGS)
        names = (code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars)
        parts = (signature, code.co_code, code.co_exceptiontable, names)
        return self._list("code", (*map(repr, parts), *map(self.print, code.co_consts)))

    def _class(self, kind: type) -> str:
        """Print a class as its name and its methods, with those of its bases in the same module."""
        methods = {
            name: method
            for base in reversed(kind.__mro__)
            if base.__module__ == kind.__module__ and base.__module__ != "builtins"
            for name, member in vars(base).items()
            # A static method, a class method or a property wraps a function.
            for method in (getattr(member, "__func__", getattr(member, "fget", member)),)
            if isinstance(method, FunctionType) and method.__module__ == kind.__module__
        }
        return f"class {kind.__name__} {self.print(methods)}"

    @staticmethod
    def _list(kind: str, texts: Iterable[str]) -> str:
        return f"{kind}({', '.join(texts)})"


def _cell(cell: Any) -> object:
    try:
        return cell.cell_contents
    except ValueError:  # the name is not bound yet
        return None


def _helpers(function: FunctionType) -> Iterator[tuple[str, FunctionType]]:
    """Return the functions of the same module that a function refers to, sorted by name."""
    names: set[str] = set()
    codes = [function.__code__]
    while codes:
        code = codes.pop()
        names.update(code.co_names)
        codes += [constant for constant in code.co_consts if isinstance(constant, CodeType)]
    for name in sorted(names):
        called = function.__globals__.get(name)
        if isinstance(called, FunctionType) and called.__module__ == function.__module__:
            yield name, called


def _fields(value: object) -> Iterator[tuple[str, object]]:
    yield from getattr(value, "__dict__", {}).items()
    for kind in type(value).__mro__:
        slots = vars(kind).get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else slots:
            if name not in ("__dict__", "__weakref__") and hasattr(value, name):
                yield name, getattr(value, name)
