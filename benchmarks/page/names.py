"""Display names of engines and queues."""

from __future__ import annotations

NAMES = {
    "penstock": "Penstock",
    "plain_spark": "plain Spark",
    "plain_spark_one_batch": "plain Spark, all in one batch",
    "pgmq": "pgmq",
    "pgqueuer": "PgQueuer",
    "procrastinate": "Procrastinate",
    "flink": "PyFlink SQL",
    "pathway": "Pathway",
    "bytewax": "Bytewax",
    "redis": "Redis, four commands an event",
    "redis_pipelined": "Redis, pipelines of 100 events",
    "duckdb": "DuckDB (the ceiling: one shot, no stream)",
    "penstock_text": "Penstock, parsed by Spark",
    "json": "files of JSON",
    "parquet": "files of Parquet",
    "state_store": "Spark's join, state in memory and files",
    "state_store_rocksdb": "Spark's join, state in RocksDB",
}
