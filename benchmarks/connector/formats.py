"""Reads and writes the same events with Spark in each format."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

FIELDS = "customer string, amount decimal(12,2), ts bigint, page string, note string"


@dataclass(frozen=True, slots=True)
class Total:
    """The result of a read: the number of events and the sum of their amounts in cents."""

    events: int
    cents: int


class Formats:
    """Reads and writes by the name of the format. Written rows can be read back for checks."""

    def __init__(self, spark: SparkSession, directory: Path, lines: Path) -> None:
        self._spark = spark
        self._directory = directory
        self._lines = lines

    def prepare(self) -> None:
        """Write the events as Parquet, and cache their rows for the writes."""
        parquet = self._directory / "parquet"
        self._spark.read.schema(FIELDS).json(str(self._lines)).write.parquet(str(parquet))
        self._rows = self._spark.read.parquet(str(parquet)).cache()
        self._rows.count()
        self._texts = self._rows.selectExpr("customer AS key", "to_json(struct(*)) AS value").cache()
        self._texts.count()

    def read(self, name: str) -> Total:
        """Count the events and sum the amounts of a typed column."""
        return _total(self._frame(name))

    def _frame(self, name: str) -> DataFrame:
        read = self._spark.read
        if name == "penstock":
            options = {"queue": "events", "columns": "", "fields": FIELDS}
            return read.format("penstock").options(**options).load()
        if name == "penstock_text":
            frame = read.format("penstock").options(queue="events", columns="value").load()
            return frame.selectExpr(f"from_json(value, '{FIELDS}') AS event").select("event.*")
        if name == "json":
            return read.schema(FIELDS).json(str(self._lines))
        return read.parquet(str(self._directory / "parquet"))

    def write(self, name: str) -> None:
        """Write all rows. Files are overwritten, a queue is appended to."""
        if name == "penstock":
            self._rows.write.format("penstock").mode("append").options(queue="written", keyColumn="customer").save()
        elif name == "penstock_text":
            self._texts.write.format("penstock").mode("append").options(queue="written").save()
        else:
            self._rows.write.format(name).mode("overwrite").save(str(self._directory / f"written-{name}"))

    def written(self, name: str) -> Total:
        """Return the totals of the written rows."""
        if name.startswith("penstock"):
            options = {"queue": "written", "columns": "", "fields": FIELDS}
            return _total(self._spark.read.format("penstock").options(**options).load())
        path = self._directory / f"written-{name}"
        total = _total(self._spark.read.schema(FIELDS).format(name).load(str(path)))
        shutil.rmtree(path)
        return total


def _total(frame: DataFrame) -> Total:
    row = frame.selectExpr("count(*) AS events", "cast(sum(amount) * 100 AS bigint) AS cents").collect()[0]
    return Total(row["events"], row["cents"] or 0)
