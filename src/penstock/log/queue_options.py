"""Queue options and their validation, and validation of numbers and times in requests."""

from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import datetime
from typing import Any, NamedTuple

from penstock.core.errors import InvalidOption, InvalidRequest, short_repr
from penstock.core.names import find_key_problem
from penstock.core.option_checks import check_integer as check_integer

#: The largest number of hash partitions. More partitions make reads slower and add no parallelism.
MAX_PARTITIONS = 1024
MAX_LEASE_SECONDS = 7 * 86400
#: An upper bound for offsets and numbers of events.
MAX_COUNT = 2**62
#: The largest value of a bigint column.
MAX_ID = 2**63 - 1


class _NumberType(NamedTuple):
    description: str
    types: tuple[type, ...]


class _NumberRule(NamedTuple):
    type: _NumberType
    lowest: float
    highest: float
    default: float | None
    is_nullable: bool = False


_SECONDS = _NumberType("a number of seconds", (int, float))
_COUNT = _NumberType("a whole number", (int,))
_FLAG = _NumberType("true or false", (bool,))
#: The default of ``max_depth_events``.
DEFAULT_DEPTH = 100_000

_NUMBERS: dict[str, _NumberRule] = {
    "lease_seconds": _NumberRule(_SECONDS, 0.1, MAX_LEASE_SECONDS, 300.0),
    "retry_limit": _NumberRule(_COUNT, 0, 1_000_000_000, 3),
    "retry_delay_ms": _NumberRule(_COUNT, 0, 86_400_000, 1000),
    "expiry_limit": _NumberRule(_COUNT, 1, 1_000_000_000, None, is_nullable=True),
    "delay_seconds": _NumberRule(_SECONDS, 0, 366 * 86400, 0.0),
    "quiet_seconds": _NumberRule(_SECONDS, 0, 366 * 86400, 0.0),
    "retention_seconds": _NumberRule(_SECONDS, 1, 1e18, None, is_nullable=True),
    "retention_drops_unread": _NumberRule(_FLAG, 0, 1, False),
    "max_depth_events": _NumberRule(_COUNT, 1, MAX_COUNT, DEFAULT_DEPTH, is_nullable=True),
    # Whoever sets max_depth_events sets it to the same value.
    "max_unread_events": _NumberRule(_COUNT, 1, MAX_COUNT, None, is_nullable=True),
    "max_event_bytes": _NumberRule(_COUNT, 1, 64 << 20, None, is_nullable=True),
    "encrypted": _NumberRule(_FLAG, 0, 1, False),
    "readable_from_sql": _NumberRule(_FLAG, 0, 1, False),
    "max_redrives": _NumberRule(_COUNT, 0, 1_000_000, 10),
    "away_seconds": _NumberRule(_SECONDS, 300, 366 * 86400, 86_400.0, is_nullable=True),
    # The default depends on the partitioning. None turns it off.
    "dedup_window_seconds": _NumberRule(_SECONDS, 0, 366 * 86400, 0.0),
}

_YES_OR_NO = ("yes", "no")
# Options with a fixed set of values.
_CHOICES: dict[str, tuple[str, ...]] = {
    "overflow": ("refuse", "shed"),
    "invalid_events": ("auto", "refuse", "dead_letter"),
}
# Options that name a field of the events.
_FIELD_NAMES = ("key_field", "id_field", "time_field")

#: The meaning of each option, in the help of the command line and on the console.
DESCRIPTIONS = {
    "lease_seconds": "How long a consumer may hold events before they are delivered to another consumer.",
    "retry_limit": "How often a failed event is retried before it becomes a dead letter.",
    "retry_delay_ms": "The delay before a retry.",
    "expiry_limit": "How often the lease on an event may expire before it becomes a dead letter; none: no limit.",
    "delay_seconds": "The delay before an event is first delivered.",
    "quiet_seconds": "How long a partition must receive no push before it is delivered.",
    "retention_seconds": "How long events are kept at least; none: forever.",
    "retention_drops_unread": "Whether retention drops events that a group has not read.",
    "dedup_window_seconds": "How long an event with the same id counts as a duplicate; 0: no deduplication.",
    "max_depth_events": "The lag of the slowest group above which pushes are refused; none: no limit.",
    "max_unread_events": "The number of events above which a queue without groups refuses pushes; none: no limit.",
    "overflow": "How a full queue handles pushes: refuse them, or drop and count them.",
    "invalid_events": (
        "How a push over HTTP with invalid events is treated: refuse it, or store the valid events and make dead "
        "letters of the others; auto: refuse it unless it has lines and no idempotency key."
    ),
    "away_seconds": "How long an inactive group still holds pushes back; none: forever.",
    "key_field": "The field that holds the key of an event, unless the push names one.",
    "id_field": "The field that holds the id of an event, unless the push names one.",
    "time_field": "The field that holds the time of an event, unless the push names one.",
    "max_event_bytes": "The maximum size of an event, in bytes of JSON.",
    "encrypted": "Whether events are stored encrypted; needs PENSTOCK_ENCRYPTION_KEY_FILE in every process.",
    "readable_from_sql": "Whether new events are stored so that penstock.pop() can read them; they take more space.",
    "max_redrives": "How often a dead letter may be redriven.",
}

# Names of the same options in other queue systems.
_ALIASES = {
    "lease_time": "lease_seconds",
    "retry_delay": "retry_delay_ms",
    "delayed_processing": "delay_seconds",
    "window_buffer": "quiet_seconds",
    "max_size": "max_depth_events",
    "dedup_window": "dedup_window_seconds",
}

