"""Options for running a query."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from datetime import datetime
from typing import Any

from penstock.core.errors import InvalidOption, short_repr
from penstock.core.names import find_text_problem
from penstock.core.option_checks import check_flag, check_number, check_option_names


@dataclass(frozen=True, slots=True)
class RunOptions:
    """The options of ``Stream.run`` and ``Stream.start``."""

    #: Start over: delete the query's windows, its history and its position.
    reset: bool = False
    #: Compute the new version of a changed view beside the old one, and switch once it has caught up.
    rebuild: bool = False
    #: Refuse a field that no recent event has and whose type is not declared, when the query starts for the first time.
    strict: bool = True
    #: Where a new query starts: "beginning", "now", or a time.
    subscription_from: str | datetime = "beginning"
    #: Process the events that exist at the start, then stop.
    available_now: bool = False
    #: The least time between the start of two cycles. 0 has the lowest latency, the default needs less CPU.
    interval_seconds: float = 0.3
    #: How long closed windows stay in the history. The default exceeds a year, so that a month can be compared with the
    #: same month of the year before.
    history_retention_seconds: float = 400 * 86_400.0
    #: The most events of one cycle.
    max_events_per_cycle: int = 1_000_000
    #: The most events that a gated query buffers in memory while they wait for their gates.
    gate_buffer_events: int = 200_000
    #: A standby takes over so long after a driver has died.
    lease_seconds: float = 6.0
    #: Close and emit every open window when the query stops.
    flush: bool = False
    #: Run the sinks that the stream's ``.to(...)`` names; False if another process runs them.
    sinks: bool = True
    #: A second name for the column ``key`` in the views.
    key_name: str | None = None
    #: In the foreground, print the status at this interval; 0 for never.
    report_seconds: float = 60.0
    #: Spark's master and settings, if Spark has to be started.
    master: str | None = None
    spark_conf: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def from_mapping(cls, given: Mapping[str, Any]) -> RunOptions:
        """Validate options; those that are not given keep their defaults."""
        check_option_names(given, sorted(f.name for f in fields(cls)), "query")
        options = cls(**given)
        for name in ("reset", "rebuild", "strict", "available_now", "flush"):
            check_flag(name, getattr(options, name))
        if options.reset and options.rebuild:
            raise InvalidOption("reset and rebuild exclude each other: give one of them", option="rebuild")
        for name in ("master", "key_name"):
            text = getattr(options, name)
            if text is not None and (not isinstance(text, str) or not text or find_text_problem(text) is not None):
                raise InvalidOption(f"{name} must be a text, not {short_repr(text)}", option=name)
        conf: object = options.spark_conf
        if not isinstance(conf, Mapping) or not all(isinstance(k, str) and isinstance(v, str) for k, v in conf.items()):
            raise InvalidOption(
                "spark_conf must map settings to texts, such as {'spark.executor.memory': '2g'}, "
                f"not {short_repr(conf)}",
                option="spark_conf",
            )
        start: object = options.subscription_from
        if not isinstance(start, str | datetime) or start == "":
            raise InvalidOption(
                f"subscription_from must be 'beginning', 'now' or a time, not {short_repr(start)}",
                option="subscription_from",
            )
        check_number("interval_seconds", options.interval_seconds, 0, 3600)
        check_number("history_retention_seconds", options.history_retention_seconds, 0, 1e10)
        check_number("report_seconds", options.report_seconds, 0, 1e7)
        check_number("lease_seconds", options.lease_seconds, 1, 3600)
        check_number("max_events_per_cycle", options.max_events_per_cycle, 1, 100_000_000)
        check_number("gate_buffer_events", options.gate_buffer_events, 1, 100_000_000)
        return options
