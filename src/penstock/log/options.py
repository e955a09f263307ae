"""What a queue can be told, and the checking of it and of the numbers and times in requests."""

from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from penstock.core.errors import InvalidOption, InvalidRequest, shown
from penstock.core.names import key_problem

#: The largest number of hash partitions: more cost reads without giving parallelism.
MAX_PARTITIONS = 1024
#: The longest lease.
MAX_LEASE_SECONDS = 7 * 86400
#: More than any offset or number of events.
MAX_COUNT = 2**62
#: The largest number that a row can have.
MAX_ID = 2**63 - 1

_SECONDS = ("a number of seconds", (int, float))
_COUNT = ("a whole number", (int,))
_FLAG = ("true or false", (bool,))
#: How far behind its slowest group a queue may be, unless it is told.
DEFAULT_DEPTH = 100_000

# option: (kind, lowest, highest, may be None)
_RULES: dict[str, tuple[tuple[str, tuple[type, ...]], float, float, bool]] = {
    "lease_seconds": (_SECONDS, 0.1, MAX_LEASE_SECONDS, False),
    "retry_limit": (_COUNT, 0, 1_000_000_000, False),
    "retry_delay_ms": (_COUNT, 0, 86_400_000, False),
    "expiry_limit": (_COUNT, 1, 1_000_000_000, True),
    "delay_seconds": (_SECONDS, 0, 366 * 86400, False),
    "quiet_seconds": (_SECONDS, 0, 366 * 86400, False),
    "retention_seconds": (_SECONDS, 1, 1e18, True),
    "retention_drops_unread": (_FLAG, 0, 1, False),
    "dedup_window_seconds": (_SECONDS, 0, 366 * 86400, False),
    "max_depth_events": (_COUNT, 1, MAX_COUNT, True),
    "max_event_bytes": (_COUNT, 1, 64 << 20, True),
    "max_redrives": (_COUNT, 0, 1_000_000, False),
    "away_seconds": (_SECONDS, 300, 366 * 86400, True),
}

_YES_OR_NO = ("yes", "no")
# Options that are one of a few words.
_WORDS: dict[str, tuple[str, ...]] = {"overflow": ("refuse", "shed")}
# Options that are the name of a field of the events, or None.
_FIELD_NAMES = ("key_field", "id_field", "time_field")

# Names that users of other queues know, for the same options.
_ALSO_CALLED = {
    "lease_time": "lease_seconds",
    "retry_delay": "retry_delay_ms",
    "delayed_processing": "delay_seconds",
    "window_buffer": "quiet_seconds",
    "max_size": "max_depth_events",
    "dedup_window": "dedup_window_seconds",
}

DEFAULTS: dict[str, Any] = {
    "lease_seconds": 300.0,
    "retry_limit": 3,
    "retry_delay_ms": 1000,
    "expiry_limit": None,
    "delay_seconds": 0.0,
    "quiet_seconds": 0.0,
    "retention_seconds": None,
    "retention_drops_unread": False,
    "max_depth_events": DEFAULT_DEPTH,
    "max_event_bytes": None,
    "max_redrives": 10,
    "overflow": "refuse",
    "away_seconds": 86_400.0,
    "key_field": None,
    "id_field": None,
    "time_field": None,
}
#: Deduplication is on where events are commands to act upon, off where they are measurements by the million.
DEFAULT_DEDUP_SECONDS = {"key": 3600.0, "hash": 0.0}


def check_options(options: Mapping[str, object]) -> dict[str, Any]:
    """Return the options under their own names, or raise InvalidOption for the first that is wrong."""
    checked: dict[str, Any] = {}
    for given, value in options.items():
        name = _ALSO_CALLED.get(given, given)
        if name not in DEFAULTS and name not in _RULES:
            known = ", ".join(sorted({*DEFAULTS, *_RULES}))
            raise InvalidOption(f"there is no option {shown(given)}; a queue has {known}", option=given)
        if name in checked:
            raise InvalidOption(f"{given!r} and {name!r} are the same option; give one", option=given)
        checked[name] = _check(name, given, value)
    return checked


def choices_of(name: str) -> tuple[str, ...]:
    """The words of which an option is one; none, if it is a number or a name."""
    return _YES_OR_NO if name in _RULES and _RULES[name][0] is _FLAG else _WORDS.get(name, ())


