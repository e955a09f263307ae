"""Aggregates as columns: what Spark computes of a cycle's events, and how PostgreSQL adds it to what is there.

Each aggregate keeps one column or several. Spark gives a partial of each for every key and window of a cycle;
PostgreSQL merges it into the row of the window, and the final value is an SQL expression over the merged columns.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from penstock.core.errors import InvalidRequest
from penstock.stream.aggregates import Aggregate
from penstock.stream.sql.window_outputs import Final, final_of
from penstock.stream.validation import TAKEN

if TYPE_CHECKING:
    from pyspark.sql import Column

    from penstock.stream.definition import Definition

#: Where an event stands among all: by time, then by partition and offset.
ORDER = ("__time", "__partition", "__offset")
_LOWEST = 1024
#: What is said of a window's span, which the views show anyway.
_SPAN = re.compile(r"\bwindow_(start|end)\b")


@dataclass(frozen=True, slots=True)
class Kept:
    """One column that an aggregate keeps."""

    name: str
    #: Its type in the table, and in the partials that are copied in.
    pg_type: str
    #: What Spark computes.
    partial: Column
    #: How two values become one, with ``{s}`` for the one that is kept and ``{p}`` for the partial.
    merge: str
    #: How the partial, which is copied as text, becomes a value; ``{}`` stands for it.
    read: str = "{}"
    copied_as: str = ""

    @property
    def staged_type(self) -> str:
        """The type it is copied in as."""
        return self.copied_as or self.pg_type


@dataclass(frozen=True, slots=True)
class ResultColumn:
    """An aggregate, ready to run: what is kept and what is shown."""

    name: str
    pg_type: str
    kept: tuple[Kept, ...]
    #: The value that is shown: SQL over the kept columns, each written ``{column}``.
    final: str


_SUMMED = "CASE WHEN {s} IS NULL THEN {p} WHEN {p} IS NULL THEN {s} ELSE {s} + {p} END"
#: The same of doubles, of which two may have no room for their sum.
_SUMMED_DOUBLE = (
    "CASE WHEN {s} IS NULL THEN {p} WHEN {p} IS NULL THEN {s} "
    "WHEN abs({s}) < 8e307 AND abs({p}) < 8e307 THEN {s} + {p} ELSE penstock.add_doubles({s}, {p}) END"
)
_SCALARS = {"string": "text", "boolean": "boolean", "double": "double precision", "float": "double precision"}


def pg_type(spark_type: str) -> str:
    """The PostgreSQL type that shows a Spark type."""
    if spark_type in _SCALARS:
        return _SCALARS[spark_type]
    if spark_type in ("tinyint", "smallint", "int", "bigint"):
        return "bigint"
    if spark_type.startswith("decimal"):
        return "numeric"
    if spark_type in ("timestamp", "timestamp_ltz"):
        return "timestamptz"
    if spark_type == "date":
        return "date"
    return "jsonb"


def result_columns(
    aggregates: Mapping[str, Aggregate], arguments: Mapping[str, tuple[Column, str]]
) -> list[ResultColumn]:
    """The columns of a query's result; ``arguments`` has each aggregate's argument as a Column and its Spark type."""
    made = []
    for place, (name, aggregate) in enumerate(aggregates.items()):
        value, kind = arguments.get(name, (None, ""))
        made.append(_MAKERS[aggregate.kind](name, f"a{place}", value, kind, aggregate))
    return made


@dataclass(frozen=True, slots=True)
class Shape:
    """What a closed window is sent on as, and whether it is: SQL over the kept columns, each written ``{column}``."""

    fields: tuple[tuple[str, str], ...] = ()
    condition: str | None = None


def shape_of(stream: Definition, columns: list[ResultColumn]) -> Shape:
    """The fields that a stream selects of its windows. Those that are computed become columns of their own."""
    made = {column.name: column for column in columns}
    doubles = [column.name for column in columns if column.pg_type == "double precision"]

    def shown(text: str) -> str:
        found = final_of(text, stream.aggregates, doubles)
        filled = re.sub(r"\{(\w+)\}", lambda m: _mentioned(made[m[1]], found) if m[1] in made else m[0], found.text)
        if not found.is_exact:
            return filled
        return f"penstock.mean({filled}, 1)" if found.divides else f"trim_scale({filled})"

    fields = [(name, shown(text)) for name, text in stream.outputs.items()]
    for name, final in fields:
        if name in made and final != f"({made[name].final})":
            # It is computed under the name of an aggregate: what is kept stays, and is shown as it is sent on.
            columns[columns.index(made[name])] = dataclasses.replace(made[name], final=final)
        elif name not in made and name not in TAKEN and not _SPAN.search(stream.outputs[name]):
            columns.append(ResultColumn(name, "jsonb", (), final))
    return Shape(tuple(fields), None if stream.condition is None else shown(stream.condition))


def _mentioned(column: ResultColumn, found: Final) -> str:
    """A column inside an expression: numbers as those that have room for every result, text compared by its bytes."""
    if found.is_column:
        return f"({column.final})"
    match column.pg_type:
        case "text":
            return f'(({column.final}) COLLATE "C")'
        case "bigint" if found.computes:
            return f"({column.final})::numeric"
        case "double precision" if found.computes:
            return f"({column.final})::text::numeric"
        case _:
            return f"({column.final})"


def _count(name: str, slot: str, value: Any, kind: str, aggregate: Aggregate) -> ResultColumn:
    from pyspark.sql import functions as F

    kept = Kept(slot, "bigint", F.count(F.lit(1) if value is None else value), "{s} + {p}")
    return ResultColumn(name, "bigint", (kept,), f"{{{slot}}}")


def _count_if(name: str, slot: str, value: Any, kind: str, aggregate: Aggregate) -> ResultColumn:
    from pyspark.sql import functions as F

    return ResultColumn(name, "bigint", (Kept(slot, "bigint", F.count_if(value), "{s} + {p}"),), f"{{{slot}}}")


def _number(name: str, kind: str, aggregate: Aggregate) -> str:
    shown = pg_type(kind)
    if shown not in ("bigint", "numeric", "double precision"):
        raise InvalidRequest(
            f"aggregate {name!r}: {aggregate.describe()} needs numbers, and its argument is of type {kind}; "
            "cast it, or declare the field's type with Stream.from_(..., schema={...})"
        )
    return shown


def _sum(name: str, slot: str, value: Any, kind: str, aggregate: Aggregate) -> ResultColumn:
    from pyspark.sql import functions as F

    shown = _number(name, kind, aggregate)
    if shown == "double precision":
        return ResultColumn(name, shown, (Kept(slot, shown, F.sum(value), _SUMMED_DOUBLE),), f"{{{slot}}}")
    exact = F.sum(value.cast("decimal(38,0)") if shown == "bigint" else value)
    return ResultColumn(name, "numeric", (Kept(slot, "numeric", exact, _SUMMED),), f"trim_scale({{{slot}}})")


def _avg(name: str, slot: str, value: Any, kind: str, aggregate: Aggregate) -> ResultColumn:
    from pyspark.sql import functions as F

    total = _sum(name, slot, value, kind, aggregate)
    events = Kept(f"{slot}n", "bigint", F.count(value), "{s} + {p}")
    if total.pg_type == "double precision":
        # A double has no room for a part of the smallest.
        final = f"CASE WHEN abs({{{slot}}}) > 1e-300 THEN {{{slot}}} / {{{slot}n}} WHEN {{{slot}n}} > 0 THEN 0 END"
    else:
        final = f"penstock.mean({{{slot}}}, {{{slot}n}})"
    return ResultColumn(name, total.pg_type, (*total.kept, events), final)


def _extreme(function: str) -> Callable[..., ResultColumn]:
    def make(name: str, slot: str, value: Any, kind: str, aggregate: Aggregate) -> ResultColumn:
        from pyspark.sql import functions as F

        shown = pg_type(kind)
        if shown == "jsonb":
            raise InvalidRequest(f"aggregate {name!r}: {aggregate.describe()} cannot compare values of type {kind}")
        merge = "greatest({s}, {p})" if function == "max" else "least({s}, {p})"
        # Text is compared as Spark does it, byte by byte, whatever the database's language.
        column = 'text COLLATE "C"' if shown == "text" else shown
        final = f"trim_scale({{{slot}}})" if shown == "numeric" else f"{{{slot}}}"
        kept = Kept(slot, column, getattr(F, function)(value), merge, copied_as=shown)
        return ResultColumn(name, shown, (kept,), final)

    return make


def _stddev(name: str, slot: str, value: Any, kind: str, aggregate: Aggregate) -> ResultColumn:
    from pyspark.sql import functions as F

    _number(name, kind, aggregate)
    number = value.cast("double")
    events = F.count(number)
    spread = F.coalesce(F.var_pop(number) * events, F.lit(0.0))
    moments = F.concat_ws(",", events.cast("double"), F.coalesce(F.avg(number), F.lit(0.0)), spread)
    kept = Kept(
        slot,
        "double precision[]",
        moments,
        "penstock.join_moments({s}, {p})",
        read="('{{' || {} || '}}')::double precision[]",
        copied_as="text",
    )
    root = f"CASE WHEN {{{slot}}}[3] > 1e-300 THEN sqrt({{{slot}}}[3] / ({{{slot}}}[1] - 1)) ELSE 0 END"
    final = f"CASE WHEN {{{slot}}}[1] > 1 THEN {root} END"
    return ResultColumn(name, "double precision", (kept,), final)


def _edge(function: str) -> Callable[..., ResultColumn]:
    def make(name: str, slot: str, value: Any, kind: str, aggregate: Aggregate) -> ResultColumn:
        from pyspark.sql import functions as F

        shown = pg_type(kind)
        plain = F.to_json(value) if shown == "jsonb" else value
        best = (F.max if function == "last" else F.min)(F.struct(*ORDER, plain.alias("v")))
        sign = ">" if function == "last" else "<"
        merge = f"CASE WHEN {{p:o}} {sign} {{s:o}} THEN {{p}} ELSE {{s}} END"
        value_kept = Kept(slot, shown, best["v"], merge)
        order = [Kept(f"{slot}_{i}", "bigint", best[column], merge) for i, column in enumerate(ORDER)]
        final = f"trim_scale({{{slot}}})" if shown == "numeric" else f"{{{slot}}}"
        return ResultColumn(name, shown, (value_kept, *order), final)

    return make


def _count_distinct(name: str, slot: str, value: Any, kind: str, aggregate: Aggregate) -> ResultColumn:
    from pyspark.sql import functions as F

    kept = Kept(
        slot,
        "text[]",
        F.to_json(F.collect_set(as_text(value, kind))),
        "penstock.set_union({s}, {p})",
        read="ARRAY(SELECT jsonb_array_elements_text({}::jsonb))",
        copied_as="text",
    )
    return ResultColumn(name, "bigint", (kept,), f"coalesce(cardinality({{{slot}}}), 0)::bigint")


def _approx_distinct(name: str, slot: str, value: Any, kind: str, aggregate: Aggregate) -> ResultColumn:
    from pyspark.sql import functions as F

    hashed = F.when(value.isNotNull(), F.xxhash64(as_text(value, kind)))
    hashes = F.slice(F.array_sort(F.collect_set(hashed)), 1, _LOWEST)
    kept = Kept(
        slot,
        "bigint[]",
        F.concat_ws(",", hashes.cast("array<string>")),
        "penstock.lowest({s}, {p})",
        read="('{{' || {} || '}}')::bigint[]",
        copied_as="text",
    )
    return ResultColumn(name, "bigint", (kept,), f"penstock.distinct_estimate({{{slot}}})")


def _listed(values: Column) -> Column:
    from pyspark.sql import functions as F

    return F.to_json(F.collect_list(values))


#: A list of values, counted: what a partial says of names or buckets.
_COUNTED = (
    "(SELECT coalesce(jsonb_object_agg(c.v, c.n), '{{}}') "
    "FROM (SELECT v, count(*) AS n FROM jsonb_array_elements_text({}::jsonb) AS v GROUP BY v) AS c)"
)


def _percentile(name: str, slot: str, value: Any, kind: str, aggregate: Aggregate) -> ResultColumn:
    from pyspark.sql import functions as F

    _number(name, kind, aggregate)
    number = value.cast("double")
    size = F.greatest(F.ceil(F.log(1.02, F.abs(number))) + 10_000, F.lit(1))
    bucket = F.when(number == 0, F.lit(0)).when(number > 0, size).otherwise(-size)
    kept = Kept(
        slot,
        "jsonb",
        _listed(F.when(number.isNotNull(), bucket.cast("int").cast("string"))),
        "penstock.add_counts({s}, {p})",
        read=_COUNTED,
        copied_as="text",
    )
    return ResultColumn(
        name, "double precision", (kept,), f"penstock.bucket_percentile({{{slot}}}, {aggregate.number})"
    )


def _top_k(name: str, slot: str, value: Any, kind: str, aggregate: Aggregate) -> ResultColumn:
    kept = Kept(
        slot,
        "jsonb",
        _listed(as_text(value, kind)),
        "penstock.add_counts({s}, {p})",
        read=_COUNTED,
        copied_as="text",
    )
    return ResultColumn(name, "jsonb", (kept,), f"penstock.top_counts({{{slot}}}, {int(aggregate.number or 10)})")


def as_text(value: Column, kind: str) -> Column:
    """A value of a Spark type as text: the same for values that are the same."""
    from pyspark.sql import functions as F

    if kind.startswith("decimal"):
        return _plain_decimal(value)
    return F.to_json(value) if pg_type(kind) == "jsonb" else value.cast("string")


def as_key(values: list[tuple[Column, str]]) -> Column:
    """One value as text, several as a list in JSON; null if one of them is null and there are several."""
    from pyspark.sql import functions as F

    texts = [as_text(value, kind) for value, kind in values]
    if len(texts) == 1:
        return texts[0]
    return F.to_json(F.array(*texts))


def key_apart(key: Column) -> Column:
    """A key that is not '', which stands for none: text of nothing but quotes has two of them more."""
    from pyspark.sql import functions as F

    quotes = F.lit('"')
    return F.when(F.btrim(key, quotes) == "", F.concat(key, quotes, quotes)).otherwise(key)


def _plain_decimal(value: Column) -> Column:
    """A decimal as text, without zeros at its end: 5 and 5.0 are one number."""
    from pyspark.sql import functions as F

    trimmed = F.regexp_replace(F.regexp_replace(value.cast("string"), r"(\.[0-9]*?)0+$", "$1"), r"\.$", "")
    return F.when(value == 0, F.lit("0")).otherwise(trimmed)


_MAKERS: dict[str, Callable[..., ResultColumn]] = {
    "count": _count,
    "count_if": _count_if,
    "sum": _sum,
    "avg": _avg,
    "min": _extreme("min"),
    "max": _extreme("max"),
    "stddev": _stddev,
    "first": _edge("first"),
    "last": _edge("last"),
    "count_distinct": _count_distinct,
    "approx_distinct": _approx_distinct,
    "percentile": _percentile,
    "top_k": _top_k,
}
