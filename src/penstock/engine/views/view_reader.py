"""Computes the changes of a view in a cycle: reads its inputs and applies its operators, in one Spark job."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from penstock.engine.compile.key_text import distinguish_empty_key, postgres_type, to_key
from penstock.engine.reference_tables import ReferenceTables
from penstock.engine.state.operator_state import WEIGHT, StateConfig
from penstock.engine.views.compile.spark_relation import HiddenNames, SparkRelation, quoted
from penstock.engine.views.compile.view_compiler import PlanContext, ViewCompiler
from penstock.engine.views.view_inputs import ROW_KEY, ChangesInput, ViewInput
from penstock.stream.steps import Lookup, ReferenceTable, SqlStep
from penstock.stream.views.view_plan import Operator

#: The column of the key's text, which is the key of a change in the changes queue.
KEY_TEXT = "__key_text"
#: The number of shards of an operator's state.
VIEW_SHARDS = 8
#: The key of a view that has one row.
ONLY_ROW = "__row"


@dataclass(frozen=True)
class ViewColumn:
    """A column of a view's result."""

    name: str
    spark_type: str
    pg_type: str
    #: Hidden columns are stored because they identify the row, and are not part of the view.
    is_hidden: bool = False


class CompiledView(NamedTuple):
    """The changes of a view's result, and its operators with state by number. A join with a condition has several."""

    relation: SparkRelation
    stateful: Mapping[int, Operator]


@dataclass(frozen=True)
class ViewReader:
    """The Spark plan of a view's cycles."""

    root: Operator
    inputs: Sequence[ViewInput]
    state: StateConfig
    #: The number of shards of each operator's state. It never changes.
    shards: int
    #: True if the changes go to a queue, which needs the text of the keys.
    with_key_text: bool
    references: ReferenceTables
    #: The reference tables of the SELECT, by name.
    tables: Mapping[str, ReferenceTable]

    @property
    def reads_tables(self) -> bool:
        """True if the SELECT, or a step of an input, reads a reference table."""
        steps = [step for each in self.inputs for step in each.split.spark_steps]
        return bool(self.tables) or any(isinstance(step, Lookup | SqlStep) for step in steps)

    def frame(self, spark: SparkSession, tasks: int) -> DataFrame:
        """The changes of a cycle whose events are read by so many tasks."""
        return self._changes({each.name: each.frame(spark, tasks) for each in self.inputs}, min(tasks, self.shards))

    def compile_small(self, spark: SparkSession) -> tuple[CompiledView, DataFrame]:
        """The result and the changes of a small cycle, in one task and without a shuffle."""
        compiled = self.compile({each.name: each.frame(spark, 1) for each in self.inputs})
        return compiled, self._output(compiled.relation)

    def expiry_frame(self, spark: SparkSession, *, is_small: bool) -> DataFrame:
        """The changes of a cycle that reads no events and looks for groups that expire."""
        reader = replace(self, state=replace(self.state, is_expiry=True))
        return reader._changes(
            {each.name: each.frame(spark, 1) for each in self.inputs}, 0 if is_small else self.shards
        )

    def compile(self, frames: dict[str, DataFrame], tasks: int = 0) -> CompiledView:
        """The result of a cycle, with so many tasks after an exchange; 0 for a small cycle."""
        context = PlanContext(self.state, self.shards, tasks, HiddenNames())
        keys = {each.name: (ROW_KEY,) for each in self.inputs if isinstance(each, ChangesInput)}
        spark = next(iter(frames.values())).sparkSession
        tables = {name: self.references.frame(spark, name, table) for name, table in self.tables.items()}
        compiler = ViewCompiler(context, {**frames, **tables}, keys)
        relation = compiler.compile(self.root)
        if not relation.key:
            frame = relation.frame.withColumn(ONLY_ROW, F.lit(0).cast("tinyint"))
            relation = SparkRelation(frame, relation.columns, (ONLY_ROW,), relation.is_append_only)
        return CompiledView(relation, compiler.stateful)

    def _changes(self, frames: dict[str, DataFrame], tasks: int) -> DataFrame:
        return self._output(self.compile(frames, tasks).relation)

    def _output(self, relation: SparkRelation) -> DataFrame:
        return output_frame(relation, with_key_text=self.with_key_text)


def output_frame(relation: SparkRelation, *, with_key_text: bool) -> DataFrame:
    """The changes of a view's result as the driver stores them."""
    schema = relation.frame.schema
    columns = []
    for name in relation.names:
        kind = schema[name].dataType.simpleString()
        value = quoted(name)
        if kind == "binary":
            value = F.base64(value)
        elif kind in ("double", "float") and name not in relation.key:
            # As in the changes queue, since JSON has no NaN and no infinity.
            value = F.when(F.abs(value) < float("inf"), value)
        elif postgres_type(kind) == "jsonb":
            value = F.to_json(value, {"ignoreNullFields": "false"})
        columns.append(value.alias(name))
    if with_key_text:
        columns.append(_key_text(relation).alias(KEY_TEXT))
    return relation.frame.select(*columns, WEIGHT)


def _key_text(relation: SparkRelation) -> Column:
    """The key of a row's changes: its only column as text, or a JSON array. The null of a single column is no key."""
    text = to_key(relation.frame, [quoted(name) for name in relation.key])
    return distinguish_empty_key(text) if len(relation.key) == 1 else text


def result_columns(relation: SparkRelation) -> list[ViewColumn]:
    """The columns of a view's result, the visible ones first."""
    types = {field.name: field.dataType.simpleString() for field in relation.frame.schema}
    return [
        ViewColumn(
            name,
            types[name],
            "text" if types[name] == "binary" else postgres_type(types[name]),
            name not in relation.columns,
        )
        for name in relation.names
    ]
