"""A hash of what a callable does: the same in another process and at another place of the file."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import re
from collections.abc import Callable, Iterator, Mapping
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
#: What a function is; other flags say where it stands.
_FLAGS = CO_VARARGS | CO_VARKEYWORDS | CO_GENERATOR | CO_COROUTINE | CO_ASYNC_GENERATOR
_PRINTED = (date, time, timedelta, PurePath)  # a datetime is a date


def code_hash(function: Callable[..., Any]) -> str:
    """Twelve digits that change with a callable's code, its defaults, and the plain values that it closes over.

    The functions of its own module that it calls count as well, and so do the fields of a callable object; other
    global values do not, nor do docstrings. Another version of Python compiles to other code.
    """
    return hashlib.sha256(_Reading().text(function).encode("utf-8", "backslashreplace")).hexdigest()[:12]


class _Reading:
    """Spells a value so that equal ones read the same in every process; what has no such spelling, by its type."""

    def __init__(self) -> None:
        self._inside: list[int] = []
        self._known: dict[int, int] = {}

    def text(self, value: object) -> str:
        if isinstance(value, Enum):
            return f"{type(value).__name__}.{value.name}"
        if isinstance(value, _SCALARS) and type(value).__repr__ is not object.__repr__:
            return f"{type(value).__name__} {value!r}"
        if isinstance(value, _PRINTED):
            return f"{type(value).__name__} {value}"
        if isinstance(value, CodeType):
            return self._code(value)
        if id(value) in self._inside:
            return f"again {len(self._inside) - self._inside.index(id(value))}"
        if isinstance(value, FunctionType | type):  # spelled once: helpers that share helpers would add up
            if id(value) in self._known:
                return f"known {self._known[id(value)]}"
            self._known[id(value)] = len(self._known)
        self._inside.append(id(value))
        try:
            return self._compound(value)
        finally:
            self._inside.pop()

    def _compound(self, value: object) -> str:
        if isinstance(value, Mapping):
            return self._list("map", sorted(f"{self.text(k)}: {self.text(v)}" for k, v in value.items()))
        if isinstance(value, set | frozenset):
            return self._list("set", sorted(map(self.text, value)))
        if isinstance(value, list | tuple):
            return self._list(type(value).__name__, map(self.text, value))
        if isinstance(value, re.Pattern):
            return f"pattern {value.pattern!r} {value.flags}"
        if isinstance(value, ModuleType):
            return f"module {value.__name__}"
        if isinstance(value, functools.partial):
            return self._list("partial", map(self.text, (value.func, value.args, value.keywords)))
        if isinstance(value, MethodType):
            return self._list("method", map(self.text, (value.__func__, value.__self__)))
        if isinstance(value, FunctionType):
            return self._function(value)
        if isinstance(value, BuiltinFunctionType):
            of = value.__self__
            return (
                f"builtin {value.__module__}.{value.__qualname__} {'' if isinstance(of, ModuleType) else self.text(of)}"
            )
        if isinstance(value, type):
            return self._class(value)
        if callable(value) and hasattr(value, "__wrapped__"):  # functools.cache, staticmethod
            return f"{type(value).__name__} of {self.text(value.__wrapped__)}"
        if callable(value) or dataclasses.is_dataclass(value):
            return f"{self.text(type(value))} with {self.text(dict(_fields(value)))}"
        return f"some {type(value).__name__}"

    def _function(self, function: FunctionType) -> str:
        code = function.__code__
        if function.__doc__ is not None and code.co_consts[:1] == (function.__doc__,):
            code = code.replace(co_consts=(None, *code.co_consts[1:]))
        return self._list(
            "function",
            (
                self.text(code),
                self.text(function.__defaults__),
                self.text(function.__kwdefaults__),
                *(self.text(_cell(cell)) for cell in function.__closure__ or ()),
                *(f"{name} {self.text(called)}" for name, called in _helpers(function)),
            ),
        )

    def _code(self, code: CodeType) -> str:
        shape = (code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount, code.co_flags & _FLAGS)
        names = (code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars)
        parts = (shape, code.co_code, code.co_exceptiontable, names)
        return self._list("code", (*map(repr, parts), *map(self.text, code.co_consts)))

    def _class(self, kind: type) -> str:
        """A class by its name and its own methods, and those of its bases in the same module."""
        methods = {
            name: method
            for base in reversed(kind.__mro__)
            if base.__module__ == kind.__module__ and base.__module__ != "builtins"
            for name, method in vars(base).items()
            if isinstance(method, FunctionType) and method.__module__ == kind.__module__
        }
        return f"class {kind.__name__} {self.text(methods)}"

    @staticmethod
    def _list(kind: str, texts: Any) -> str:
        return f"{kind}({', '.join(texts)})"


def _cell(cell: Any) -> object:
    try:
        return cell.cell_contents
    except ValueError:  # a name that is not bound yet
        return None


def _helpers(function: FunctionType) -> Iterator[tuple[str, FunctionType]]:
    """The functions of the same module that it names, in the order of their names."""
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
