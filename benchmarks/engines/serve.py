"""The inner side: takes jobs as lines of JSON, does them, answers each with a line of JSON."""

from __future__ import annotations

import os
import sys
import traceback

import msgspec

from benchmarks.engines.jobs import Drain, Job


def main(name: str) -> None:
    """Do jobs until standard input ends, or until the one that follows a queue does."""
    # Answers go to what was standard output; whatever else is printed, by Spark too, goes to standard error.
    answers = os.fdopen(os.dup(1), "wb", buffering=0)
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
        answer: object
        try:
            answer = engine.drain(job)
        except Exception as error:
            traceback.print_exc()
            answer = {"error": f"{type(error).__name__}: {error}"}
        answers.write(msgspec.json.encode(answer) + b"\n")


if __name__ == "__main__":
    main(sys.argv[1])
