"""SELECT statements for the results of an engine."""

from __future__ import annotations

#: A materialized view of Penstock, which has no history.
VIEW = "view"

# The open windows, and a view of all windows with is_open.
_LIVE = {"penstock": 'penstock_live."{}"', VIEW: 'penstock_live."{}"', "plain_spark": "{}_live"}
_ALL = {"penstock": 'penstock_history."{}"', VIEW: 'penstock_live."{}"', "plain_spark": "{}_all"}


def live_rows(engine: str, name: str) -> str:
    """Return the SELECT of key and highest ``seq`` of the given keys (%s)."""
    live = _LIVE[engine].format(name)
    return f"SELECT key, max(seq)::bigint FROM {live} WHERE key = ANY(%s) GROUP BY key"  # noqa: S608


def totals(engine: str, name: str) -> str:
    """Return the SELECT of the number of counted events."""
    return f"SELECT sum(count)::bigint FROM {_ALL[engine].format(name)}"  # noqa: S608


def sums(engine: str, name: str) -> str:
    """Return the SELECT of the count and total of each key."""
    return f"SELECT key, sum(count)::bigint, sum(total) FROM {_ALL[engine].format(name)} GROUP BY key"  # noqa: S608


def windows(engine: str, name: str, highest: str = "max") -> str:
    """Return the SELECT of key, window start in ms, count, total, maximum, and whether the window is closed."""
    start = "(extract(epoch FROM window_start) * 1000)::bigint"
    return f"SELECT key, {start}, count, total, {highest}, NOT is_open FROM {_ALL[engine].format(name)}"  # noqa: S608
