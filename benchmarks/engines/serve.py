"""Process of an engine: runs jobs from standard input, one line of JSON each, and writes results."""

from __future__ import annotations

import os
import sys
import traceback

import msgspec

from benchmarks.engines.jobs import Drain, Job


def main(name: str) -> None:
    """Run jobs until standard input or a continuous query ends."""
    # Results go to the original standard output. Other output, including that of Spark, goes to standard error.
    results = os.fdopen(os.dup(1), "wb", buffering=0)
    os.dup2(2, 1)
    if name == "penstock":
        from benchmarks.engines import penstock_engine as engine
    else:
        from benchmarks.engines import spark_engine as engine  # type: ignore[no-redef]  # has the same functions
    decoder = msgspec.json.Decoder(Job)
    for line in sys.stdin.buffer:
        job = decoder.decode(line)
        if not isinstance(job, Drain):
            engine.follow(job)
            return
        result: object
        try:
            result = engine.drain(job)
        except Exception as error:
            traceback.print_exc()
            result = {"error": f"{type(error).__name__}: {error}"}
        results.write(msgspec.json.encode(result) + b"\n")


if __name__ == "__main__":
    main(sys.argv[1])
