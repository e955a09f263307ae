"""A join of streams, as Spark runs it: each side read and prepared by itself, then both paired."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from penstock.core import json
from penstock.engine.compile import exact
from penstock.engine.compile.aggregate_columns import as_text
from penstock.engine.compile.compile import Split, apply_steps, split
from penstock.engine.compile.schema_inference import (
    arrow_type,
    declared_types,
    resolve_fields,
    resolve_stages,
    taken_for_text,
    whole_events,
)
from penstock.engine.joins.matcher import EVENT, Alone, Pairs
from penstock.engine.joins.state import WaitingTable
from penstock.engine.reference_tables import ReferenceTables
from penstock.engine.worker.json_columns import infer
from penstock.engine.worker.json_values import plain
from penstock.engine.worker.read_config import ABOUT, DATA, META, NO_FIELDS, Reading
from penstock.engine.worker.reader import Reader, columns_of
from penstock.engine.worker.udf_stage import Stage
from penstock.log.event import Event
from penstock.stream.definition import Definition
from penstock.stream.joins import Join
from penstock.stream.sql.tokens import tokens_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SIDES = ("left", "right")
#: The reports of the right's stages go by numbers from here on, so that they are not taken for the left's.
_RIGHT_STAGES = 500


@dataclass(frozen=True)
class Side:
    """One side of a join."""

    number: int
    cut: Split
    reading: Reading
    references: ReferenceTables
    sample: Sequence[Event]

    def events(self, frame: DataFrame) -> DataFrame:
        """What the reader gives, after the side's own steps, ready to be paired."""
        from pyspark.sql import functions as F
        from pyspark.sql.pandas.types import from_arrow_schema

        frame = apply_steps(frame, self.cut.rest, self.references)
        frame = frame.withColumn("__k", self._key(frame)).withColumn("__side", F.lit(self.number))
        columns = [name for name in EVENT.names if name != "__line"]
        if self.is_whole and not self._added(frame):
            return frame.select(*columns, F.col(DATA).alias("__line"))
        data = [DATA] if self.is_whole else []
        fields = [f"`{name}`" for name in (self._added(frame) if self.is_whole else self._made(frame))]
        encode = _Lines(tuple(columns), self.is_whole)
        return frame.select(*columns, *data, *fields).mapInArrow(encode, from_arrow_schema(EVENT))

    def types(self, frame: DataFrame, wanted: frozenset[str] | None, known: Collection[str]) -> dict[str, str]:
        """The types of the fields that are looked into after the join, as Spark spells them; None wants all of them.

        Those that are known have been found before.
        """
        from pyspark.sql.pandas.types import from_arrow_type

        types = self._made_types(frame)
        if self.is_whole:
            types = {**self._declared(), **types}
            if wanted is None or not wanted <= {*types, *known}:
                lines = whole_events(self.cut, frame, self.references, self.sample)
                found = infer(lines, sorted(_names(lines) if wanted is None else wanted))
                guessed = {
                    name: from_arrow_type(kind).simpleString() for name, kind in found.items() if kind is not None
                }
                types = {**guessed, **types}
            for name in sorted(() if wanted is None else wanted - {*types, *known}):
                taken_for_text(name)
                types[name] = "string"
        return {name: kind for name, kind in types.items() if wanted is None or name in wanted}

    def looking_into(self, frame: DataFrame, types: dict[str, str]) -> Side:
        """The side, with fields that the pairs are asked for looked at while it is read.

        What does not fit is a dead letter then, and not a pair that no cycle survives, which may be hours later.
        """
        if not self.is_whole:
            return self
        spark = frame.sparkSession
        others = {*self.given.names, *self._made_types(frame)}
        read = {name: _read_as(spark, name, kind) for name, kind in types.items() if name not in others}
        fields = [(name, kind) for name, kind in read.items() if kind is not None]
        if not self._stages:
            return dataclasses.replace(self, reading=dataclasses.replace(self.reading, looked_into=pa.schema(fields)))
        last = dataclasses.replace(self._stages[-1], looked_into=pa.schema(fields))
        rest = tuple(last if step is self._stages[-1] else step for step in self.cut.rest)
        return dataclasses.replace(self, cut=dataclasses.replace(self.cut, rest=rest))

    @property
    def is_whole(self) -> bool:
        """Whether events wait as they are, and not as columns that something made."""
        return self.cut.keeps_event

    @property
    def given(self) -> pa.Schema:
        """What Spark gets of each event that is no column of a table."""
        return self._stages[-1].fields or NO_FIELDS if self._stages else self.reading.fields

    @property
    def _stages(self) -> list[Stage]:
        return [step for step in self.cut.rest if isinstance(step, Stage)]

    def _declared(self) -> dict[str, str]:
        """The types that were given with the queue and the side's functions."""
        of_stages = chain.from_iterable(stage.steps for stage in self._stages)
        return declared_types(self.cut.stream, chain(self.cut.first, of_stages))

    def _made_types(self, frame: DataFrame) -> dict[str, str]:
        """What the side's own steps make, beside the event or in place of it."""
        after = apply_steps(frame, self.cut.rest, self.references)
        made = self._added(after) if self.is_whole else self._made(after)
        return {name: after.schema[name].dataType.simpleString() for name in made}

    def _made(self, frame: DataFrame) -> list[str]:
        hidden = {*META.names, DATA, ABOUT, "__k", "__side"}
        return [name for name in frame.columns if name not in hidden]

    def _added(self, frame: DataFrame) -> list[str]:
        """What was looked up beside the event, and is no copy of one of its fields."""
        return [name for name in self._made(frame) if name not in self.given.names]

    def _key(self, frame: DataFrame) -> Any:
        """What pairs have in common: a list in JSON, or null if a part of it is."""
        from pyspark.sql import functions as F

        keys: Any = self.cut.stream.key
        parts = [exact.column(frame.sparkSession, key) for key in keys]
        named = frame.select(*[part.alias(f"k{place}") for place, part in enumerate(parts)]).schema
        texts = [as_text(part, f.dataType.simpleString()) for part, f in zip(parts, named, strict=True)]
        whole = F.lit(True)
        for part in parts:
            whole = whole & part.isNotNull()
        return F.when(whole, F.to_json(F.array(*texts)))


