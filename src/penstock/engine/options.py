"""How a query is run, as opposed to what it computes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from datetime import datetime
from typing import Any

from penstock.core.errors import InvalidOption, shown
from penstock.core.names import text_problem


@dataclass(frozen=True, slots=True)
class RunOptions:
    """What ``run`` and ``start`` take beside the query's id."""

    #: Begin anew: forget the query's windows, its history and its place.
    reset: bool = False
    #: Where a query that is new begins: "beginning", "now", or a time.
    subscription_from: str | datetime = "beginning"
    #: Process what is there, and stop.
    available_now: bool = False
    #: At least so long from one cycle to the next. Zero for the lowest latency; the default spares the machine.
    interval_seconds: float = 0.4
    #: Closed windows are kept in the history for so long.
    history_retention_seconds: float = 30 * 86_400.0
    #: Most events of one cycle.
    max_events_per_cycle: int = 1_000_000
    #: A driver that dies is followed by a standby after so long.
    lease_seconds: float = 6.0
    #: Close and emit every open window when the query stops.
    flush: bool = False
    #: Run the sinks that the stream's ``.to(...)`` names too; False, where somebody else does.
    sinks: bool = True
    #: A name for the key in the views, beside ``key``.
    key_name: str | None = None
    #: In the foreground, say every so often what has been done; 0: never.
    report_seconds: float = 60.0
    #: Spark's master and settings, for the session that is made if there is none.
    master: str | None = None
    spark_conf: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> RunOptions:
        """The options that are named; the others as they are by default."""
        known = {f.name for f in fields(cls)}
        for name in given:
            if name not in known:
                raise InvalidOption(
                    f"{name!r} is no option of a query; there are {', '.join(sorted(known))}", option=name
                )
        made = cls(**given)
        for name in ("reset", "available_now", "flush"):
            if not isinstance(getattr(made, name), bool):
                raise InvalidOption(f"{name} must be True or False, not {shown(given[name])}", option=name)
        for name in ("master", "key_name"):
            text = getattr(made, name)
            if text is not None and (not isinstance(text, str) or not text or text_problem(text) is not None):
                raise InvalidOption(f"{name} must be a text, not {shown(text)}", option=name)
        conf: object = made.spark_conf
        if not isinstance(conf, Mapping) or not all(isinstance(k, str) and isinstance(v, str) for k, v in conf.items()):
            raise InvalidOption(
                f"spark_conf must map settings to texts, such as {{'spark.executor.memory': '2g'}}, not {shown(conf)}",
                option="spark_conf",
            )
        start: object = made.subscription_from
        if not isinstance(start, str | datetime) or start == "":
            raise InvalidOption(
                f"subscription_from must be 'beginning', 'now' or a time, not {shown(start)}",
                option="subscription_from",
            )
        _number("interval_seconds", made.interval_seconds, 0, 3600)
        _number("history_retention_seconds", made.history_retention_seconds, 0, 1e10)
        _number("report_seconds", made.report_seconds, 0, 1e7)
        _number("lease_seconds", made.lease_seconds, 1, 3600)
        _number("max_events_per_cycle", made.max_events_per_cycle, 1, 100_000_000)
        return made


def _number(name: str, value: object, least: float, most: float) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not least <= value <= most:
        raise InvalidOption(f"{name} must be a number from {least:g} to {most:g}, not {shown(value)}", option=name)
