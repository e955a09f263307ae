"""PyFlink: streaming SQL over the files, with a watermark and without checkpoints. The JVM is reused between jobs.

Flink's PostgreSQL connector is a JAR that is not on PyPI. Rows go to CSV files and from there by one COPY, which costs
less than upserts.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from pyflink.table import EnvironmentSettings, TableEnvironment  # type: ignore[import-not-found]  # its own environment

from benchmarks.peers.windows import WINDOW_MS, WindowJob, serve

# The watermark delay exceeds the span of the events: files may be read in any order, and no event may be late.
_SOURCE = """
CREATE TEMPORARY TABLE events (
    customer STRING, amount DECIMAL(8, 2), ts BIGINT, happened AS TO_TIMESTAMP_LTZ(ts, 3),
    WATERMARK FOR happened AS happened - INTERVAL '1' MINUTE
) WITH ('connector' = 'filesystem', 'path' = '{source}', 'format' = 'json')
"""
_SINK = """
CREATE TEMPORARY TABLE counted (
    customer STRING, start_ms BIGINT, events BIGINT, total DECIMAL(38, 2), highest DECIMAL(8, 2)
) WITH ('connector' = 'filesystem', 'path' = '{directory}', 'format' = 'csv')
"""
_INSERT = f"""
INSERT INTO counted
SELECT customer, CAST(1000 AS BIGINT) * TIMESTAMPDIFF(SECOND, TIMESTAMP '1970-01-01 00:00:00', window_start),
    COUNT(*), SUM(amount), MAX(amount)
FROM TABLE(TUMBLE(TABLE events, DESCRIPTOR(happened), INTERVAL '{WINDOW_MS // 1000}' SECONDS))
GROUP BY customer, window_start, window_end
"""  # noqa: S608


def drain(job: WindowJob) -> None:
    flink = TableEnvironment.create(EnvironmentSettings.in_streaming_mode())
    flink.get_config().set_local_timezone("UTC")
    flink.get_config().set("pipeline.object-reuse", "true")
    flink.execute_sql(_SOURCE.format(source=job.source))
    flink.execute_sql(_SINK.format(directory=job.directory))
    flink.execute_sql(_INSERT).wait()
    job.copy(_lines(Path(job.directory)))


def _lines(directory: Path) -> Iterator[str]:
    for path in sorted(
        path for path in directory.rglob("*") if path.is_file() and not path.name.startswith((".", "_"))
    ):
        yield path.read_text()


if __name__ == "__main__":
    serve(["apache-flink"], drain)