@dataclass(frozen=True)
class _Lines:
    """What Spark calls in a worker: columns as the JSON that waits."""

    columns: tuple[str, ...]
    is_whole: bool

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            fields = [name for name in batch.schema.names if name not in (*self.columns, DATA)]
            rows = [plain(row) for row in batch.select(fields).to_pylist()] if fields else [{}] * batch.num_rows
            if self.is_whole:
                events = [json.decode(line) for line in batch.column(DATA).to_pylist()]
                rows = [{**e, **row} if isinstance(e, dict) else e for e, row in zip(events, rows, strict=True)]
            lines = pa.array([json.encode(row).decode() for row in rows], pa.string())
            arrays = [lines if name == "__line" else batch.column(name) for name in EVENT.names]
            yield pa.RecordBatch.from_arrays(arrays, schema=EVENT)


class PairReader:
    """Gives the pairs of whichever cycle a job is for, as a reader gives events."""

    def __init__(self, sides: Sequence[Side], pairs: Pairs, casts: dict[str, dict[str, str]]) -> None:
        self.waiting = pairs.table
        self.reading = pairs.reading
        self.sides = sides
        self._pairs = pairs
        self._casts = casts

    def frame(self, spark: SparkSession, tasks: int) -> DataFrame:
        """The pairs of a cycle whose events so many tasks read."""
        read = [side.events(Reader(side.reading).frame(spark, tasks)) for side in self.sides]
        return self._paired(read, single=tasks == 1)

    def of_samples(self, spark: SparkSession) -> DataFrame:
        """The pairs among samples, for who only looks."""
        found = []
        for side in self.sides:
            table = columns_of(spark, side.reading, side.sample)
            found.append(side.events(spark.createDataFrame(table)))
        return self._paired(found, single=True)

    def _paired(self, sides: Sequence[DataFrame], *, single: bool) -> DataFrame:
        from pyspark.sql.pandas.types import from_arrow_schema

        events = sides[0].unionByName(sides[1])
        events = events.coalesce(1) if single else events.repartition("__k")
        ordered = events.sortWithinPartitions("__k", "__time", "__side", "__partition", "__offset", "__line")
        schema = from_arrow_schema(self._pairs.schema)
        made = ordered.mapInArrow(self._pairs, schema)
        if self._pairs.table.sends_alone:
            made = made.union(made.sparkSession.range(0, 1, 1, 1).mapInArrow(Alone(self._pairs), schema))
        return self._typed(made)

    def _typed(self, frame: DataFrame) -> DataFrame:
        """The fields with types that JSON does not have; null, where one is none of its type."""
        from pyspark.sql import functions as F

        for side, casts in self._casts.items():
            if not casts or side not in frame.columns:
                continue
            kind: Any = frame.schema[side].dataType
            parts = [
                F.col(f"{side}.`{name}`").try_cast(casts[name]).alias(name)
                if name in casts
                else F.col(f"{side}.`{name}`").alias(name)
                for name in kind.names
            ]
            frame = frame.withColumn(side, F.when(F.col(side).isNotNull(), F.struct(*parts)))
        return frame


