"""Rules: when a query's results are worth an alert. What a rule is and how it decides, with no I/O.

A rule looks at the windows of one key after the other, in the order of their ends, and remembers a little of each key.
Results that have no window are looked at one after the other as they come.
It fires when its condition has held for some windows in a row, and clears when it has not for some in a row; between
the limit that makes it fire and the one that clears it nothing changes, so that a value which wavers does not ring
twice.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from decimal import Decimal
from typing import Any, Literal

import msgspec

from penstock.core.errors import InvalidOption, InvalidRequest, short_repr
from penstock.core.names import check_name, find_key_problem, find_text_problem

_LARGEST = sys.float_info.max

Kind = Literal["above", "below", "change", "zscore", "absent"]


class Condition(msgspec.Struct, frozen=True):
    """When a value is worth an alert, and when it no longer is."""

    kind: Kind
    limit: float
    clear: float
    #: How many windows before this one it is compared with.
    over: int = 0


def above(limit: float, *, clear: float | None = None) -> Condition:
    """The value is above the limit; over again when it is at ``clear`` (the limit itself, unless told) or below."""
    return _condition("above", limit, clear, 0, is_lower=True)


def below(limit: float, *, clear: float | None = None) -> Condition:
    """The value is below the limit; over again when it is at ``clear`` or above."""
    return _condition("below", limit, clear, 0, is_lower=False)


def change(by: float, *, over: int = 3, clear: float | None = None) -> Condition:
    """The value differs from the average of the ``over`` windows before by more than this share of it (0.5: half)."""
    return _condition("change", by, clear, over, is_lower=True)


def zscore(limit: float = 3.0, *, over: int = 20, clear: float | None = None) -> Condition:
    """The value is more than so many standard deviations away from the average of the ``over`` windows before."""
    return _condition("zscore", limit, clear, over, is_lower=True)


def absent(seconds: float) -> Condition:
    """There has been no window of a key for so long. It clears when there is one."""
    return _condition("absent", seconds, None, 0, is_lower=True)


_CONDITIONS: Mapping[Kind, Callable[..., Condition]] = {
    "above": above,
    "below": below,
    "change": change,
    "zscore": zscore,
    "absent": absent,
}


def condition(kind: Kind, limit: float, **more: Any) -> Condition:
    """The condition of a kind, by its name; what it does not take is refused."""
    try:
        return _CONDITIONS[kind](limit, **more)
    except TypeError:
        raise InvalidRequest(f"{kind} does not take {' and '.join(more)}") from None


class Rule(msgspec.Struct, frozen=True):
    """A rule; made by :func:`rule`."""

    name: str
    #: The queue of the results that it looks at.
    queue: str
    #: The field of a result that it looks at; may be dotted.
    value: str
    condition: Condition
    alerts: str = "alerts"
    #: How many windows in a row it takes to fire, and to clear.
    fire_after: int = 1
    clear_after: int = 1
    #: The query whose open windows are looked at too, for what is above already.
    live: str | None = None
    #: Keys that are missed from the beginning if they never come.
    expect: tuple[str, ...] = ()


def rule(
    name: str,
    *,
    on: str,
    when: Condition,
    value: str = "value",
    alerts: str = "alerts",
    fire_after: int = 1,
    clear_after: int = 1,
    live: str | None = None,
    expect: Sequence[str] = (),
) -> Rule:
    """Say when results are worth an alert.

    ::

        rule("hot", on="readings-5s", value="avg", when=above(80, clear=75), fire_after=2)

    Args:
        name: What it is called.
        on: The queue of the results, which a stream's ``.to(...)`` names.
        when: ``above``, ``below``, ``change``, ``zscore`` or ``absent``.
        value: The field of the results to look at.
        alerts: The queue that alerts are pushed into.
        fire_after: How many windows in a row have to be bad before it fires.
        clear_after: How many in a row have to be good before it clears.
        live: The id of the query: its open windows are looked at too. For ``above`` only, and values that grow.
        expect: Keys that should be there; one that never comes is absent too.
    """
    keys: object = expect
    if (
        isinstance(keys, str)
        or not isinstance(keys, Sequence)
        or any(find_key_problem(each) is not None for each in keys)
    ):
        raise InvalidOption(f"expect must be a list of keys, not {short_repr(expect)}", option="expect")
    field: object = value
    if not isinstance(field, str) or not field or find_text_problem(field) is not None:
        raise InvalidOption(f"value must name a field of the results, not {short_repr(value)}", option="value")
    given: object = when
    if not isinstance(given, Condition):
        raise InvalidRequest(f"when is a condition such as above(80), not {short_repr(when)}")
    counts: dict[str, object] = {"fire_after": fire_after, "clear_after": clear_after}
    for option, count in counts.items():
        if isinstance(count, bool) or not isinstance(count, int) or not 1 <= count <= 10_000:
            raise InvalidOption(
                f"{option} must be a whole number from 1 to 10,000, not {short_repr(count)}", option=option
            )
    if live is not None and (when.kind != "above" or fire_after != 1):
        raise InvalidOption(
            "an open window can only be known to be above a limit already: live goes with above(...) and fire_after=1",
            option="live",
        )
    if expect and when.kind != "absent":
        raise InvalidOption("expect names keys that are missed: it goes with absent(...)", option="expect")
    if alerts == on:
        raise InvalidRequest(f"the alerts would be looked at as results: push them into another queue than {on!r}")
    return Rule(
        check_name(name, "rule"),
        check_name(on, "queue"),
        value,
        when,
        check_name(alerts, "queue"),
        fire_after,
        clear_after,
        None if live is None else check_name(live, "query"),
        tuple(expect),
    )


class KeyState(msgspec.Struct, frozen=True):
    """What a rule remembers of a key."""

    is_firing: bool = False
    since: datetime | None = None
    #: The end of the last window that was looked at.
    last_end: datetime | None = None
    #: How many windows in a row say that it should be the other way round.
    streak: int = 0
    #: The values of the windows before, as many as the condition compares with.
    before: tuple[float, ...] = ()
    #: How often it has begun or ceased to fire: several alerts may have one time.
    turns: int = 0


class Alert(msgspec.Struct, frozen=True):
    """That a rule began or ceased to fire for a key."""

    rule: str
    key: str
    state: Literal["firing", "cleared"]
    since: datetime
    message: str
    value: float | None = None
    limit: float | None = None
    #: What was expected of the value, by the windows before.
    expected: float | None = None
    window_start: str | None = None
    window_end: str | None = None


def look(rule: Rule, state: KeyState, key: str, row: Mapping[str, Any], now: datetime) -> tuple[KeyState, Alert | None]:
    """What a closed window makes of a key's state, and the alert if that begins or ends one.

    A window that ends no later than one that was looked at, a correction say, changes nothing. A result without a
    window always counts: it is for whoever brings it to bring it once.
    """
    end = end_of(row)
    if _is_past(state, end):
        return state, None
    if end is not None:
        state = msgspec.structs.replace(state, last_end=end)
    if rule.condition.kind == "absent":
        if not state.is_firing:
            return state, None
        return _turn(rule, state, key, row, now, None, None)
    value = _number(row, rule.value)
    if value is None:
        return state, None
    measure, expected = _measure(rule.condition, state.before, value)
    after = msgspec.structs.replace(
        state, before=(*state.before, value)[-rule.condition.over :] if rule.condition.over else ()
    )
    if measure is None:
        return after, None
    if not _turns(rule.condition, state.is_firing, measure):
        return msgspec.structs.replace(after, streak=0), None
    streak = state.streak + 1
    if streak < (rule.clear_after if state.is_firing else rule.fire_after):
        return msgspec.structs.replace(after, streak=streak), None
    return _turn(rule, after, key, row, now, value, expected)


def peek(rule: Rule, state: KeyState, key: str, row: Mapping[str, Any], now: datetime) -> tuple[KeyState, Alert | None]:
    """The same for a window that is still open: it can make a rule fire, and nothing else.

    One that has closed since it was looked up changes nothing.
    """
    value = _number(row, rule.value)
    if state.is_firing or value is None or not _turns(rule.condition, False, value) or _is_past(state, end_of(row)):
        return state, None
    return _turn(rule, state, key, row, now, value, None)


def miss(rule: Rule, state: KeyState, key: str, now: datetime) -> tuple[KeyState, Alert | None]:
    """What it means that a key has not been seen for as long as the rule allows."""
    if state.is_firing or rule.condition.kind != "absent":
        return state, None
    return _turn(rule, state, key, {}, now, None, None)


def withdraw(rule: Rule, state: KeyState, key: str, now: datetime, why: str) -> Alert | None:
    """The alert that ends one which still fires when its rule is no more."""
    if not state.is_firing:
        return None
    return Alert(rule.name, key, "cleared", state.since or now, f"{key}: {why}")


def _turn(
    rule: Rule,
    state: KeyState,
    key: str,
    row: Mapping[str, Any],
    now: datetime,
    value: float | None,
    expected: float | None,
) -> tuple[KeyState, Alert]:
    """Begin to fire, or cease to."""
    firing = not state.is_firing
    since = now if firing or state.since is None else state.since
    after = msgspec.structs.replace(
        state, is_firing=firing, since=since if firing else None, streak=0, turns=state.turns + 1
    )
    alert = Alert(
        rule.name,
        key,
        "firing" if firing else "cleared",
        since,
        _message(rule, key, firing, value, expected),
        value,
        rule.condition.limit if firing else rule.condition.clear,
        expected,
        _text(row.get("window_start")),
        _text(row.get("window_end")),
    )
    return after, alert


def _measure(condition: Condition, before: Sequence[float], value: float) -> tuple[float | None, float | None]:
    """What is compared with the limit, and what was expected; None while too little is known."""
    if condition.kind in ("above", "below"):
        return value, None
    if len(before) < condition.over:
        return None, None
    mean = math.fsum(before) / len(before)
    away = abs(value - mean)
    if condition.kind == "change":
        scale = abs(mean)
    else:
        scale = math.sqrt(math.fsum((each - mean) ** 2 for each in before) / len(before))
    if away <= 1e-9 * max(abs(value), abs(mean)):
        return 0.0, mean  # the same but for rounding
    return (away / scale if scale else math.inf), mean


def _turns(condition: Condition, is_firing: bool, measure: float) -> bool:
    """Whether the measure speaks for the other state."""
    if condition.kind == "below":
        return measure >= condition.clear if is_firing else measure < condition.limit
    return measure <= condition.clear if is_firing else measure > condition.limit


def _message(rule: Rule, key: str, firing: bool, value: float | None, expected: float | None) -> str:
    kind, limit = rule.condition.kind, rule.condition.limit
    if kind == "absent":
        return f"{key}: nothing for {limit:g} s" if firing else f"{key} is back"
    if not firing:
        return f"{key}: {rule.value} is {value:g} again"
    if kind in ("above", "below"):
        return f"{key}: {rule.value} is {value:g}, {kind} {limit:g}"
    return f"{key}: {rule.value} is {value:g}, where {expected:g} was to be expected"


def _number(row: Mapping[str, Any], path: str) -> float | None:
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


def end_of(row: Mapping[str, Any]) -> datetime | None:
    """When a result's window ended; None if it does not say."""
    text = row.get("window_end")
    if not isinstance(text, str):
        return None
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    return moment if moment.tzinfo is not None else None


