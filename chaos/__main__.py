"""``python -m chaos``: one run with a seed. Exits with 0 if all checks hold."""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from chaos.plan import KINDS, draw
from chaos.run import format_report, run


def main(arguments: Sequence[str] | None = None) -> int:
    """Run; return 0 if all checks hold."""
    options = _parse(arguments)
    failed = []
    seeds = options.seed or [random.SystemRandom().randrange(1, 1_000_000)]
    for seed in seeds:
        plan = draw(
            seed,
            options.minutes,
            cluster=options.cluster,
            spark=not options.without_spark,
            kinds=options.only or (),
            healthy_seconds=options.healthy,
            drain_seconds=max(240.0, options.healthy),
            pause_seconds=options.pause,
        )
        if options.plan:
            print(f"seed {seed}\n" + "\n".join(map(str, plan.faults)))
            continue
        where = options.directory or Path(tempfile.mkdtemp(prefix="penstock-chaos-"))
        report = run(plan, where / f"seed-{seed}", lambda line: print(line, flush=True))
        print(format_report(report), flush=True)
        if not report["ok"]:
            failed.append(seed)
            again = " ARGS=--cluster" if options.cluster else " ARGS=--without-spark" if options.without_spark else ""
            print(f"again with: make chaos SEED={seed} MINUTES={options.minutes:g}{again}", flush=True)
    if failed:
        print(f"seeds that were not survived: {', '.join(map(str, failed))}")
    return 1 if failed else 0


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m chaos", description="The whole system, under load and faults.")
    parser.add_argument("--seed", type=int, nargs="*", help="what the faults follow from; any, if not given")
    parser.add_argument("--minutes", type=float, default=3.0, help="how long the faults go on, with time to get well")
    parser.add_argument("--cluster", action="store_true", help="on a standalone Spark cluster of two workers")
    parser.add_argument("--without-spark", action="store_true", help="queues, server, sinks and consumers only")
    parser.add_argument("--only", nargs="*", metavar="FAULT", help=f"faults to draw from: {', '.join(KINDS)}")
    parser.add_argument("--healthy", type=float, default=90.0, help="how many seconds it may take to get healthy again")
    parser.add_argument("--pause", type=float, default=0.12, help="seconds between two batches of a producer")
    parser.add_argument("--directory", type=Path, help="where journals, logs and reports go; a new one, if not given")
    parser.add_argument("--plan", action="store_true", help="show the faults of the seed, and do nothing")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