class AllReferences:
    """The reference tables of a join: those of both sides, and those of what comes after."""

    def __init__(self, main: ReferenceTables, sides: Sequence[ReferenceTables]) -> None:
        self._main = main
        self._sides = sides

    @property
    def reading(self) -> Reading:
        """How the workers read."""
        return self._main.reading

    def frame(self, spark: SparkSession, name: str, table: Any) -> DataFrame:
        """A table that a step after the join names."""
        return self._main.frame(spark, name, table)

    def forget_stale(self) -> bool:
        """Forget the tables that are to be read again, and say whether there are any."""
        return any([tables.forget_stale() for tables in (self._main, *self._sides)])

    def close(self) -> None:
        """Let go of their connections."""
        for tables in (self._main, *self._sides):
            tables.close()


def side_streams(stream: Definition, join: Join) -> tuple[Definition, Definition]:
    """Both sides as streams of their own, with the key and the time that the join gives them."""
    made = []
    for side, on, time in ((join.left, join.left_on, join.left_time), (join.right, join.right_on, join.right_time)):
        made.append(dataclasses.replace(side, key=on, time=dataclasses.replace(stream.time, event_time=time)))
    return made[0], made[1]


def wanted_of(cut: Split, side: str, given: Sequence[str]) -> frozenset[str] | None:
    """Which fields of a side the steps after the join look into; None: all of it.

    To know whether it is there, those do that are given in any case.
    """
    from penstock.stream.expression import is_python

    found: set[str] = set()
    texts: list[Any] = [cut.stream.sink_key]
    for step in cut.stream.steps:
        texts += [getattr(step, name, None) for name in ("expression", "condition", "query")]
        texts += list(getattr(step, "on", ()))
    for text in texts:
        if text is None or is_python(text):
            continue
        tokens = tokens_of(str(text))
        for place, token in enumerate(tokens):
            if not token.is_name or token.name.lower() != side or (place and tokens[place - 1].text == "."):
                continue
            inside = tokens[place + 1 : place + 3]
            if len(inside) == 2 and inside[0].text == "." and inside[1].is_name:
                found.add(inside[1].name)
            elif given and [t.word for t in tokens[place + 1 : place + 4] if t.word != "not"][:2] == ["is", "null"]:
                found.update(given)
            elif not inside or inside[0].text != "(":
                return None
    return frozenset(found)


