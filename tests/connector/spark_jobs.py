"""Programs of a Spark user, which use Penstock only as a format."""

from __future__ import annotations

import os
import sys
import textwrap
from pathlib import Path

#: Copies the queue ``orders`` to ``copies`` until it is killed, or until all is copied.
COPY = """
    import sys
    from pyspark.sql import SparkSession

    checkpoint, once = sys.argv[1], sys.argv[2] == "once"
    spark = SparkSession.builder.appName("copy").getOrCreate()
    events = (
        spark.readStream.format("penstock")
        .options(queue="orders", startingOffsets="earliest", maxRecordsPerTrigger="200", group="copier")
        .load()
    )
    writer = (
        events.selectExpr("key", "value").writeStream.format("penstock")
        .option("queue", "copies").option("checkpointLocation", checkpoint)
    )
    while True:
        query = (writer.trigger(availableNow=True) if once else writer).start()
        try:
            query.awaitTermination()
            break
        except Exception as error:
            # Spark gives a Python process ten seconds to start, on however busy a machine.
            if "failed to connect back" not in str(error):
                raise
    print("copied", flush=True)
"""

#: Reads, filters, writes and follows, in a local session or at a Spark Connect address.
TOUR = """
    import sys, tempfile
    from pyspark.sql import SparkSession

    builder = SparkSession.builder
    spark = (builder.remote(sys.argv[1]) if len(sys.argv) > 1 else builder).getOrCreate()
    orders = spark.read.format("penstock").options(queue="orders", columns="key,offset", fields="n bigint").load()
    print("read", orders.count(), orders.where("n < 10").count(), flush=True)
    orders.selectExpr("key", "n").write.format("penstock").mode("append").option("queue", "copies").save()
    print("wrote", spark.read.format("penstock").option("queue", "copies").load().count(), flush=True)
    events = spark.readStream.format("penstock").options(queue="orders", startingOffsets="earliest").load()
    writer = (
        events.select("key", "value").writeStream.format("penstock").option("queue", "copies")
        .option("checkpointLocation", tempfile.mkdtemp()).trigger(availableNow=True)
    )
    while True:
        try:
            writer.start().awaitTermination()
            break
        except Exception as error:
            if "failed to connect back" not in str(error):
                raise
    print("followed", spark.read.format("penstock").option("queue", "copies").load().count(), flush=True)
    spark.stop()
"""
#: The part without a stream.
TOUR_OF_FRAMES = TOUR[: TOUR.index("    events = ")]

#: For a package in --py-files: Spark looks for formats only in installed packages.
REGISTERING_TOUR = TOUR.replace(
    "orders = spark.read",
    "from pyspark_penstock import DefaultSource; spark.dataSource.register(DefaultSource)\n    orders = spark.read",
    1,
)
#: The part without a stream: Spark starts the process that plans a stream without --py-files.
REGISTERING_TOUR_OF_FRAMES = REGISTERING_TOUR[: REGISTERING_TOUR.index("    events = ")]


def program(directory: Path, text: str) -> Path:
    """Write a program to a file."""
    file = directory / "job.py"
    file.write_text(textwrap.dedent(text))
    return file


def environment(url: str, **more: str) -> dict[str, str]:
    """The environment of a user's shell."""
    return os.environ | {
        "PENSTOCK_DATABASE_URL": url,
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": "127.0.0.1",
        **more,
    }
