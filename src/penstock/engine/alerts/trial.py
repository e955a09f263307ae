"""Try a rule on the results that a queue has: when it would have fired and cleared, without storing anything."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from penstock.engine.alerts.evaluate import rule_input
from penstock.engine.alerts.rule_store import check_field, field_paths
from penstock.log.log import Log
from penstock.stream.rule_evaluation import (
    Alert,
    KeyState,
    evaluate_absence,
    evaluate_closed_window,
    find_thresholds,
    read_number,
    read_time,
    window_end,
)
from penstock.stream.rules import Rule

MAX_TRIAL_RESULTS = 10_000


@dataclass(frozen=True, slots=True)
class TrialPoint:
    """A past result of a key, and the thresholds at which the rule would fire or clear."""

    key: str
    at: datetime
    value: float | None
    lower: float | None
    upper: float | None
    firing: bool
    #: Whether the result is that of a window, which ends at ``at``.
    is_window: bool


@dataclass(frozen=True, slots=True)
class TrialAlert:
    """An alert that the rule would have raised."""

    #: The end of the window, or the time of a result without one.
    at: datetime
    key: str
    state: str
    message: str
    window_start: datetime | None


@dataclass(frozen=True, slots=True)
class Trial:
    """The results that were read, oldest first, and the alerts."""

    points: Sequence[TrialPoint]
    alerts: Sequence[TrialAlert]


async def try_rule(log: Log, rule: Rule, *, limit: int = 2_000) -> Trial:
    """Evaluate a rule on the newest results of its queue, up to ``limit``, as if it had just been saved.

    Raises:
        InvalidOption: none of the results has the field of the rule.
    """
    newest = await log.browse(rule.queue, limit=min(limit, MAX_TRIAL_RESULTS))
    inputs = [rule_input(event) for event in reversed(newest)]
    results = sorted(((window_end(given.row) or given.at, given) for given in inputs), key=lambda pair: pair[0])
    states: dict[str, KeyState] = {}
    last_seen: dict[str, datetime] = {}
    points: list[TrialPoint] = []
    alerts: list[TrialAlert] = []
    is_absence = rule.condition.kind == "absent"
    longest = timedelta(seconds=rule.condition.limit) if is_absence else timedelta.max
    for at, given in results:
        key = given.key
        state = states.get(key, KeyState())
        before = last_seen.get(key)
        if is_absence and before is not None and at - before > longest:
            state, alert = evaluate_absence(rule, state, key, before + longest)
            if alert is not None:
                alerts.append(_to_trial(before + longest, alert, {}))
        lower, upper = find_thresholds(rule.condition, state)
        states[key], alert = evaluate_closed_window(rule, state, key, given.row, at)
        last_seen[key] = at
        if alert is not None:
            alerts.append(_to_trial(at, alert, given.row))
        points.append(
            TrialPoint(
                key,
                at,
                read_number(given.row, rule.value),
                lower,
                upper,
                states[key].is_firing,
                window_end(given.row) is not None,
            )
        )
    if all(point.value is None for point in points):
        check_field(rule, list(dict.fromkeys(path for given in inputs for path in field_paths(given.row))))
    alerts.sort(key=lambda each: each.at)
    return Trial(points, alerts)


def _to_trial(at: datetime, alert: Alert, row: Mapping[str, Any]) -> TrialAlert:
    return TrialAlert(at, alert.key, alert.state, alert.message, read_time(row, "window_start"))