def prepare_sides(
    spark: SparkSession,
    stream: Definition,
    cut: Split,
    base: Reading,
    samples: Sequence[Sequence[Event]],
    known: dict[str, str],
    queues: Sequence[dict[int, str]],
) -> tuple[PairReader, AllReferences, dict[str, str]]:
    """What reads and pairs, the reference tables, and the types that were found, to be remembered."""
    from pyspark.sql.pandas.types import from_arrow_schema

    join = stream.joined
    assert join is not None  # noqa: S101 - the caller looked
    sides: list[Side] = []
    remembered: dict[str, str] = {}
    fields: list[pa.Field] = []
    casts: dict[str, dict[str, str]] = {}
    for number, side_stream in enumerate(side_streams(stream, join)):
        name = SIDES[number]
        side_cut = split(side_stream)
        mine = {key.removeprefix(f"{name}."): kind for key, kind in known.items() if key.startswith(f"{name}.")}
        of_reader = {key: kind for key, kind in mine.items() if not key.startswith("*.")}
        schema, types = resolve_fields(spark, side_cut, of_reader, samples[number])
        reading = dataclasses.replace(
            base,
            fields=schema,
            queues=queues[number],
            event_time=side_stream.time.event_time,
            lateness_us=stream.time.lateness_us,
            steps=side_cut.first,
            with_data=side_cut.with_data,
            number=_RIGHT_STAGES * number,
            with_about=side_cut.with_about,
        )
        references = ReferenceTables(base.conninfo, reading)
        empty = spark.createDataFrame([], from_arrow_schema(reading.schema))
        side_cut, of_stages = resolve_stages(side_cut, empty, references, of_reader, samples[number])
        types.update(of_stages)
        side_cut = _numbered(side_cut, _RIGHT_STAGES * number)
        side = Side(number, side_cut, reading, references, samples[number])
        wanted = wanted_of(cut, name, [n for n in side.given.names if not n.startswith("__")] if side.is_whole else [])
        before = {key.removeprefix("*."): kind for key, kind in mine.items() if key.startswith("*.")}
        shown = {**side.types(empty, wanted, before), **before}
        if wanted is not None:
            shown = {key: kind for key, kind in shown.items() if key in wanted}
        sides.append(side.looking_into(empty, shown))
        if samples[number]:
            remembered.update({f"{name}.{key}": kind for key, kind in types.items()})
            remembered.update({f"{name}.*.{key}": kind for key, kind in shown.items()})
        if shown:
            casts[name] = {key: kind for key, kind in shown.items() if not _is_json(kind)}
            parts = [
                (key, arrow_type(spark, key, kind) if _is_json(kind) else pa.string()) for key, kind in shown.items()
            ]
            fields.append(pa.field(name, pa.struct(parts)))
    base = dataclasses.replace(base, fields=pa.schema(fields))
    waiting = WaitingTable(base.query, join.before_us, join.after_us, join.how == "left")
    pairs = Pairs(base, waiting, base.fields, cut.with_data)
    tables = AllReferences(ReferenceTables(base.conninfo, base), [side.references for side in sides])
    return PairReader(sides, pairs, casts), tables, remembered


def _numbered(cut: Split, by: int) -> Split:
    """The stages of a side, under numbers of its own."""
    rest = [dataclasses.replace(s, number=s.number + by) if isinstance(s, Stage) else s for s in cut.rest]
    return dataclasses.replace(cut, rest=tuple(rest))


def _read_as(spark: SparkSession, name: str, kind: str) -> pa.DataType | None:
    """The type that a field is read with only to see whether it fits; None: that is not seen in JSON."""
    if _is_json(kind) or kind in ("timestamp", "timestamp_ntz"):
        return arrow_type(spark, name, kind)
    return pa.string() if kind in ("date", "binary") else None


def _is_json(kind: str) -> bool:
    """Whether Arrow reads values of the type out of JSON as they are written."""
    return not any(part in kind for part in ("timestamp", "date", "binary", "interval", "map"))


def _names(lines: Sequence[bytes]) -> set[str]:
    found: set[str] = set()
    for line in lines:
        value = json.decode(line)
        if isinstance(value, dict):
            found |= value.keys()
    return found