DEFAULTS: dict[str, Any] = {
    **{name: rule.default for name, rule in _NUMBERS.items() if name != "dedup_window_seconds"},
    "overflow": "refuse",
    "invalid_events": "auto",
    **dict.fromkeys(_FIELD_NAMES),
}
#: Deduplication is on for queues by key, whose events are usually commands, and off for hash queues, whose events are
#: usually measurements in large numbers.
DEFAULT_DEDUP_SECONDS = {"key": 3600.0, "hash": 0.0}


def check_options(options: Mapping[str, object]) -> dict[str, Any]:
    """Validate options and return them under their canonical names; raise InvalidOption for the first invalid one."""
    checked: dict[str, Any] = {}
    for given, value in options.items():
        name = _ALIASES.get(given, given)
        if name not in DEFAULTS and name not in _NUMBERS:
            known = ", ".join(sorted({*DEFAULTS, *_NUMBERS}))
            raise InvalidOption(f"there is no option {short_repr(given)}; a queue has {known}", option=given)
        if name in checked:
            raise InvalidOption(f"{given!r} and {name!r} are the same option: give only one of them", option=given)
        checked[name] = _check(name, given, value)
    return checked


def option_choices(name: str) -> tuple[str, ...]:
    """Return the values that an option can have, or nothing if it is a number or a name."""
    return _YES_OR_NO if name in _NUMBERS and _NUMBERS[name].type is _FLAG else _CHOICES.get(name, ())


def is_nullable_option(name: str) -> bool:
    return name in _FIELD_NAMES or (name in _NUMBERS and _NUMBERS[name].is_nullable)


def parse_option(name: str, text: str) -> Any:
    """Parse an option's value from text such as ``none``, ``yes`` or a number; raise InvalidOption if it is invalid."""
    text = text.strip()
    value: Any = text
    if text.lower() == "none" and is_nullable_option(name):
        value = None
    elif option_choices(name) is _YES_OR_NO and text in _YES_OR_NO:
        value = text == "yes"
    elif name in _NUMBERS:
        try:
            value = float(text) if _NUMBERS[name].type is _SECONDS else int(text)
        except ValueError:
            value = text
    if text == "":
        none = " or none" if is_nullable_option(name) else ""
        raise InvalidOption(f"{name} needs a value: enter one{none}", option=name)
    return check_options({name: value})[name]


def format_option(value: object) -> str:
    """Format an option's value as text that :func:`parse_option` accepts."""
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)


def check_partitioning(partitioning: object, partitions: object) -> tuple[str, int | None]:
    """Validate a partitioning and return it with its number of partitions."""
    if partitioning not in ("key", "hash"):
        raise InvalidOption(
            f"partitioning must be 'key' (one partition for each key) or 'hash' (a fixed number of partitions), "
            f"not {short_repr(partitioning)}",
            option="partitioning",
        )
    if partitioning == "key":
        if partitions is not None:
            raise InvalidOption(
                "a queue that is partitioned by 'key' creates its partitions itself: omit partitions",
                option="partitions",
            )
        return "key", None
    count = 8 if partitions is None else partitions
    if not isinstance(count, int) or isinstance(count, bool) or not 1 <= count <= MAX_PARTITIONS:
        raise InvalidOption(f"partitions must be 1 to {MAX_PARTITIONS}, not {short_repr(count)}", option="partitions")
    return "hash", count


def check_lease_seconds(seconds: object) -> float:
    """Return the duration of a lease if it is valid, or raise InvalidRequest."""
    if not isinstance(seconds, int | float) or isinstance(seconds, bool) or not 0 < seconds <= MAX_LEASE_SECONDS:
        raise InvalidRequest(
            f"the time of a lease must be more than 0 and at most {MAX_LEASE_SECONDS:,} seconds, "
            f"not {short_repr(seconds)}"
        )
    return seconds


def check_timestamp(name: str, time: object) -> datetime | None:
    """Return the time if it has a time zone, or None; raise InvalidRequest otherwise."""
    if time is None:
        return None
    if not isinstance(time, datetime) or time.utcoffset() is None:
        raise InvalidRequest(f"{name} must be a time with a zone, such as datetime.now(UTC), not {short_repr(time)}")
    return time


def _check(name: str, given: str, value: object) -> Any:
    if name in _CHOICES:
        if value is None:
            return DEFAULTS[name]
        if value not in _CHOICES[name]:
            choices = " or ".join(map(repr, _CHOICES[name]))
            raise InvalidOption(f"{given} must be {choices}, not {short_repr(value)}", option=given)
        return value
    if name in _FIELD_NAMES:
        problem = None if value is None else find_key_problem(value)
        if problem is not None:
            raise InvalidOption(f"{given} must be the name of a field of the events: it {problem}", option=given)
        return value
    rule = _NUMBERS[name]
    if value is None:
        return None if rule.is_nullable else rule.default
    if not isinstance(value, rule.type.types) or (isinstance(value, bool) and rule.type is not _FLAG):
        raise InvalidOption(f"{given} must be {rule.type.description}, not {short_repr(value)}", option=given)
    if isinstance(value, float) and not math.isfinite(value):
        raise InvalidOption(f"{given} must be finite, not {value!r}", option=given)
    if isinstance(value, (int, float)) and not rule.lowest <= value <= rule.highest:
        raise InvalidOption(
            f"{given} must be at least {rule.lowest:g} and at most {rule.highest:g}, not {short_repr(value)}",
            option=given,
        )
    return float(value) if rule.type is _SECONDS and isinstance(value, int) else value
