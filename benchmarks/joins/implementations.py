"""Three implementations of a join: Penstock, and Spark over the connector with each of its state stores."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.joins.events import WITHIN_SECONDS
from penstock import Stream
from penstock.core.settings import Settings

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_STORES = "org.apache.spark.sql.execution.streaming.state"


@dataclass(frozen=True)
class JoinImplementations:
    """Joins that write pairs to a queue."""

    spark: SparkSession
    url: str
    directory: Path
    #: Events of both sides per cycle or batch.
    batch_events: int

    def all(self) -> dict[str, Callable[[str], None]]:
        """Return the joins by name."""
        return {
            "penstock": self._penstock,
            "state_store": lambda queue: self._spark(queue, f"{_STORES}.HDFSBackedStateStoreProvider"),
            "state_store_rocksdb": lambda queue: self._spark(queue, f"{_STORES}.RocksDBStateStoreProvider"),
        }

    def _penstock(self, queue: str) -> None:
        joined = (
            Stream.from_("orders")
            .map("id, total, at")
            .join(
                Stream.from_("payments").map("order_id, method, at"),
                on={"id": "order_id"},
                within=WITHIN_SECONDS,
                event_time="at",
            )
            .map("left.id AS id, left.total AS total, right.method AS method")
            .to(queue)
        )
        options = {"available_now": True, "report_seconds": 0, "max_events_per_cycle": self.batch_events}
        joined.start(queue, settings=Settings(database_url=self.url), **options).wait()

    def _spark(self, queue: str, store: str) -> None:
        from pyspark.sql import functions as F

        self.spark.conf.set("spark.sql.streaming.stateStore.providerClass", store)
        left = self._side("orders", "id bigint, total bigint, at timestamp")
        right = self._side("payments", "order_id bigint, method string, at timestamp").withColumnRenamed("at", "paid")
        within = f"paid BETWEEN at - INTERVAL {WITHIN_SECONDS} SECONDS AND at + INTERVAL {WITHIN_SECONDS} SECONDS"
        pairs = (
            left.withWatermark("at", f"{WITHIN_SECONDS} seconds")
            .join(right.withWatermark("paid", f"{WITHIN_SECONDS} seconds"), F.expr(f"id = order_id AND {within}"))
            .select("id", "total", "method")
        )
        checkpoint = self.directory / queue
        writer = pairs.writeStream.format("penstock").option("queue", queue).option("keyColumn", "id")
        writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start().awaitTermination()
        shutil.rmtree(checkpoint)

    def _side(self, queue: str, fields: str) -> DataFrame:
        options = {"startingOffsets": "earliest", "maxRecordsPerTrigger": str(self.batch_events // 2), "columns": ""}
        return self.spark.readStream.format("penstock").options(queue=queue, fields=fields, **options).load()
