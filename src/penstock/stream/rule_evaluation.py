"""Evaluates alert rules: the state of a key after a window, and the alert if it fires or clears."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from datetime import datetime
from decimal import Decimal
from typing import Any, Literal

import msgspec

from penstock.core.formatting import column_decimals, decimal_number, full_number
from penstock.stream.rules import Condition, Rule

#: Values that differ by a smaller share are equal but for rounding.
_ROUNDING = 1e-9


class KeyState(msgspec.Struct, frozen=True):
    """The state of a rule for a key. It is stored as JSON, with these names."""

    is_firing: bool = False
    since: datetime | None = None
    #: The end of the last window.
    last_end: datetime | None = None
    #: For how many windows in a row the condition speaks for the other state.
    streak: int = 0
    #: The values of the previous windows, as many as the condition compares with: the baseline. Unusual values, and
    #: those of the windows while the rule fires, do not enter it.
    before: tuple[float, ...] = ()
    #: How often the rule has fired or cleared, which tells alerts with one time apart.
    turns: int = 0


class Alert(msgspec.Struct, frozen=True):
    """A rule has fired or cleared for a key."""

    rule: str
    key: str
    state: Literal["firing", "cleared"]
    since: datetime
    message: str
    value: float | None = None
    limit: float | None = None
    #: The value that the previous windows predict.
    expected: float | None = None
    window_start: str | None = None
    window_end: str | None = None


def evaluate_closed_window(
    rule: Rule, state: KeyState, key: str, row: Mapping[str, Any], now: datetime, *, is_silenced: bool = False
) -> tuple[KeyState, Alert | None]:
    """Return the state after a closed window, and the alert if the rule fires or clears.

    A window that ends no later than the last one, such as a correction, changes nothing. A result without a window
    always counts, so the caller has to pass it once. A silenced rule does not fire, but clears.
    """
    end = window_end(row)
    if _is_past(state, end):
        return state, None
    if end is not None:
        state = msgspec.structs.replace(state, last_end=end)
    if rule.condition.kind == "absent":
        if not state.is_firing:
            return state, None
        return _switch(rule, state, key, row, now, None, None)
    value = read_number(row, rule.value)
    if value is None:
        return state, None
    measure, expected = _measure(rule.condition, state.before, value)
    is_turning = measure is not None and _contradicts(rule.condition, state.is_firing, measure)
    if not (is_turning or state.is_firing):
        # A baseline that followed a surge would clear the rule at the peak.
        state = msgspec.structs.replace(
            state, before=(*state.before, value)[-rule.condition.over :] if rule.condition.over else ()
        )
    if measure is None:
        return state, None
    if not is_turning:
        return msgspec.structs.replace(state, streak=0), None
    streak = state.streak + 1
    is_held = is_silenced and not state.is_firing
    if is_held or streak < (rule.clear_after if state.is_firing else rule.fire_after):
        return msgspec.structs.replace(state, streak=streak), None
    return _switch(rule, state, key, row, now, value, expected)


def evaluate_open_window(
    rule: Rule, state: KeyState, key: str, row: Mapping[str, Any], now: datetime
) -> tuple[KeyState, Alert | None]:
    """Return the state after an open window, which can only fire a rule.

    A window that has closed since it was read changes nothing.
    """
    value = read_number(row, rule.value)
    if (
        state.is_firing
        or value is None
        or not _contradicts(rule.condition, False, value)
        or _is_past(state, window_end(row))
    ):
        return state, None
    return _switch(rule, state, key, row, now, value, None)


def evaluate_absence(rule: Rule, state: KeyState, key: str, now: datetime) -> tuple[KeyState, Alert | None]:
    """Return the state of a key that has had no window for as long as the rule allows."""
    if state.is_firing or rule.condition.kind != "absent":
        return state, None
    return _switch(rule, state, key, {}, now, None, None)


def clear_alert(rule: Rule, state: KeyState, key: str, now: datetime, why: str) -> Alert | None:
    """Return the alert that clears a firing one when its rule is deleted."""
    if not state.is_firing:
        return None
    return Alert(rule.name, key, "cleared", state.since or now, f"{key}: {why}")


def window_end(row: Mapping[str, Any]) -> datetime | None:
    """Return the end of a result's window; None if it has none."""
    return read_time(row, "window_end")


