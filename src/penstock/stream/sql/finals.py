"""SQL over closed windows: what PostgreSQL computes of a window's aggregates when it shows it or sends it on."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from penstock.core.errors import ConfigurationError, InvalidRequest, shown

#: One, with so many digits that a quotient of it has the 28 of Python's Decimal.
_ONE = f"1.{40 * '0'}"
#: What every window has beside its aggregates.
OF_ALL = ("key", "window_start", "window_end")


@dataclass(frozen=True)
class Final:
    """An expression for PostgreSQL, with ``{name}`` for each column of the window that it mentions."""

    text: str
    names: frozenset[str]
    #: Whether it is computed of numbers, and so may have zeros at its end.
    is_number: bool
    #: Whether it divides, and so may have more digits than anybody wants.
    divides: bool


def final_of(text: str, names: Collection[str]) -> Final:
    """The expression, if it is made of what PostgreSQL and Spark understand in the same way."""
    try:
        import sqlglot
        from sqlglot import exp
    except ImportError:
        raise ConfigurationError("select and having need sqlglot: pip install 'penstock[spark]'") from None
    try:
        parsed: Any = sqlglot.parse_one(text, dialect="spark")
    except sqlglot.errors.SqlglotError:
        raise InvalidRequest(f"{shown(text)} cannot be read: write it like 'total / n'") from None
    known = {name.lower(): name for name in (*OF_ALL, *names)}
    found: set[str] = set()

    def name_columns(node: Any) -> Any:
        if not isinstance(node, _allowed(exp)):
            raise InvalidRequest(
                f"{shown(text)}: {node.sql('spark')[:60]} cannot be computed of a closed window; there are arithmetic, "
                "comparisons, CASE, CAST, coalesce, nullif, abs, round, floor, ceil, greatest, least, concat, upper "
                "and lower. Compute it in a second stream that reads the queue"
            )
        if not isinstance(node, exp.Column):
            return node
        name = known.get(node.name.lower())
        if name is None or node.args.get("table") is not None:
            raise InvalidRequest(
                f"{shown(text)}: {node.sql('spark')!r} is no column of the window; it has {', '.join(known.values())}"
            )
        found.add(name)
        return exp.Placeholder(this=f"__{name}__")

    changed = parsed.transform(name_columns)
    quotients = list(changed.find_all(exp.Div))
    for node in quotients:
        # Of whole numbers too, it is a fraction.
        node.set("typed", True)
        node.set("this", exp.Paren(this=exp.Mul(this=exp.paren(node.this), expression=exp.Literal.number(_ONE))))
    for node in changed.find_all(exp.AtTimeZone):
        node.set("this", node.this.unalias().this if isinstance(node.this, exp.Cast) else node.this)
    made = _struct(changed, exp) if isinstance(changed, exp.Struct) else changed.sql("postgres")
    for name in found:
        filled = "nullif({key}, '')" if name == "key" else f"{{{name}}}"
        made = made.replace(f"%(__{name}__)s", filled)
    is_number = isinstance(parsed.unnest(), exp.Add | exp.Sub | exp.Mul | exp.Div | exp.Mod)
    return Final(made, frozenset(found), is_number, bool(quotients))


def _struct(node: Any, exp: Any) -> str:
    """The span of a window, as an object."""
    pairs = []
    for part in node.expressions:
        name = part.this.name if isinstance(part, exp.PropertyEQ) else part.alias
        value = part.expression if isinstance(part, exp.PropertyEQ) else part.this
        pairs.append(f"'{name}', {value.sql('postgres')}")
    return f"json_build_object({', '.join(pairs)})"


def _allowed(exp: Any) -> tuple[Any, ...]:
    return (
        *(exp.Column, exp.Identifier, exp.Literal, exp.Boolean, exp.Null, exp.Paren, exp.Neg, exp.Placeholder),
        *(exp.Add, exp.Sub, exp.Mul, exp.Div, exp.Mod, exp.And, exp.Or, exp.Not),
        *(exp.EQ, exp.NEQ, exp.GT, exp.GTE, exp.LT, exp.LTE, exp.Between, exp.In, exp.Is, exp.Like),
        *(exp.Case, exp.If, exp.Coalesce, exp.Nullif, exp.Abs, exp.Round, exp.Floor, exp.Ceil, exp.Greatest, exp.Least),
        *(exp.Concat, exp.DPipe, exp.Upper, exp.Lower, exp.Cast, exp.TryCast, exp.DataType, exp.DataTypeParam),
        *(exp.Struct, exp.PropertyEQ, exp.Alias, exp.AtTimeZone, exp.Var),
    )
