"""A mapping of JSON objects in SQL: a select list that is evaluated in Python, one object at a time, without Spark.

    * EXCEPT (prise), cast(prise AS decimal) AS price, coalesce(currency, 'EUR') AS currency

Fields that the list copies keep their JSON text, digit by digit. The functions are those of ``json_values.py``.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from functools import partial
from typing import Any, TypeAlias

import msgspec
from msgspec import Raw
from sqlglot import exp

from penstock.core import json
from penstock.core.errors import InvalidRequest, InvalidSql, short_repr
from penstock.stream.sql import json_values as values
from penstock.stream.sql.column_refs import column_path
from penstock.stream.sql.parser import parse_select
from penstock.stream.sql.source import SqlSource

#: The most characters of a mapping, and the most bytes of the object that it makes.
_MAX_LENGTH = 10_000
_MAX_BYTES = 1 << 26
_EXAMPLE = "*, cast(price AS decimal) AS price"

_members = msgspec.json.Decoder(dict[str, Raw])
_ARITHMETIC: Mapping[type[exp.Expr], str] = {
    exp.Add: "+",
    exp.Sub: "-",
    exp.Mul: "*",
    exp.Div: "/",
    exp.Mod: "%",
    exp.IntDiv: "div",
}
_COMPARISONS: Mapping[type[exp.Expr], Callable[[Any, Any], bool]] = {
    exp.EQ: operator.eq,
    exp.NEQ: operator.ne,
    exp.GT: operator.gt,
    exp.GTE: operator.ge,
    exp.LT: operator.lt,
    exp.LTE: operator.le,
}
#: Functions that sqlglot has classes for, by their name in Spark SQL.
_CLASSES: Mapping[type[exp.Expr], str] = {exp.Substring: "substring", exp.Trim: "trim", exp.Concat: "concat"}


@dataclass(slots=True)
class _Object:
    """An object whose fields are decoded when an expression reads them."""

    members: dict[str, Raw]
    _decoded: dict[str, Any] = field(default_factory=dict)

    def get(self, name: str) -> Any:
        if name not in self.members:
            return None
        if name not in self._decoded:
            self._decoded[name] = json.decode_decimals(bytes(self.members[name]))
        return self._decoded[name]


_Evaluate: TypeAlias = Callable[[_Object], Any]


@dataclass(frozen=True, slots=True)
class _Star:
    """All fields, or all except some."""

    excluded: frozenset[str]


@dataclass(frozen=True, slots=True)
class _NamedField:
    name: str
    #: The field that is copied as it is; None if it is computed.
    source: str | None
    evaluate: _Evaluate


@dataclass(frozen=True, slots=True)
class JsonMapping:
    """A compiled mapping. ``apply`` takes and returns the JSON text of an object."""

    text: str
    _items: Sequence[_Star | _NamedField]

    def apply(self, data: bytes) -> bytes:
        """Return the object that the mapping makes. Raises InvalidRequest with the reason if it makes none."""
        try:
            given = _Object(_members.decode(data))
        except msgspec.ValidationError:
            found = values.describe(json.decode(data))
            raise InvalidRequest(
                f"SQL maps objects, and the data is {found}: use a function in Python for it"
            ) from None
        made: dict[str, Raw] = {}
        size = 0
        for item in self._items:
            if isinstance(item, _Star):
                made.update((name, raw) for name, raw in given.members.items() if name not in item.excluded)
                continue
            if item.source is not None and item.source in given.members:
                made[item.name] = given.members[item.source]
            else:
                made[item.name] = Raw(_encode(item, given))
            size += len(made[item.name])
            if size > _MAX_BYTES:
                raise InvalidRequest(f"the result has more than {_MAX_BYTES} bytes")
        return msgspec.json.encode(made)


def compile_mapping(text: str) -> JsonMapping:
    """Compile a select list over the fields of an object. Raises InvalidRequest, or InvalidSql with the position."""
    if not text.strip():
        raise InvalidRequest(f"a mapping is a select list in SQL, such as '{_EXAMPLE}', not {short_repr(text)}")
    if len(text) > _MAX_LENGTH:
        raise InvalidRequest(f"a mapping has at most {_MAX_LENGTH} characters; this one has {len(text)}")
    compiler = _Compiler(SqlSource(text))
    with compiler.source.locate_errors(0):
        tree = parse_select(text)
        clauses = sorted(name.rstrip("_") for name, part in tree.args.items() if part and name != "expressions")
        if not isinstance(tree, exp.Select) or clauses:
            raise InvalidRequest(f"a mapping is only the list of fields, such as '{_EXAMPLE}', without {clauses[0]}")
        return JsonMapping(text, [compiler.item(node) for node in tree.expressions])


def _encode(item: _NamedField, given: _Object) -> bytes:
    try:
        return json.encode(item.evaluate(given))
    except (InvalidRequest, json.JSONProblem) as error:
        raise InvalidRequest(f"{item.name}: {error}") from None


@dataclass(frozen=True, slots=True)
class _Compiler:
    source: SqlSource

    def item(self, node: exp.Expr) -> _Star | _NamedField:
        if isinstance(node, exp.Star):
            if node.args.get("replace") or node.args.get("rename"):
                raise self._unavailable(node, "a star with REPLACE or RENAME")
            return _Star(frozenset(column.name for column in node.args.get("except_") or []))
        inner = node.unalias()
        path = column_path(inner)
        name = node.alias or (path[-1] if path else "")
        if not name:
            raise self.source.error(node, "give the expression a name, as in 'a + b AS total'")
        return _NamedField(name, path[0] if len(path) == 1 else None, self.compile(inner))

    def compile(self, node: exp.Expr) -> _Evaluate:
        match node:
            case exp.Paren():
                return self.compile(node.this)
            case exp.Column():
                return _read_path(column_path(node))
            case exp.Dot():
                return _read_members(self.compile(node.this), [node.expression.name])
            case exp.Null():
                return lambda row: None
            case exp.Boolean():
                return _constant(bool(node.this))
            case exp.Literal():
                return _constant(node.this if node.is_string else _parse_literal(node.this))
            case exp.Neg():
                return _null_if_any(lambda value: -values.to_number(value), [self.compile(node.this)])
            case exp.Not():
                return _null_if_any(lambda value: not values.need_boolean(value), [self.compile(node.this)])
            case exp.And() | exp.Or():
                return _connect(*self._operands(node), absorbing=isinstance(node, exp.Or))
            case exp.Is():
                return self._is(node)
            case exp.NullSafeEQ():
                return _equal_or_null(*self._operands(node))
            case exp.Between():
                value, low, high = (self.compile(node.args[part]) for part in ("this", "low", "high"))
                at_least = _null_if_any(partial(values.compare, operator.ge), [value, low])
                at_most = _null_if_any(partial(values.compare, operator.le), [value, high])
                return _connect(at_least, at_most, absorbing=False)
            case exp.In() if node.expressions:
                return _is_in(self.compile(node.this), [self.compile(option) for option in node.expressions])
            case exp.Like():
                return _null_if_any(values.is_like, self._operands(node))
            case exp.DPipe():
                return _null_if_any(values.FUNCTIONS["concat"][0], self._operands(node))
            case exp.If():
                return self._case(None, [node], node.args.get("false"))
            case exp.Case():
                return self._case(node.this, node.args["ifs"], node.args.get("default"))
            case exp.Cast():
                return self._cast(node)
            case exp.Bracket() if len(node.expressions) == 1:
                return _null_if_any(_element, [self.compile(node.this), self.compile(node.expressions[0])])
        if type(node) in _ARITHMETIC:
            return _null_if_any(values.ARITHMETIC[_ARITHMETIC[type(node)]], self._operands(node))
        if type(node) in _COMPARISONS:
            return _null_if_any(partial(values.compare, _COMPARISONS[type(node)]), self._operands(node))
        return self._function(node)

    def _operands(self, node: exp.Expr) -> list[_Evaluate]:
        return [self.compile(node.this), self.compile(node.args["expression"])]

    def _is(self, node: exp.Is) -> _Evaluate:
        value, wanted = self.compile(node.this), node.expression
        if not isinstance(wanted, exp.Null | exp.Boolean):
            raise self._unavailable(node, "this form of IS")
        constant = None if isinstance(wanted, exp.Null) else bool(wanted.this)
        return lambda row: value(row) is constant

    def _case(self, subject: exp.Expr | None, branches: Sequence[exp.Expr], default: exp.Expr | None) -> _Evaluate:
        compiled = []
        for branch in branches:
            condition = self.compile(branch.this)
            if subject is not None:
                condition = _null_if_any(partial(values.compare, operator.eq), [self.compile(subject), condition])
            compiled.append((condition, self.compile(branch.args["true"])))
        otherwise = _constant(None) if default is None else self.compile(default)

        def evaluate(row: _Object) -> Any:
            for condition, result in compiled:
                holds = condition(row)
                if holds is not None and values.need_boolean(holds):
                    return result(row)
            return otherwise(row)

        return evaluate

    def _cast(self, node: exp.Cast) -> _Evaluate:
        kind = node.to.this.name if isinstance(node.to.this, exp.DType) else ""
        if not values.is_castable(kind):
            raise self._unavailable(node, f"a cast to {node.to.sql(dialect='spark').lower()}")
        parameters = [int(parameter.this.name) for parameter in node.to.expressions]
        convert = _null_if_any(partial(_cast, kind, parameters), [self.compile(node.this)])
        if not node.args.get("safe"):
            return convert

        def evaluate(row: _Object) -> Any:
            try:
                return convert(row)
            except InvalidRequest:
                return None

        return evaluate

    def _function(self, node: exp.Expr) -> _Evaluate:
        name = (node.name if isinstance(node, exp.Anonymous) else _CLASSES.get(type(node), "")).lower()
        if isinstance(node, exp.Anonymous | exp.Concat):
            given = node.expressions
        else:
            given = [node.args[part] for part in ("this", "start", "length") if node.args.get(part) is not None]
        if name in ("struct", "named_struct"):
            return self._struct(name, given)
        arguments = [self.compile(argument) for argument in given]
        match name:
            case "array":
                return lambda row: [argument(row) for argument in arguments]
            case "coalesce" | "nvl" | "ifnull":
                return _coalesce(arguments)
            case "isnull" | "isnotnull" if len(arguments) == 1:
                (argument,) = arguments
                return lambda row: (argument(row) is None) == (name == "isnull")
            case "nullif" if len(arguments) == 2:
                equal = _null_if_any(partial(values.compare, operator.eq), arguments)
                return lambda row: None if equal(row) else arguments[0](row)
        if name in values.FUNCTIONS_OF_NON_NULLS and arguments:
            function_of_non_nulls = values.FUNCTIONS_OF_NON_NULLS[name]

            def evaluate(row: _Object) -> Any:
                found = [value for value in (argument(row) for argument in arguments) if value is not None]
                return function_of_non_nulls(*found) if found else None

            return evaluate
        if name not in values.FUNCTIONS or (isinstance(node, exp.Trim) and node.args.get("expression")):
            raise self._unavailable(node, f"{name or node.key}()")
        function, fewest, most = values.FUNCTIONS[name]
        if not fewest <= len(arguments) <= most:
            raise self.source.error(node, f"{name}() does not take {len(arguments)} arguments")
        return _null_if_any(function, arguments)

    def _struct(self, kind: str, given: Sequence[exp.Expr]) -> _Evaluate:
        if kind == "struct":
            names = [node.alias_or_name for node in given]
            members = given
        else:
            names = [node.name if isinstance(node, exp.Literal) and node.is_string else "" for node in given[::2]]
            members = given[1::2]
        if not all(names) or len(names) != len(members):
            raise InvalidRequest("each field of a struct needs a name, as in struct(a AS b) or named_struct('b', a)")
        fields = [(name, self.compile(node.unalias())) for name, node in zip(names, members, strict=True)]
        return lambda row: {name: evaluate(row) for name, evaluate in fields}

    def _unavailable(self, node: exp.Expr, what: str) -> InvalidSql:
        return self.source.error(node, f"{what} is not available here: use a function in Python")


def _parse_literal(text: str) -> int | Decimal:
    return int(text) if text.isdigit() else Decimal(text)


def _constant(value: Any) -> _Evaluate:
    return lambda row: value


def _read_path(path: Sequence[str]) -> _Evaluate:
    first, *rest = path
    return _read_members(lambda row: row.get(first), rest)


def _read_members(outer: _Evaluate, path: Sequence[str]) -> _Evaluate:
    if not path:
        return outer

    def evaluate(row: _Object) -> Any:
        value = outer(row)
        for name in path:
            value = value.get(name) if isinstance(value, dict) else None
        return value

    return evaluate


def _element(value: Any, index: Any) -> Any:
    if isinstance(value, dict):
        return value.get(values.need_text(index))
    if not isinstance(value, list):
        raise InvalidRequest(f"{values.describe(value)} has no elements")
    place = int(values.to_number(index))
    return value[place] if 0 <= place < len(value) else None


def _cast(kind: str, parameters: list[int], value: Any) -> Any:
    return values.cast(value, kind, parameters)


def _null_if_any(function: Callable[..., Any], arguments: Sequence[_Evaluate]) -> _Evaluate:
    def evaluate(row: _Object) -> Any:
        found = [argument(row) for argument in arguments]
        return None if None in found else function(*found)

    return evaluate


def _connect(left: _Evaluate, right: _Evaluate, *, absorbing: bool) -> _Evaluate:
    """AND (``absorbing`` is False) or OR (True), with nulls as in SQL."""

    def evaluate(row: _Object) -> Any:
        is_null = False
        for side in (left, right):
            value = side(row)
            if value is None:
                is_null = True
            elif values.need_boolean(value) is absorbing:
                return absorbing
        return None if is_null else not absorbing

    return evaluate


def _equal_or_null(left: _Evaluate, right: _Evaluate) -> _Evaluate:
    def evaluate(row: _Object) -> bool:
        one, other = left(row), right(row)
        return one is other if one is None or other is None else values.compare(operator.eq, one, other)

    return evaluate


def _is_in(value: _Evaluate, options: Sequence[_Evaluate]) -> _Evaluate:
    def evaluate(row: _Object) -> Any:
        wanted = value(row)
        found = [option(row) for option in options]
        if wanted is None:
            return None
        if any(values.compare(operator.eq, wanted, option) for option in found if option is not None):
            return True
        return None if None in found else False

    return evaluate


def _coalesce(arguments: Sequence[_Evaluate]) -> _Evaluate:
    def evaluate(row: _Object) -> Any:
        for argument in arguments:
            value = argument(row)
            if value is not None:
                return value
        return None

    return evaluate
