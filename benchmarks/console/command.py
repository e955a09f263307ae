"""The command: a steady load and one at full speed, and one JSON object as the last line."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any

from benchmarks.console.bench import measure
from benchmarks.console.plan import FULL, FULL_SPEED, IDLE, LOADS, PAGES, QUICK, STEADY, Plan
from benchmarks.ingest.events import body
from benchmarks.ingest.plan import CONNECTIONS, KEYS
from benchmarks.log import server
from benchmarks.log.checks import Checks
from benchmarks.measuring import Result, introduce, listed, measured, parser, verdict

_NAMES = tuple(load.name for load in LOADS)


def run(arguments: Sequence[str]) -> int:
    """Measure what the arguments ask for; 0 if every check held."""
    return measured("console", _measure, _parse(arguments))


def _parse(arguments: Sequence[str]) -> argparse.Namespace:
    options = parser("console", "Measure what open browsers cost ingestion.")
    options.add_argument("--only", type=listed(_NAMES), default=_NAMES, metavar="LOADS", help=f"of {','.join(_NAMES)}")
    return options.parse_args(arguments)


async def _measure(options: argparse.Namespace) -> Result:
    plan, checks = QUICK if options.quick else FULL, Checks()
    with server.running() as running:
        result = introduce(_work(plan), running, checks)
        with checks.catching("console"):
            await measure([load for load in LOADS if load.name in options.only], plan, running, checks, result)
        result["cost_pct"] = _cost(result.get(FULL_SPEED.name))
    return result | verdict(checks)


def _cost(measured: dict[str, Any] | None) -> float | None:
    """The verdict: the loss of throughput at full speed with browsers of the lowest CPU priority."""
    return None if measured is None else round((1 - measured["ratio"][IDLE]) * 100, 1)


def _work(plan: Plan) -> str:
    return (
        f"Events of {len(body(1, 1))} bytes over {KEYS:,} keys, over HTTP on {CONNECTIONS} connections to one server "
        f"process: {STEADY.per_second:,} a second in requests of {STEADY.batch} while a query follows them, and at "
        f"full speed in requests of {FULL_SPEED.batch:,}. The console has a process of its own. {plan.turns} turn(s) "
        f"of three parts of {plan.seconds:g} s: nobody looks at the console; {len(PAGES)} Chromium pages do (overview, "
        "live board, queues, queries, dead letters), all of them moving, at idle priority; the same at equal "
        "priority. Parts are compared within their turn, and the median counts."
    )
