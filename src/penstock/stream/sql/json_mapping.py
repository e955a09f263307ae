"""A mapping of JSON objects in SQL: a select list that PostgreSQL evaluates, one object at a time, without Spark.

    * EXCEPT (prise), cast(prise AS decimal) AS price, coalesce(currency, 'EUR') AS currency

Fields that the list copies keep their JSON text, digit by digit. The others are compiled to PostgreSQL's SQL from a
list of expressions and functions. They read the object and nothing else: names and literals are parameters.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from enum import StrEnum
from itertools import zip_longest
from typing import NamedTuple

from sqlglot import exp

from penstock.core.errors import InvalidRequest, InvalidSql, short_repr
from penstock.core.names import find_text_problem
from penstock.log.dead_letters.dead_letter import CopiedFields, JsonMapping, MappedField
from penstock.stream.sql.column_refs import column_path
from penstock.stream.sql.expression_parser import parse_select
from penstock.stream.sql.sql_source import SqlSource

#: The most characters of a mapping, and of the SQL of one field.
_MAX_LENGTH = 10_000
_MAX_SQL_LENGTH = 1_000_000
_EXAMPLE = "*, cast(price AS decimal) AS price"
#: The largest value of each integer type.
_INTEGERS = {"TINYINT": 2**7 - 1, "SMALLINT": 2**15 - 1, "INT": 2**31 - 1, "BIGINT": 2**63 - 1}


class _Type(StrEnum):
    JSON = "jsonb"
    NUMBER = "numeric"
    TEXT = "text"
    BOOLEAN = "boolean"


class _Sql(NamedTuple):
    """An expression of PostgreSQL and the type of its values."""

    text: str
    type: _Type


class _Function(NamedTuple):
    """A function by its call in PostgreSQL, with the types of its arguments and of its result."""

    template: str
    result: _Type
    arguments: Sequence[_Type]
    #: The arguments that may be omitted, as SQL.
    defaults: Sequence[str] = ()


_JSON, _NUMBER, _TEXT, _BOOLEAN = _Type
_LENGTH = (
    "CASE jsonb_typeof({0}) WHEN 'array' THEN jsonb_array_length({0})"
    " WHEN 'object' THEN (SELECT count(*) FROM jsonb_object_keys({0})) ELSE length({0} #>> '{{}}') END"
)
_SUBSTRING = "substr({0}, CASE WHEN {1} < 0 THEN greatest(length({0}) + {1} + 1, 1) ELSE greatest({1}, 1) END::integer"
_FUNCTIONS: Mapping[str, _Function] = {
    "abs": _Function("abs({0})", _NUMBER, [_NUMBER]),
    "ceil": _Function("ceil({0})", _NUMBER, [_NUMBER]),
    "floor": _Function("floor({0})", _NUMBER, [_NUMBER]),
    "isnotnull": _Function("({0} IS NOT NULL)", _BOOLEAN, [_JSON]),
    "isnull": _Function("({0} IS NULL)", _BOOLEAN, [_JSON]),
    "length": _Function(f"({_LENGTH})::numeric", _NUMBER, [_JSON]),
    "lower": _Function("penstock.lower_case({0})", _TEXT, [_TEXT]),
    "ltrim": _Function("ltrim({0})", _TEXT, [_TEXT]),
    "mod": _Function("mod({0}, {1})", _NUMBER, [_NUMBER, _NUMBER]),
    "replace": _Function("replace({0}, {1}, {2})", _TEXT, [_TEXT, _TEXT, _TEXT], ["''"]),
    "round": _Function("round({0}, ({1})::integer)", _NUMBER, [_NUMBER, _NUMBER], ["0"]),
    "rtrim": _Function("rtrim({0})", _TEXT, [_TEXT]),
    "size": _Function(f"({_LENGTH})::numeric", _NUMBER, [_JSON]),
    "split_part": _Function("split_part({0}, {1}, ({2})::integer)", _TEXT, [_TEXT, _TEXT, _NUMBER]),
    "substring": _Function(
        f"{_SUBSTRING}, greatest({{2}}, 0)::integer)", _TEXT, [_TEXT, _NUMBER, _NUMBER], [f"{2**30}"]
    ),
    "trim": _Function("btrim({0})", _TEXT, [_TEXT]),
    "upper": _Function("penstock.upper_case({0})", _TEXT, [_TEXT]),
}
_OPERATORS: Mapping[type[exp.Expr], _Function] = {
    exp.Add: _Function("({0} + {1})", _NUMBER, [_NUMBER, _NUMBER]),
    exp.Sub: _Function("({0} - {1})", _NUMBER, [_NUMBER, _NUMBER]),
    exp.Mul: _Function("({0} * {1})", _NUMBER, [_NUMBER, _NUMBER]),
    exp.Div: _Function("trim_scale({0} / {1})", _NUMBER, [_NUMBER, _NUMBER]),
    exp.Mod: _Function("mod({0}, {1})", _NUMBER, [_NUMBER, _NUMBER]),
    exp.IntDiv: _Function("div({0}, {1})", _NUMBER, [_NUMBER, _NUMBER]),
    exp.Neg: _Function("(- {0})", _NUMBER, [_NUMBER]),
    exp.Not: _Function("(NOT {0})", _BOOLEAN, [_BOOLEAN]),
    exp.And: _Function("({0} AND {1})", _BOOLEAN, [_BOOLEAN, _BOOLEAN]),
    exp.Or: _Function("({0} OR {1})", _BOOLEAN, [_BOOLEAN, _BOOLEAN]),
    exp.Like: _Function("({0} LIKE {1})", _BOOLEAN, [_TEXT, _TEXT]),
    exp.DPipe: _Function("({0} || {1})", _TEXT, [_TEXT, _TEXT]),
}
#: Operators between values of one type, whichever it is.
_COMPARISONS: Mapping[type[exp.Expr], str] = {
    exp.EQ: "({0} = {1})",
    exp.NEQ: "({0} <> {1})",
    exp.GT: "({0} > {1})",
    exp.GTE: "({0} >= {1})",
    exp.LT: "({0} < {1})",
    exp.LTE: "({0} <= {1})",
    exp.NullSafeEQ: "({0} IS NOT DISTINCT FROM {1})",
    exp.Between: "({0} BETWEEN {1} AND {2})",
}
#: Functions that sqlglot has classes for, by their name in Spark SQL.
_CLASSES: Mapping[type[exp.Expr], str] = {exp.Substring: "substring", exp.Trim: "trim", exp.Concat: "concat"}


def compile_mapping(text: str) -> JsonMapping:
    """Compile a select list over the fields of an object. Raises InvalidRequest, or InvalidSql with the position."""
    if not text.strip():
        raise InvalidRequest(f"a mapping is a select list in SQL, such as '{_EXAMPLE}', not {short_repr(text)}")
    if len(text) > _MAX_LENGTH:
        raise InvalidRequest(f"a mapping has at most {_MAX_LENGTH} characters; this one has {len(text)}")
    source = SqlSource(text)
    with source.locate_errors(0):
        tree = parse_select(text)
        clauses = sorted(name.rstrip("_") for name, part in tree.args.items() if part and name != "expressions")
        if not isinstance(tree, exp.Select) or clauses:
            raise InvalidRequest(f"a mapping is only the list of fields, such as '{_EXAMPLE}', without {clauses[0]}")
        return JsonMapping(text, [_compile_item(source, node) for node in tree.expressions])


def _compile_item(source: SqlSource, node: exp.Expr) -> CopiedFields | MappedField:
    if isinstance(node, exp.Star):
        if node.args.get("replace") or node.args.get("rename"):
            raise _unavailable(source, node, "a star with REPLACE or RENAME")
        return CopiedFields(frozenset(column.name for column in node.args.get("except_") or []))
    inner = node.unalias()
    path = column_path(inner)
    name = node.alias or (path[-1] if path else "")
    if not name:
        raise source.error(node, "give the expression a name, as in 'a + b AS total'")
    compiler = _Compiler(source)
    compiled = compiler.compile(inner)
    value = _convert(compiled, _JSON).text
    statement = f"SELECT {value}::text FROM (SELECT %(data)s::jsonb AS data) AS given"  # noqa: S608 - of parameters
    return MappedField(
        name,
        path[0] if len(path) == 1 else None,
        statement,
        compiler.parameters,
        frozenset(column_path(column)[0] for column in inner.find_all(exp.Column)),
        lambda sizes: _memory(inner, sizes)[1],
        compiled.type is _NUMBER,
    )


def _memory(node: exp.Expr, sizes: Mapping[str, int]) -> tuple[int, int]:
    """Return the most bytes that a value can have, and those of all values that it is computed from."""
    if isinstance(node, exp.Column):
        size = sizes.get(column_path(node)[0], 0)
        return size, size
    parts = [_memory(part, sizes) for part in node.iter_expressions()]
    # A number, or the value of a literal.
    size = 100 + len(node.name) + sum(part for part, _ in parts)
    if isinstance(node, exp.Anonymous) and node.name.lower() == "replace" and len(parts) == 3:
        size = parts[0][0] * max(parts[2][0], 1)
    return size, size + sum(total for _, total in parts)


def _unavailable(source: SqlSource, node: exp.Expr, what: str) -> InvalidSql:
    return source.error(node, f"{what} is not available here: use a function in Python")


class _Compiler:
    """Compiles the expression of one field. Names and literals become ``parameters``."""

    def __init__(self, source: SqlSource) -> None:
        self._source = source
        self.parameters: dict[str, object] = {}

    def compile(self, node: exp.Expr) -> _Sql:
        with self._source.locate_errors(node):
            compiled = self._compile(node)
        if len(compiled.text) > _MAX_SQL_LENGTH:
            raise self._source.error(node, "it is nested too deep: make several fields of it")
        return compiled

    def _compile(self, node: exp.Expr) -> _Sql:
        match node:
            case exp.Paren():
                return self.compile(node.this)
            case exp.Column():
                return self._member(_Sql("given.data", _JSON), column_path(node))
            case exp.Dot():
                return self._member(self.compile(node.this), [node.expression.name])
            case exp.Null():
                return _Sql("NULL::jsonb", _JSON)
            case exp.Boolean():
                return _Sql("true" if node.this else "false", _BOOLEAN)
            case exp.Literal():
                return self._literal(node.this) if node.is_string else self._literal(Decimal(node.this))
            case exp.Is() if isinstance(node.expression, exp.Null):
                return _Sql(f"({self._as(_JSON, node.this)} IS NULL)", _BOOLEAN)
            case exp.Is() if isinstance(node.expression, exp.Boolean):
                wanted = "TRUE" if node.expression.this else "FALSE"
                return _Sql(f"({self._as(_BOOLEAN, node.this)} IS {wanted})", _BOOLEAN)
            case exp.In() if node.expressions:
                value, *options = self._unified(node, [node.this, *node.expressions])
                return _Sql(f"({value.text} IN ({', '.join(option.text for option in options)}))", _BOOLEAN)
            case exp.If():
                return self._case([(self._as(_BOOLEAN, node.this), node.args["true"])], node.args.get("false"))
            case exp.Case():
                return self._case(
                    [(self._condition(node, branch), branch.args["true"]) for branch in node.args["ifs"]],
                    node.args.get("default"),
                )
            case exp.Cast():
                return self._cast(node)
            case exp.Bracket() if len(node.expressions) == 1:
                index = self.compile(node.expressions[0])
                key = index.text if index.type is _TEXT else f"({_convert(index, _NUMBER).text})::integer"
                return _non_null(f"({self._as(_JSON, node.this)} -> {key})")
        if type(node) in _COMPARISONS:
            operands = [node.args[part] for part in ("this", "expression", "low", "high") if part in node.args]
            compiled = self._unified(node, operands)
            return _Sql(_COMPARISONS[type(node)].format(*(operand.text for operand in compiled)), _BOOLEAN)
        if type(node) in _OPERATORS:
            operands = [node.args[part] for part in ("this", "expression") if part in node.args]
            return self._call(node, _OPERATORS[type(node)], operands)
        return self._function(node)

    def _as(self, type: _Type, node: exp.Expr) -> str:
        return _convert(self.compile(node), type).text

    def _literal(self, value: object) -> _Sql:
        type = _TEXT if isinstance(value, str) else _NUMBER
        problem = find_text_problem(str(value))
        if problem is not None:
            raise InvalidRequest(f"a text in it {problem}: leave that out")
        return _Sql(f"{self._parameter(value)}::{type}", type)

    def _parameter(self, value: object) -> str:
        name = f"p{len(self.parameters)}"
        self.parameters[name] = value
        return f"%({name})s"

    def _member(self, outer: _Sql, path: Sequence[str]) -> _Sql:
        return _non_null(f"({_convert(outer, _JSON).text} #> {self._parameter(list(path))}::text[])")

    def _unified(self, where: exp.Expr, nodes: Sequence[exp.Expr]) -> list[_Sql]:
        """Compile values that are compared. Fields are read as the type of the others."""
        compiled = [self.compile(node) for node in nodes]
        types = {each.type for each in compiled} - {_JSON}
        if len(types) > 1:
            names = " with a ".join(sorted(types))
            raise self._source.error(where, f"it compares a {names}: cast one of them, as in cast(x AS decimal)")
        type = types.pop() if types else _JSON
        converted = [_convert(each, type) for each in compiled]
        return [_Sql(f'({each.text} COLLATE "C")', type) for each in converted] if type is _TEXT else converted

    def _merged(self, nodes: Sequence[exp.Expr]) -> tuple[list[str], _Type]:
        """Compile values of which one is chosen. If their types differ, the result is JSON."""
        compiled = [self.compile(node) for node in nodes]
        types = {each.type for each in compiled}
        type = types.pop() if len(types) == 1 else _JSON
        return [_convert(each, type).text for each in compiled], type

    def _condition(self, case: exp.Case, branch: exp.Expr) -> str:
        if case.this is None:
            return self._as(_BOOLEAN, branch.this)
        value, option = self._unified(branch, [case.this, branch.this])
        return f"({value.text} = {option.text})"

    def _case(self, branches: Sequence[tuple[str, exp.Expr]], default: exp.Expr | None) -> _Sql:
        (*results, otherwise), type = self._merged([*(result for _, result in branches), default or exp.Null()])
        whens = " ".join(
            f"WHEN {condition} THEN {result}" for (condition, _), result in zip(branches, results, strict=True)
        )
        return _Sql(f"(CASE {whens} ELSE {otherwise} END)", type)

    def _cast(self, node: exp.Cast) -> _Sql:
        kind = node.to.this.name if isinstance(node.to.this, exp.DType) else ""
        sizes = [int(size.this.name) for size in node.to.expressions]
        value = self.compile(node.this)
        is_safe = bool(node.args.get("safe"))
        text = _convert(value, _TEXT).text
        number = f"penstock.as_number({text}, false)" if is_safe else f"penstock.read_number({text})"
        match kind:
            case "TEXT" | "VARCHAR" | "CHAR":
                return _Sql(text, _TEXT)
            case "BOOLEAN" if value.type is _NUMBER:
                return _Sql(f"({value.text} <> 0)", _BOOLEAN)
            case "BOOLEAN":
                return _Sql(f"penstock.as_boolean({text})" if is_safe else f"({text})::boolean", _BOOLEAN)
            case "DECIMAL" if not sizes:
                return _Sql(number, _NUMBER)
            case "DECIMAL" if is_safe:
                return _Sql(f"penstock.as_decimal({number}, {sizes[0]}, {(*sizes, 0)[1]})", _NUMBER)
            case "DECIMAL":
                return _Sql(f"({number})::numeric({', '.join(map(str, sizes))})", _NUMBER)
            case "DOUBLE" | "FLOAT":
                double = f"penstock.as_double({number})" if is_safe else f"({number})::double precision"
                return _Sql(f"({double})::text::numeric", _NUMBER)
            case _ if kind in _INTEGERS and is_safe:
                return _Sql(f"penstock.as_whole({number}, {_INTEGERS[kind]})", _NUMBER)
            case _ if kind in _INTEGERS:
                name = "smallint" if kind == "TINYINT" else kind.lower()
                return _Sql(f"trunc({number})::{name}::numeric", _NUMBER)
        raise _unavailable(self._source, node, f"a cast to {node.to.sql(dialect='spark').lower()}")

    def _function(self, node: exp.Expr) -> _Sql:
        name = (node.name if isinstance(node, exp.Anonymous) else _CLASSES.get(type(node), "")).lower()
        if isinstance(node, exp.Anonymous | exp.Concat):
            given = node.expressions
        else:
            given = [node.args[part] for part in ("this", "start", "length") if node.args.get(part) is not None]
        match name:
            case "struct":
                return self._struct([(part.alias_or_name, part.unalias()) for part in given])
            case "named_struct":
                names = [part.name if isinstance(part, exp.Literal) and part.is_string else "" for part in given[::2]]
                return self._struct(list(zip_longest(names, given[1::2])))
            case "array":
                return _Sql(f"jsonb_build_array({', '.join(self._as(_JSON, part) for part in given)})", _JSON)
            case "coalesce" | "nvl" | "ifnull" if given:
                parts, merged = self._merged(given)
                return _Sql(f"coalesce({', '.join(parts)})", merged)
            case "concat" if given:
                return _Sql(f"({' || '.join(self._as(_TEXT, part) for part in given)})", _TEXT)
            case "greatest" | "least" if given:
                unified = self._unified(node, given)
                return _Sql(f"{name}({', '.join(part.text for part in unified)})", unified[0].type)
            case "nullif" if len(given) == 2:
                value, option = self._unified(node, given)
                return _Sql(f"nullif({value.text}, {option.text})", value.type)
        if name not in _FUNCTIONS or (isinstance(node, exp.Trim) and node.args.get("expression")):
            raise _unavailable(self._source, node, f"{name or node.key}()")
        return self._call(node, _FUNCTIONS[name], given)

    def _call(self, node: exp.Expr, function: _Function, given: Sequence[exp.Expr]) -> _Sql:
        if not len(function.arguments) - len(function.defaults) <= len(given) <= len(function.arguments):
            raise self._source.error(node, f"{node.name or node.key}() does not take {len(given)} arguments")
        arguments = [self._as(type, part) for type, part in zip(function.arguments, given, strict=False)]
        omitted = len(function.arguments) - len(given)
        arguments += function.defaults[len(function.defaults) - omitted :]
        return _Sql(function.template.format(*arguments), function.result)

    def _struct(self, fields: Sequence[tuple[str, exp.Expr]]) -> _Sql:
        if not all(name and node for name, node in fields):
            raise InvalidRequest("each field of a struct needs a name, as in struct(a AS b) or named_struct('b', a)")
        parts = [f"{self._literal(name).text}, {self._as(_JSON, node)}" for name, node in fields]
        return _Sql(f"jsonb_build_object({', '.join(parts)})", _JSON)


def _non_null(json: str) -> _Sql:
    """Return a JSON value that is null in SQL if it is null in JSON."""
    return _Sql(f"nullif({json}, 'null')", _JSON)


_CONVERSIONS: Mapping[tuple[_Type, _Type], Callable[[str], str]] = {
    (_JSON, _TEXT): "({} #>> '{{}}')".format,
    # It reports a text as such, where a cast would convert it.
    (_JSON, _NUMBER): "penstock.read_number({})".format,
    (_JSON, _BOOLEAN): "({})::boolean".format,
    (_NUMBER, _TEXT): "({})::text".format,
    (_BOOLEAN, _TEXT): "({})::text".format,
    **dict.fromkeys([(_NUMBER, _JSON), (_BOOLEAN, _JSON), (_TEXT, _JSON)], "to_jsonb({})".format),
}


def _convert(value: _Sql, type: _Type) -> _Sql:
    """Return the value as another type. Only fields are converted: a text that a function returns is no number."""
    if value.type is type:
        return value
    conversion = _CONVERSIONS.get((value.type, type))
    if conversion is None:
        raise InvalidRequest(f"it needs a {type} where it has a {value.type}: cast it, as in cast(x AS decimal)")
    return _Sql(conversion(value.text), type)
