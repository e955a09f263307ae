"""Display names of engines and queues."""

from __future__ import annotations

NAMES = {
    "penstock": "Penstock",
    "plain_spark": "plain Spark",
    "plain_spark_one_batch": "plain Spark, one batch",
    "pgmq": "pgmq",
    "pgqueuer": "PgQueuer",
    "procrastinate": "Procrastinate",
    "flink": "PyFlink SQL",
    "pathway": "Pathway",
    "bytewax": "Bytewax",
    "redis": "Redis, four commands per event",
    "redis_pipelined": "Redis, pipelines of 100 events",
    "duckdb": "DuckDB (upper bound: one batch query, no streaming)",
    "penstock_text": "Penstock, parsed by Spark",
    "json": "JSON files",
    "parquet": "Parquet files",
    "state_store": "Spark's join, default state store",
    "state_store_rocksdb": "Spark's join, RocksDB state store",
}