def _is_past(state: KeyState, end: datetime | None) -> bool:
    """Whether a window ends no later than one that was looked at."""
    return end is not None and state.last_end is not None and end <= state.last_end


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None


def _condition(kind: Kind, limit: object, clear: object, over: object, *, is_lower: bool) -> Condition:
    numbers: list[float] = []
    for option, value in (("limit", limit), ("clear", limit if clear is None else clear)):
        # A float holds no more, and what is no number is not within it either.
        if isinstance(value, bool) or not isinstance(value, int | float) or not -_LARGEST <= value <= _LARGEST:
            raise InvalidOption(f"{kind}: {option} must be a number, not {short_repr(value)}", option=option)
        numbers.append(float(value))
    if kind in ("change", "zscore", "absent") and numbers[0] <= 0:
        raise InvalidOption(f"{kind}: the limit must be more than 0, not {short_repr(limit)}", option="limit")
    if numbers[1] > numbers[0] if is_lower else numbers[1] < numbers[0]:
        side = "below" if is_lower else "above"
        raise InvalidOption(
            f"{kind}: it has to clear at the limit or {side} it, not at {short_repr(clear)}", option="clear"
        )
    least = {"change": 1, "zscore": 2}.get(kind, 0)
    if isinstance(over, bool) or not isinstance(over, int) or not least <= over <= 10_000:
        raise InvalidOption(
            f"{kind}: over must be a number of windows from {least} on, not {short_repr(over)}", option="over"
        )
    return Condition(kind, numbers[0], numbers[1], over)