def may_be_none(name: str) -> bool:
    """Whether an option can be switched off."""
    return name in _FIELD_NAMES or (name in _RULES and _RULES[name][3])


def read_option(name: str, text: str) -> Any:
    """An option's value as a person writes it (``none``, ``yes``, a number, a word), or InvalidOption says why not."""
    text = text.strip()
    value: Any = text
    if text.lower() == "none" and may_be_none(name):
        value = None
    elif choices_of(name) is _YES_OR_NO and text in _YES_OR_NO:
        value = text == "yes"
    elif name in _RULES:
        try:
            value = float(text) if _RULES[name][0] is _SECONDS else int(text)
        except ValueError:
            value = text
    if text == "":
        none = " or none" if may_be_none(name) else ""
        raise InvalidOption(f"{name} needs a value: write one{none}", option=name)
    return check_options({name: value})[name]


def written_option(value: object) -> str:
    """The same the other way round."""
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)


def check_partitioning(partitioning: object, partitions: object) -> tuple[str, int | None]:
    """Return how a queue is partitioned, if it can be so."""
    if partitioning not in ("key", "hash"):
        raise InvalidOption(
            f"partitioning is 'key' (a lane per key) or 'hash' (a fixed number), not {shown(partitioning)}",
            option="partitioning",
        )
    if partitioning == "key":
        if partitions is not None:
            raise InvalidOption(
                "a queue by 'key' makes its partitions itself: leave partitions out", option="partitions"
            )
        return "key", None
    count = 8 if partitions is None else partitions
    if not isinstance(count, int) or isinstance(count, bool) or not 1 <= count <= MAX_PARTITIONS:
        raise InvalidOption(f"partitions must be 1 to {MAX_PARTITIONS}, not {shown(count)}", option="partitions")
    return "hash", count


def check_whole(what: str, value: object, lowest: int, highest: int) -> int:
    """Return a whole number if it is one, in its range."""
    if not isinstance(value, int) or isinstance(value, bool) or not lowest <= value <= highest:
        raise InvalidRequest(f"{what} must be a whole number from {lowest:,} to {highest:,}, not {shown(value)}")
    return value


def check_lease_seconds(seconds: object) -> float:
    """Return how long a lease is to last, if one can."""
    if not isinstance(seconds, int | float) or isinstance(seconds, bool) or not 0 < seconds <= MAX_LEASE_SECONDS:
        raise InvalidRequest(f"a lease may last up to 7 days: give a number of seconds, not {shown(seconds)}")
    return seconds


def check_moment(what: str, moment: object) -> datetime | None:
    """Return a time if it says which moment it means, or None."""
    if moment is None:
        return None
    if not isinstance(moment, datetime) or moment.utcoffset() is None:
        raise InvalidRequest(f"{what} must be a time with a zone, such as datetime.now(UTC), not {shown(moment)}")
    return moment


def _check(name: str, given: str, value: object) -> Any:
    if name in _WORDS:
        if value is None:
            return DEFAULTS[name]
        if value not in _WORDS[name]:
            raise InvalidOption(f"{given} is {' or '.join(map(repr, _WORDS[name]))}, not {shown(value)}", option=given)
        return value
    if name in _FIELD_NAMES:
        problem = None if value is None else key_problem(value)
        if problem is not None:
            raise InvalidOption(f"{given} is the name of a field of the events: it {problem}", option=given)
        return value
    (kind, types), lowest, highest, optional = _RULES[name]
    if value is None:
        if optional:
            return None
        if name == "dedup_window_seconds":
            return 0.0
        return DEFAULTS[name]
    if not isinstance(value, types) or (isinstance(value, bool) and bool not in types):
        raise InvalidOption(f"{given} must be {kind}, not {shown(value)}", option=given)
    if isinstance(value, float) and not math.isfinite(value):
        raise InvalidOption(f"{given} must be finite, not {value!r}", option=given)
    if isinstance(value, (int, float)) and not lowest <= value <= highest:
        raise InvalidOption(
            f"{given} must be at least {lowest:g} and at most {highest:g}, not {shown(value)}", option=given
        )
    return float(value) if types == _SECONDS[1] and isinstance(value, int) else value
