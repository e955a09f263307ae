"""Compiles SQL over closed windows to PostgreSQL, which computes it when a window is shown or sent.

No value that events can have may raise an error there, because the window could never close. So numbers are computed
exactly, whatever their type. A result that does not fit its type is null, and so is a quotient by zero.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from sqlglot import exp

from penstock.core.errors import InvalidRequest, InvalidSql, short_repr
from penstock.core.names import find_text_problem
from penstock.stream.sql.dialect import StatementSql
from penstock.stream.sql.sql_source import SqlSource
from penstock.stream.windows import calendar_window

#: The columns of every window beside its aggregates.
WINDOW_COLUMNS = ("key", "window_start", "window_end")
#: One, with so many digits that a quotient has the 28 digits of Python's Decimal.
_ONE = f"1.{40 * '0'}"
_MAX_INTEGERS = {"SMALLINT": 2**15 - 1, "INT": 2**31 - 1, "BIGINT": 2**63 - 1}
_MAX_EXPONENT = 300
_MAX_DIGITS = 38

_ARITHMETIC = (exp.Add, exp.Sub, exp.Mul, exp.Div, exp.Neg, exp.Abs)
#: Expressions that mean the same in Spark and in PostgreSQL, or are rewritten here.
_SUPPORTED = (
    *(exp.Column, exp.Identifier, exp.Literal, exp.Boolean, exp.Null, exp.Paren, exp.Neg),
    *(exp.Add, exp.Sub, exp.Mul, exp.Div, exp.Mod, exp.And, exp.Or, exp.Not),
    *(exp.EQ, exp.NEQ, exp.GT, exp.GTE, exp.LT, exp.LTE, exp.Between, exp.In, exp.Is, exp.Like),
    *(exp.Case, exp.If, exp.Coalesce, exp.Nullif, exp.Abs, exp.Round, exp.Floor, exp.Ceil, exp.Greatest, exp.Least),
    *(exp.Concat, exp.DPipe, exp.Upper, exp.Lower, exp.Cast, exp.TryCast, exp.DataType, exp.DataTypeParam),
    *(exp.Struct, exp.PropertyEQ, exp.Alias, exp.AtTimeZone),
)


@dataclass(frozen=True)
class WindowExpression:
    """An expression for PostgreSQL, with ``{name}`` for each column of the window."""

    text: str
    names: frozenset[str]
    #: Whether it is a column and nothing else.
    is_column: bool
    #: Whether it computes with numbers.
    computes: bool
    #: Whether it is an exact number, which may have trailing zeros.
    is_exact: bool
    #: Whether it divides, so that it has more digits than are shown.
    divides: bool


def compile_window_expression(text: str, names: Collection[str], doubles: Collection[str] = ()) -> WindowExpression:
    """Compile an expression over the columns of a window.

    Args:
        text: The expression, in Spark's SQL.
        names: The aggregates of the window.
        doubles: The aggregates that are floating-point numbers. The result of arithmetic with them is one, too.
    """
    source = SqlSource(text, dialect=StatementSql)
    try:
        parsed = source.parse(source.tokenize())
    except InvalidSql:
        raise InvalidRequest(f"{short_repr(text)} cannot be read: write it like 'total / n'") from None
    return _PostgresCompiler(text, names, doubles).compile(parsed)


class _PostgresCompiler:
    """Rewrites a tree of Spark's SQL to PostgreSQL's, from the leaves to the root."""

    def __init__(self, text: str, names: Collection[str], doubles: Collection[str]) -> None:
        self._text = text
        self._columns = {name.lower(): name for name in (*WINDOW_COLUMNS, *names)}
        self._doubles = {f"{{{name}}}" for name in doubles}
        self._used: set[str] = set()

    def compile(self, parsed: Any) -> WindowExpression:
        for node in parsed.walk():
            if not isinstance(node, _SUPPORTED):
                raise self._error(
                    f"{node.sql('spark')[:60]} cannot be computed of a closed window; there are arithmetic, "
                    "comparisons, CASE, CAST, coalesce, nullif, abs, round, floor, ceil, greatest, least, concat, "
                    "upper and lower. Compute it in a second stream that reads the queue"
                )
        is_number = isinstance(parsed.unnest(), exp.Add | exp.Sub | exp.Mul | exp.Div | exp.Mod)
        computes = parsed.find(*_ARITHMETIC, exp.Mod) is not None
        divides = parsed.find(exp.Div) is not None
        is_column = isinstance(parsed, exp.Column)
        root = exp.Paren(this=parsed)  # so that the outermost expression has a parent to be replaced in
        for node in reversed(list(root.walk())):
            rewritten = self._rewrite(node)
            if rewritten is not node:
                node.replace(rewritten)
        is_double = self._convert_doubles(root)
        text = self._object(root.this) if isinstance(root.this, exp.Struct) else _sql(root.this)
        return WindowExpression(text, frozenset(self._used), is_column, computes, is_number and not is_double, divides)

    def _error(self, why: str) -> InvalidRequest:
        return InvalidRequest(f"{short_repr(self._text)}: {why}")

    def _rewrite(self, node: Any) -> Any:
        """Return the expression for PostgreSQL. Its operands are rewritten already."""
        match node:
            case exp.Column():
                return self._column(node)
            case exp.Literal():
                return self._literal(node)
            case exp.Cast():  # TRY_CAST too: a cast never raises
                return self._cast(node)
            case exp.Div():
                # The quotient of integers is a fraction.
                node.set("typed", True)
                node.set("this", exp.Paren(this=exp.Mul(this=exp.paren(node.this), expression=_number(_ONE))))
            case exp.Mod():
                divisor = exp.Nullif(this=self._exact(node.expression), expression=_number(0))
                return exp.Anonymous(this="mod", expressions=[self._exact(node.this), divisor])
            case exp.Round():
                digits = self._digits(node.args.get("decimals"))
                return exp.Anonymous(this="round", expressions=[self._exact(node.this), digits])
            case exp.Floor() | exp.Ceil() if node.args.get("decimals") is not None:
                raise self._error(f"{node.key} takes a number alone: write {node.key}(x * 100) / 100")
            case exp.Concat() | exp.DPipe():
                parts = node.expressions if isinstance(node, exp.Concat) else [node.this, node.expression]
                return exp.Paren(this=exp.Var(this=" || ".join(_sql(self._call("as_text", part)) for part in parts)))
            case exp.Upper() | exp.Lower():
                # Comparisons are by bytes.
                return exp.Var(this=f'({_sql(self._call(f"{node.key}_case", node.this))} COLLATE "C")')
            case exp.Like():
                self._check_pattern(node.expression)
            case exp.AtTimeZone():
                zone = node.args["zone"]
                if not self._is_string(zone):
                    raise self._error("a time zone is in quotes: 'Europe/Rome'")
                calendar_window("day", zone.name)
        return node

    def _column(self, node: Any) -> Any:
        name = self._columns.get(node.name.lower())
        if name is None or node.args.get("table") is not None:
            raise self._error(
                f"{short_repr(node.sql('spark'))} is no column of the window; it has "
                f"{', '.join(self._columns.values())}"
            )
        self._used.add(name)
        return exp.Var(this="nullif({key}, '')" if name == "key" else f"{{{name}}}")

    def _literal(self, node: Any) -> Any:
        if not node.is_string:
            if abs(Decimal(node.name).adjusted()) > _MAX_EXPONENT:
                raise self._error(f"{node.name[:20]} is too large or too small a number")
            return node
        problem = find_text_problem(node.name)
        if problem is not None:
            raise self._error(f"a text in it {problem}: leave that out")
        if not set(node.name) & set("{}"):
            return node
        # A name in braces would be replaced by a column.
        escaped = re.sub(r"[{}\\']", lambda character: f"\\x{ord(character[0]):02x}", node.name)
        return exp.Var(this=f"E'{escaped}'")

    def _check_pattern(self, pattern: Any) -> None:
        """Refuse a pattern that ends with an escape character, which is an error for every text."""
        if not self._is_string(pattern) or re.search(r"(?<!\\)(\\\\)*\\$", pattern.name):
            raise self._error("LIKE takes a pattern in quotes, such as 'a%', which does not end with a \\")

    def _digits(self, digits: Any) -> Any:
        try:
            return _number(0 if digits is None else int(digits.sql("spark")))
        except ValueError:
            raise self._error("round takes the digits as a number: round(x, 2)") from None

    def _call(self, function: str, *arguments: Any) -> Any:
        """Return a call of a function in the schema ``penstock``. A literal needs its type there."""
        first = arguments[0].unnest()
        if self._is_string(first) or isinstance(first, exp.Null):
            arguments = (exp.Var(this=f"{_sql(first)}::text"), *arguments[1:])
        return exp.Anonymous(this=f"penstock.{function}", expressions=[each.copy() for each in arguments])

    def _is_string(self, node: Any) -> bool:
        if isinstance(node, exp.Literal):
            return bool(node.is_string)
        return isinstance(node, exp.Var) and node.name.startswith("E'")

    def _exact(self, node: Any, *, whole: bool = False) -> Any:
        return self._call("as_number", node, exp.Boolean(this=whole))

    def _cast(self, node: Any) -> Any:
        kind = node.to
        if isinstance(node.parent, exp.AtTimeZone):
            return node.this  # the argument of from_utc_timestamp is a timestamp already
        name = kind.this.name
        sizes = [part.name for part in kind.expressions]
        match name:
            case "SMALLINT" | "INT" | "BIGINT":
                return self._call("as_whole", self._exact(node.this, whole=True), _number(_MAX_INTEGERS[name]))
            case "DECIMAL":
                digits = int(sizes[0]) if sizes else 10
                scale = int(sizes[1]) if len(sizes) > 1 else 0
                if not 0 <= scale <= digits <= _MAX_DIGITS:
                    raise self._error(
                        f"{kind.sql('spark')} is no type: write DECIMAL(18, 2), with at most {_MAX_DIGITS} digits"
                    )
                return self._call("as_decimal", self._exact(node.this), _number(digits), _number(scale))
            case "DOUBLE" | "FLOAT":
                return self._call("as_double", self._exact(node.this))
            case "TEXT" | "VARCHAR" | "CHAR" if not sizes:
                return self._call("as_text", node.this)
            case "BOOLEAN":
                return self._call("as_boolean", node.this)
            case "TIMESTAMPTZ":
                return self._call("as_moment", node.this)
            case "TIMESTAMPNTZ" | "TIMESTAMP":
                return exp.Var(this=f"({_sql(self._call('as_moment', node.this))} AT TIME ZONE 'UTC')")
            case "DATE":
                return exp.Var(this=f"({_sql(self._call('as_moment', node.this))} AT TIME ZONE 'UTC')::date")
        raise self._error(
            f"{kind.sql('spark')} is no type for a closed window; there are SMALLINT, INT, BIGINT, DECIMAL(18, 2), "
            "DOUBLE, STRING, BOOLEAN, DATE and TIMESTAMP"
        )

    def _convert_doubles(self, root: Any) -> bool:
        """Compute exactly with doubles, and convert the results to doubles. Return whether the whole is a double."""
        outermost = [node for node in root.find_all(*_ARITHMETIC) if not node.find_ancestor(*_ARITHMETIC)]
        is_double = False
        for node in outermost:
            calls = [call for call in node.find_all(exp.Anonymous) if call.name == "penstock.as_double"]
            if not calls and not any(part.name in self._doubles for part in node.find_all(exp.Var)):
                continue
            for call in calls:
                call.replace(self._exact(call))
            is_double = is_double or root.this.unnest() is node
            node.replace(self._call("as_double", self._exact(node)))
        return is_double

    def _object(self, node: Any) -> str:
        """Return a struct as a JSON object."""
        pairs = []
        for part in node.expressions:
            name = part.this.name if isinstance(part, exp.PropertyEQ) else part.alias
            value = part.expression if isinstance(part, exp.PropertyEQ) else part.this
            pairs.append(f"{_sql(self._literal(exp.Literal.string(name)))}, {_sql(value)}")
        return f"json_build_object({', '.join(pairs)})"


def _sql(node: Any) -> str:
    return str(node.sql("postgres", normalize_functions=False))


def _number(value: int | str) -> exp.Expr:
    return exp.Literal.number(value)