def read_time(row: Mapping[str, Any], field: str) -> datetime | None:
    """Return the time in a field; None if there is none."""
    text = row.get(field)
    if not isinstance(text, str):
        return None
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        return None
    return time if time.tzinfo is not None else None


def _switch(
    rule: Rule,
    state: KeyState,
    key: str,
    row: Mapping[str, Any],
    now: datetime,
    value: float | None,
    expected: float | None,
) -> tuple[KeyState, Alert]:
    """Fire, or clear."""
    is_firing = not state.is_firing
    since = now if is_firing or state.since is None else state.since
    after = msgspec.structs.replace(
        state, is_firing=is_firing, since=since if is_firing else None, streak=0, turns=state.turns + 1
    )
    alert = Alert(
        rule.name,
        key,
        "firing" if is_firing else "cleared",
        since,
        _message(rule, key, is_firing, value, expected),
        value,
        rule.condition.limit if is_firing else rule.condition.clear,
        expected,
        _text(row.get("window_start")),
        _text(row.get("window_end")),
    )
    return after, alert


def _measure(condition: Condition, before: Sequence[float], value: float) -> tuple[float | None, float | None]:
    """Return the number to compare with the limit, and the expected value; None while there are too few windows."""
    if condition.kind in ("above", "below"):
        return value, None
    if len(before) < condition.over:
        return None, None
    mean = math.fsum(before) / len(before)
    difference = abs(value - mean)
    scale = _scale(condition, before, mean)
    if difference <= _ROUNDING * max(abs(value), abs(mean)):
        return 0.0, mean
    return (difference / scale if scale else math.inf), mean


def find_thresholds(condition: Condition, state: KeyState) -> tuple[float | None, float | None]:
    """Return the lower and the upper value beyond which the rule fires next, or between which it clears if it fires.

    None where there is no such value, or while there are too few windows.
    """
    bound = condition.clear if state.is_firing else condition.limit
    match condition.kind:
        case "above":
            return None, bound
        case "below":
            return bound, None
        case "absent":
            return None, None
    before = state.before
    if len(before) < condition.over:
        return None, None
    mean = math.fsum(before) / len(before)
    return mean - bound * _scale(condition, before, mean), mean + bound * _scale(condition, before, mean)


def _scale(condition: Condition, before: Sequence[float], mean: float) -> float:
    if condition.kind == "change":
        return abs(mean)
    return math.sqrt(math.fsum((each - mean) ** 2 for each in before) / len(before))


def _contradicts(condition: Condition, is_firing: bool, measure: float) -> bool:
    """Return whether the measure speaks for the other state."""
    if condition.kind == "below":
        return measure >= condition.clear if is_firing else measure < condition.limit
    return measure <= condition.clear if is_firing else measure > condition.limit


def _message(rule: Rule, key: str, is_firing: bool, value: float | None, expected: float | None) -> str:
    kind, limit = rule.condition.kind, full_number(rule.condition.limit)
    if kind == "absent" or value is None:
        return f"{key}: nothing for {limit} s" if is_firing else f"{key} is back"
    shown = f"{key}: {rule.value} is {full_number(value)}"
    if kind in ("above", "below"):
        return (
            f"{shown}, {kind} {limit}"
            if is_firing
            else f"{shown} again, and it clears at {full_number(rule.condition.clear)}"
        )
    # The mean of the previous windows has endless decimals.
    mean = decimal_number(expected, column_decimals([expected]))
    return f"{shown}, where {mean} was expected" if is_firing else f"{shown} again, where {mean} is expected"


def read_number(row: Mapping[str, Any], path: str) -> float | None:
    """Return the number in a field, which may be dotted; None if there is none."""
    value: Any = row
    for name in path.split("."):
        value = value.get(name) if isinstance(value, Mapping) else None
    if isinstance(value, bool) or not isinstance(value, int | float | Decimal):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if math.isfinite(number) else None


def _is_past(state: KeyState, end: datetime | None) -> bool:
    """Return whether a window ends no later than the last one."""
    return end is not None and state.last_end is not None and end <= state.last_end


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None
