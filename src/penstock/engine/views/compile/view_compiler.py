"""Compiles the operators of a view to one Spark plan: changes of the sources in, changes of the result out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import DataType

from penstock.engine.state.exchange import exchange, with_empty_rows
from penstock.engine.state.operator_state import WEIGHT, StateConfig
from penstock.engine.state.runs import HASH
from penstock.engine.views.compile.aggregates import WindowedRows, compile_aggregate
from penstock.engine.views.compile.joins import compile_join
from penstock.engine.views.compile.reference_joins import compile_lookup
from penstock.engine.views.compile.spark_relation import (
    HiddenNames,
    SparkRelation,
    apply_function,
    arrow_schema,
    exchange_once,
    hash_of,
    nullable_fields,
    quoted,
)
from penstock.engine.views.compile.top_n import compile_top_n
from penstock.engine.views.compile.window_functions import compile_window_functions
from penstock.engine.views.operators.net_changes import SEQUENCE, NetChanges
from penstock.stream.views.view_plan import (
    Aggregate,
    Explode,
    Filter,
    Join,
    Operator,
    Project,
    QueueSource,
    ReferenceSource,
    TopN,
    UnionAll,
    ViewSource,
    WindowFunctions,
    inputs_of,
    is_reference,
    walk,
)

#: The expressions of system columns over the columns of the reader.
_SYSTEM_COLUMNS: dict[str, Callable[[], Column]] = {
    "_key": lambda: F.col("__key"),
    "_time": lambda: F.timestamp_micros("__time"),
    "_partition": lambda: F.col("__partition"),
    "_offset": lambda: F.col("__offset"),
}

#: The events of queues, the changes of views and the rows of reference tables, by name.
Frames: TypeAlias = Mapping[str, DataFrame]


@dataclass(frozen=True)
class PlanContext:
    """The context in which the operators of a plan are compiled."""

    state: StateConfig
    shards: int
    #: The number of tasks after an exchange, each of which has costs of its own; 0 for a small cycle, which is one
    #: task without a shuffle.
    tasks: int
    names: HiddenNames

    @property
    def is_single(self) -> bool:
        return not self.tasks

    @property
    def has_ttl(self) -> bool:
        return self.state.ttl_us > 0

    def state_of(self, operator: int, *, expires: bool) -> StateConfig:
        """The state of an operator. That of rows of events expires if the view has a time to live."""
        ttl_us = self.state.ttl_us if expires else 0
        return replace(self.state, operator=operator, shards=self.shards, ttl_us=ttl_us)

    def exchange(self, rows: DataFrame, *, expires: bool = False) -> DataFrame:
        """Bring the rows of a shard into one task, with a row for each shard that looks for groups that expire."""
        if expires and self.has_ttl and self.state.is_expiry:
            rows = with_empty_rows(rows, self.shards)
        return rows.coalesce(1) if self.is_single else exchange(rows, self.shards, self.tasks)


class ViewCompiler:
    """Compiles a plan for one cycle.

    Operators with state are numbered in the order in which they are compiled. Equal operators are one.
    """

    def __init__(
        self, context: PlanContext, frames: Frames, view_keys: Mapping[str, Sequence[str]] | None = None
    ) -> None:
        self._context = context
        self._frames = dict(frames)
        #: The key columns of each view.
        self._view_keys = view_keys or {}
        self._compiled: dict[Operator, SparkRelation] = {}
        #: The operators whose result is used more than once.
        self._shared: set[Operator] = set()
        #: The operators with state by number. A join with a condition has several numbers.
        self.stateful: dict[int, Operator] = {}

    def compile(self, operator: Operator) -> SparkRelation:
        """The changes of the plan's last operator."""
        uses = Counter(source for each in dict.fromkeys(walk(operator)) for source in inputs_of(each))
        self._shared = {each for each, count in uses.items() if count > 1}
        sources = [each for each in dict.fromkeys(walk(operator)) if isinstance(each, QueueSource)]
        for queue, count in Counter(source.queue for source in sources).items():
            if count > 1:
                self._frames[queue] = self._share(self._frames[queue], ("__partition", "__offset"))
        return self._compile_once(operator)

    def _compile_once(self, operator: Operator) -> SparkRelation:
        if operator not in self._compiled:
            relation = self._compile(operator)
            if operator in self._shared and not isinstance(operator, QueueSource):
                relation = replace(relation, frame=self._share(relation.frame, relation.key))
            self._compiled[operator] = relation
        return self._compiled[operator]

    def _share(self, frame: DataFrame, key: Sequence[str]) -> DataFrame:
        """The frame with an exchange that Spark does once for all of its uses.

        Small cycles are computed again for each use, because Spark cannot run a plan with an exchange a second time.
        """
        return frame if self._context.is_single else exchange_once(frame, self._context.tasks, key)

    def _compile(self, operator: Operator) -> SparkRelation:
        match operator:
            case QueueSource():
                return self._compile_queue(operator)
            case ViewSource():
                return self._compile_view(operator)
            case ReferenceSource():
                return self._compile_reference(operator)
            case Project():
                return self._compile_project(operator)
            case Filter(input=source, condition=condition):
                relation = self._compile_once(source)
                return replace(relation, frame=relation.frame.filter(relation.expression(condition)))
            case Explode():
                return self._compile_explode(operator)
            case UnionAll():
                return self._compile_union(operator)
            case Aggregate():
                relation = self._compile_once(operator.input)
                windowed = self._windowed_rows(operator.input)
                return compile_aggregate(operator, relation, self._context, self._next_number(operator), windowed)
            case Join():
                left, right = self._compile_once(operator.left), self._compile_once(operator.right)
                if is_reference(operator.left) or is_reference(operator.right):
                    return compile_lookup(operator, left, right)
                return compile_join(operator, left, right, self._context, lambda: self._next_number(operator))
            case TopN():
                relation = self._compile_once(operator.input)
                return compile_top_n(operator, relation, self._context, self._next_number(operator))
            case WindowFunctions():
                relation = self._compile_once(operator.input)
                return compile_window_functions(operator, relation, self._context, self._next_number(operator))

    def _windowed_rows(self, operator: Operator) -> WindowedRows | None:
        if not isinstance(operator, Explode) or operator.windows is None:
            return None
        return WindowedRows(self._compile_once(operator.input), operator.name, operator.windows)

    def _next_number(self, operator: Operator) -> int:
        number = len(self.stateful) + 1
        self.stateful[number] = operator
        return number

    def _compile_queue(self, source: QueueSource) -> SparkRelation:
        key = (self._context.names.next(), self._context.names.next())
        columns = [
            (_SYSTEM_COLUMNS[column.field]() if column.field in _SYSTEM_COLUMNS else quoted(column.field)).alias(
                column.name
            )
            for column in source.columns
        ]
        positions = [F.col("__partition").alias(key[0]), F.col("__offset").alias(key[1])]
        weight = F.lit(1).cast("tinyint").alias(WEIGHT)
        frame = self._frames[source.queue].select(*columns, *positions, weight)
        return SparkRelation(frame, tuple(column.name for column in source.columns), key, is_append_only=True)

    def _compile_view(self, source: ViewSource) -> SparkRelation:
        """The net changes of a view: its rows may have changed several times since the last cycle."""
        names = {column.field: column.name for column in reversed(source.columns)}
        hidden = {key: self._context.names.next() for key in self._view_keys[source.view] if key not in names}
        key = tuple((names | hidden)[each] for each in self._view_keys[source.view])
        columns = [quoted(column.field).alias(column.name) for column in source.columns]
        columns += [quoted(field).alias(name) for field, name in hidden.items()]
        changes = self._frames[source.view].select(*columns, quoted(SEQUENCE), quoted(WEIGHT).cast("tinyint"))
        relation = SparkRelation(changes, tuple(column.name for column in source.columns), key, is_append_only=False)
        rows = changes.withColumn(HASH, hash_of([quoted(name) for name in key]))
        rows = self._context.exchange(rows)
        output = pa.schema([*nullable_fields(arrow_schema(rows), relation.names), pa.field(WEIGHT, pa.int8())])
        return replace(relation, frame=apply_function(rows, NetChanges(output, key)))

    def _compile_reference(self, source: ReferenceSource) -> SparkRelation:
        """The rows of a reference table, numbered: several rows may match one event."""
        number = self._context.names.next()
        columns = [quoted(column.field).alias(column.name) for column in source.columns]
        added = [F.monotonically_increasing_id().alias(number), F.lit(1).cast("tinyint").alias(WEIGHT)]
        frame = self._frames[source.table].select(*columns, *added)
        return SparkRelation(frame, tuple(column.name for column in source.columns), (number,), is_append_only=True)

    def _compile_project(self, project: Project) -> SparkRelation:
        relation = self._compile_once(project.input)
        names = tuple(column.name for column in project.columns)
        kept = {column.sql: column.name for column in reversed(project.columns)}
        columns = [relation.expression(column.sql).alias(column.name) for column in project.columns]
        key, hidden = [], []
        for name in relation.key:
            if f"`{name}`" in kept:
                key.append(kept[f"`{name}`"])
            else:
                hidden_name = self._context.names.next()
                hidden.append(quoted(name).alias(hidden_name))
                key.append(hidden_name)
        return replace(relation.select([*columns, *hidden]), columns=names, key=tuple(key))

    def _compile_explode(self, explode: Explode) -> SparkRelation:
        """An element is identified by its row and its position in the array."""
        relation = self._compile_once(explode.input)
        position = self._context.names.next()
        elements = F.posexplode(relation.expression(explode.array_sql)).alias(position, explode.name)
        exploded = relation.select([*map(quoted, relation.names), elements])
        return replace(exploded, columns=(*relation.columns, explode.name), key=(*relation.key, position))

    def _compile_union(self, union: UnionAll) -> SparkRelation:
        """The key is the number of the input and the keys of the inputs.

        Keys of the same type share a column. Those that an input does not have are null.
        """
        relations = [self._compile_once(source) for source in union.inputs]
        branch = self._context.names.next()
        #: The columns of the key, by type and number among the keys of this type.
        names: dict[tuple[str, int], str] = {}
        own: list[dict[str, str]] = []
        types: dict[str, DataType] = {}
        for relation in relations:
            seen: dict[str, int] = {}
            own.append({})
            for name in relation.key:
                kind = relation.frame.schema[name].dataType
                text = kind.simpleString()
                seen[text] = seen.get(text, 0) + 1
                hidden = names.setdefault((text, seen[text]), f"{branch}_{len(names)}")
                types[hidden] = kind
                own[-1][hidden] = name
        frames = []
        for number, relation in enumerate(relations):
            columns = [
                quoted(name).alias(first) for name, first in zip(relation.columns, relations[0].columns, strict=True)
            ]
            keys = [
                (quoted(own[number][hidden]) if hidden in own[number] else F.lit(None).cast(types[hidden])).alias(
                    hidden
                )
                for hidden in names.values()
            ]
            frames.append(relation.select([*columns, F.lit(number).alias(branch), *keys]).frame)
        frame = frames[0]
        for other in frames[1:]:
            frame = frame.union(other)
        is_append_only = all(relation.is_append_only for relation in relations)
        return SparkRelation(frame, relations[0].columns, (branch, *names.values()), is_append_only)
