"""Alert rules: when the results of a query raise an alert.

A rule evaluates the windows of each key in the order of their ends. Results without a window are evaluated in the order
of their arrival. A rule fires when its condition holds for ``fire_after`` windows in a row, and clears when it does not
hold for ``clear_after`` windows in a row. Between the limit and ``clear`` nothing changes, so that a value that
oscillates around the limit does not raise alerts repeatedly.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import msgspec

from penstock.core.errors import InvalidOption, InvalidRequest, short_repr
from penstock.core.names import check_name, find_key_problem, find_text_problem
from penstock.core.option_checks import check_integer

_MAX_FLOAT = sys.float_info.max
_MAX_WINDOWS = 10_000

ConditionKind = Literal["above", "below", "change", "zscore", "absent"]


class Condition(msgspec.Struct, frozen=True):
    """When a rule fires and when it clears."""

    kind: ConditionKind
    limit: float
    clear: float
    #: The number of previous windows with which a window is compared.
    over: int = 0


def above(limit: float, *, clear: float | None = None) -> Condition:
    """Fire above the limit; clear at ``clear`` (the limit by default) or below."""
    return _condition("above", limit, clear)


def below(limit: float, *, clear: float | None = None) -> Condition:
    """Fire below the limit; clear at ``clear`` (the limit by default) or above."""
    return _condition("below", limit, clear)


def change(by: float, *, over: int = 3, clear: float | None = None) -> Condition:
    """Fire if the value differs from the average of the ``over`` previous windows by more than this share of it."""
    return _condition("change", by, clear, over)


def zscore(limit: float = 3.0, *, over: int = 20, clear: float | None = None) -> Condition:
    """Fire if the value is over ``limit`` standard deviations from the average of the ``over`` previous windows."""
    return _condition("zscore", limit, clear, over)


def absent(seconds: float) -> Condition:
    """Fire if a key has had no window for so long; clear with its next window."""
    return _condition("absent", seconds)


_CONDITIONS: Mapping[str, Callable[..., Condition]] = {
    condition.__name__: condition for condition in (above, below, change, zscore, absent)
}


def make_condition(kind: ConditionKind, limit: float, **options: Any) -> Condition:
    """Return the condition of a kind. Raises InvalidRequest for an option that the kind does not have."""
    try:
        return _CONDITIONS[kind](limit, **options)
    except TypeError:
        raise InvalidRequest(f"{kind} does not take {' and '.join(options)}") from None


class Rule(msgspec.Struct, frozen=True):
    """An alert rule; made by :func:`rule`."""

    name: str
    #: The queue of the results.
    queue: str
    #: The field of a result, which may be dotted.
    value: str
    condition: Condition
    #: The queue of the alerts.
    alerts: str = "alerts"
    #: The number of consecutive windows before the rule fires, and before it clears.
    fire_after: int = 1
    clear_after: int = 1
    #: The query whose open windows are evaluated, too.
    live: str | None = None
    #: Keys that are absent if they never have a window.
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
    """Define an alert rule.

    ::

        rule("hot", on="readings-5s", value="avg", when=above(80, clear=75), fire_after=2)

    Args:
        name: The name of the rule.
        on: The queue of the results, which a stream's ``.to(...)`` names.
        when: ``above``, ``below``, ``change``, ``zscore`` or ``absent``.
        value: The field of the results to evaluate.
        alerts: The queue of the alerts.
        fire_after: For how many windows in a row the condition holds before the rule fires.
        clear_after: For how many windows in a row the condition does not hold before the rule clears.
        live: The id of the query, to evaluate its open windows, too. Only for ``above`` and values that grow.
        expect: Keys that are absent if they never have a window.
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
    check_integer("fire_after", fire_after, 1, _MAX_WINDOWS)
    check_integer("clear_after", clear_after, 1, _MAX_WINDOWS)
    if live is not None and (when.kind != "above" or fire_after != 1):
        raise InvalidOption(
            "the value of an open window can only be above a limit for certain: use live with above(...) and "
            "fire_after=1",
            option="live",
        )
    if expect and when.kind != "absent":
        raise InvalidOption("expect names keys that may be absent: use it with absent(...)", option="expect")
    if alerts == on:
        raise InvalidRequest(f"the alerts would be evaluated as results: push them into another queue than {on!r}")
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


def _condition(kind: ConditionKind, limit: object, clear: object = None, over: int = 0) -> Condition:
    numbers: list[float] = []
    for option, value in (("limit", limit), ("clear", limit if clear is None else clear)):
        # NaN is not in the range either.
        if isinstance(value, bool) or not isinstance(value, int | float) or not -_MAX_FLOAT <= value <= _MAX_FLOAT:
            raise InvalidOption(f"{kind}: {option} must be a number, not {short_repr(value)}", option=option)
        numbers.append(float(value))
    limit_number, clear_number = numbers
    if kind in ("change", "zscore", "absent") and limit_number <= 0:
        raise InvalidOption(f"{kind}: the limit must be more than 0, not {short_repr(limit)}", option="limit")
    if clear_number < limit_number if kind == "below" else clear_number > limit_number:
        side = "above" if kind == "below" else "below"
        raise InvalidOption(
            f"{kind}: it must clear at the limit or {side} it, not at {short_repr(clear)}", option="clear"
        )
    least = {"change": 1, "zscore": 2}.get(kind, 0)
    return Condition(kind, limit_number, clear_number, check_integer("over", over, least, _MAX_WINDOWS))
