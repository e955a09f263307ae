"""SQL over closed windows: what PostgreSQL computes of a window's aggregates when it shows it or sends it on.

No value that events can make may raise an error there, for the window could never close. So what is computed of numbers
is exact, whatever their type, and what does not fit a type is null, as is a quotient by zero.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from penstock.core.errors import ConfigurationError, InvalidRequest, shown
from penstock.core.names import text_problem
from penstock.stream.windows import calendar

#: One, with so many digits that a quotient of it has the 28 of Python's Decimal.
_ONE = f"1.{40 * '0'}"
#: What every window has beside its aggregates.
OF_ALL = ("key", "window_start", "window_end")
#: The highest value of each type of whole numbers.
_WHOLE = {"SMALLINT": 2**15 - 1, "INT": 2**31 - 1, "BIGINT": 2**63 - 1}


@dataclass(frozen=True)
class Final:
    """An expression for PostgreSQL, with ``{name}`` for each column of the window that it mentions."""

    text: str
    names: frozenset[str]
    #: Whether it is a column and nothing else.
    is_column: bool
    #: Whether it computes with numbers.
    computes: bool
    #: Whether it is an exact number, and so may have zeros at its end.
    is_exact: bool
    #: Whether it divides, and so may have more digits than anybody wants.
    divides: bool


def final_of(text: str, names: Collection[str], doubles: Collection[str] = ()) -> Final:
    """The expression, if it is made of what PostgreSQL and Spark understand in the same way.

    ``doubles`` are the columns that are floating-point numbers: what is computed of them becomes one again at its end.
    """
    try:
        import sqlglot
    except ImportError:
        raise ConfigurationError("select and having need sqlglot: pip install 'penstock[spark]'") from None
    try:
        parsed: Any = sqlglot.parse_one(text, dialect="spark")
    except sqlglot.errors.SqlglotError:
        raise InvalidRequest(f"{shown(text)} cannot be read: write it like 'total / n'") from None
    return _Making(text, names, doubles).made(parsed)


class _Making:
    """Makes an expression of Spark's one of PostgreSQL's, from the inside out."""

    def __init__(self, text: str, names: Collection[str], doubles: Collection[str]) -> None:
        from sqlglot import exp

        self._exp = exp
        self._text = text
        self._known = {name.lower(): name for name in (*OF_ALL, *names)}
        self._doubles = {f"{{{name}}}" for name in doubles}
        self._found: set[str] = set()
        self._arithmetic = (exp.Add, exp.Sub, exp.Mul, exp.Div, exp.Neg, exp.Abs)

    def made(self, parsed: Any) -> Final:
        exp = self._exp
        allowed = _allowed(exp)
        for node in parsed.walk():
            if not isinstance(node, allowed):
                raise self._refused(
                    f"{node.sql('spark')[:60]} cannot be computed of a closed window; there are arithmetic, "
                    "comparisons, CASE, CAST, coalesce, nullif, abs, round, floor, ceil, greatest, least, concat, "
                    "upper and lower. Compute it in a second stream that reads the queue"
                )
        is_number = isinstance(parsed.unnest(), (*self._arithmetic[:4], exp.Mod))
        computes = parsed.find(*self._arithmetic, exp.Mod) is not None
        divides = parsed.find(exp.Div) is not None
        is_column = isinstance(parsed, exp.Column)
        whole = exp.Paren(this=parsed)  # so that the outermost part has something around it, as the others have
        for node in reversed(list(whole.walk())):
            changed = self._changed(node)
            if changed is not node:
                node.replace(changed)
        is_double = self._double(whole)
        text = self._struct(whole.this) if isinstance(whole.this, exp.Struct) else _sql(whole.this)
        return Final(text, frozenset(self._found), is_column, computes, is_number and not is_double, divides)

    def _refused(self, why: str) -> InvalidRequest:
        return InvalidRequest(f"{shown(self._text)}: {why}")

    def _changed(self, node: Any) -> Any:
        """A part whose own parts are made already."""
        exp = self._exp
        match node:
            case exp.Column():
                return self._column(node)
            case exp.Literal():
                return self._literal(node)
            case exp.Cast():  # and TRY_CAST: an error would be nobody's
                return self._cast(node)
            case exp.Div():
                # Of whole numbers too, it is a fraction.
                node.set("typed", True)
                node.set("this", exp.Paren(this=exp.Mul(this=exp.paren(node.this), expression=_number(exp, _ONE))))
            case exp.Mod():
                divisor = exp.Nullif(this=self._exact(node.expression), expression=_number(exp, 0))
                return exp.Anonymous(this="mod", expressions=[self._exact(node.this), divisor])
            case exp.Round():
                digits = node.args.get("decimals")
                return exp.Anonymous(this="round", expressions=[self._exact(node.this), self._digits(digits)])
            case exp.Floor() | exp.Ceil() if node.args.get("decimals") is not None:
                raise self._refused(f"{node.key} takes a number alone: write {node.key}(x * 100) / 100")
            case exp.Concat() | exp.DPipe():
                parts = node.expressions if isinstance(node, exp.Concat) else [node.this, node.expression]
                return exp.Paren(this=exp.Var(this=" || ".join(_sql(self._call("as_text", part)) for part in parts)))
            case exp.Upper() | exp.Lower():
                # Which letters belong together, the database's language says; how they compare, their bytes do.
                return exp.Var(this=f'({node.key}(({_sql(node.this)}) COLLATE "default") COLLATE "C")')
            case exp.Like():
                self._check_pattern(node.expression)
            case exp.AtTimeZone():
                zone = node.args["zone"]
                if not self._is_quoted(zone):
                    raise self._refused("a time zone stands in quotes: 'Europe/Rome'")
                calendar("day", zone.name)
        return node

    def _column(self, node: Any) -> Any:
        name = self._known.get(node.name.lower())
        if name is None or node.args.get("table") is not None:
            raise self._refused(
                f"{shown(node.sql('spark'))} is no column of the window; it has {', '.join(self._known.values())}"
            )
        self._found.add(name)
        return self._exp.Var(this="nullif({key}, '')" if name == "key" else f"{{{name}}}")

    def _literal(self, node: Any) -> Any:
        if not node.is_string:
            if abs(Decimal(node.name).adjusted()) > 300:
                raise self._refused(f"{node.name[:20]} is no number that there is room for")
            return node
        problem = text_problem(node.name)
        if problem is not None:
            raise self._refused(f"a text in it {problem}: leave that out")
        if not set(node.name) & set("{}"):
            return node
        # A name in braces would be filled in.
        quoted = re.sub(r"[{}\\']", lambda found: f"\\x{ord(found[0]):02x}", node.name)
        return self._exp.Var(this=f"E'{quoted}'")

    def _check_pattern(self, pattern: Any) -> None:
        """One that ends with a sign that makes the next one plain would be an error for every text."""
        if not self._is_quoted(pattern) or re.search(r"(?<!\\)(\\\\)*\\$", pattern.name):
            raise self._refused("LIKE takes a pattern in quotes, such as 'a%', which does not end with a \\")

    def _digits(self, digits: Any) -> Any:
        try:
            return _number(self._exp, 0 if digits is None else int(digits.sql("spark")))
        except ValueError:
            raise self._refused("round takes how many digits as a number: round(x, 2)") from None

    def _call(self, function: str, *arguments: Any) -> Any:
        """A function of Penstock's in the database; of text in quotes it would not know that it is text."""
        first = arguments[0].unnest()
        if self._is_quoted(first) or isinstance(first, self._exp.Null):
            arguments = (self._exp.Var(this=f"{_sql(first)}::text"), *arguments[1:])
        return self._exp.Anonymous(this=f"penstock.{function}", expressions=[each.copy() for each in arguments])

    def _is_quoted(self, node: Any) -> bool:
        """Whether it is text in quotes."""
        if isinstance(node, self._exp.Literal):
            return bool(node.is_string)
        return isinstance(node, self._exp.Var) and node.name.startswith("E'")

    def _exact(self, node: Any, *, whole: bool = False) -> Any:
        return self._call("as_number", node, self._exp.Boolean(this=whole))

    def _cast(self, node: Any) -> Any:
        exp, kind = self._exp, node.to
        if isinstance(node.parent, exp.AtTimeZone):
            return node.this  # from_utc_timestamp(t, ...): t is a moment already
        name = kind.this.name
        sizes = [part.name for part in kind.expressions]
        match name:
            case "SMALLINT" | "INT" | "BIGINT":
                return self._call("as_whole", self._exact(node.this, whole=True), _number(exp, _WHOLE[name]))
            case "DECIMAL":
                digits = int(sizes[0]) if sizes else 10
                after = int(sizes[1]) if len(sizes) > 1 else 0
                if not 0 <= after <= digits <= 38:
                    raise self._refused(f"{kind.sql('spark')} is no type: write DECIMAL(18, 2), 38 digits at the most")
                return self._call("as_decimal", self._exact(node.this), _number(exp, digits), _number(exp, after))
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
        raise self._refused(
            f"{kind.sql('spark')} is no type for a closed window; there are SMALLINT, INT, BIGINT, DECIMAL(18, 2), "
            "DOUBLE, STRING, BOOLEAN, DATE and TIMESTAMP"
        )

    def _double(self, whole: Any) -> bool:
        """Make what is computed of doubles exact inside, and a double outside; says whether all of it is that."""
        exp = self._exp
        outermost = [node for node in whole.find_all(*self._arithmetic) if not node.find_ancestor(*self._arithmetic)]
        is_double = False
        for node in outermost:
            calls = [call for call in node.find_all(exp.Anonymous) if call.name == "penstock.as_double"]
            if not calls and not any(part.name in self._doubles for part in node.find_all(exp.Var)):
                continue
            for call in calls:
                call.replace(self._exact(call))
            is_double = is_double or whole.this.unnest() is node
            node.replace(self._call("as_double", self._exact(node)))
        return is_double

    def _struct(self, node: Any) -> str:
        """The span of a window, as an object."""
        exp = self._exp
        pairs = []
        for part in node.expressions:
            name = part.this.name if isinstance(part, exp.PropertyEQ) else part.alias
            value = part.expression if isinstance(part, exp.PropertyEQ) else part.this
            pairs.append(f"{_sql(self._literal(exp.Literal.string(name)))}, {_sql(value)}")
        return f"json_build_object({', '.join(pairs)})"


def _sql(node: Any) -> str:
    return str(node.sql("postgres", normalize_functions=False))


def _number(exp: Any, value: int | str) -> Any:
    return exp.Literal.number(value)


def _allowed(exp: Any) -> tuple[Any, ...]:
    return (
        *(exp.Column, exp.Identifier, exp.Literal, exp.Boolean, exp.Null, exp.Paren, exp.Neg),
        *(exp.Add, exp.Sub, exp.Mul, exp.Div, exp.Mod, exp.And, exp.Or, exp.Not),
        *(exp.EQ, exp.NEQ, exp.GT, exp.GTE, exp.LT, exp.LTE, exp.Between, exp.In, exp.Is, exp.Like),
        *(exp.Case, exp.If, exp.Coalesce, exp.Nullif, exp.Abs, exp.Round, exp.Floor, exp.Ceil, exp.Greatest, exp.Least),
        *(exp.Concat, exp.DPipe, exp.Upper, exp.Lower, exp.Cast, exp.TryCast, exp.DataType, exp.DataTypeParam),
        *(exp.Struct, exp.PropertyEQ, exp.Alias, exp.AtTimeZone),
    )
