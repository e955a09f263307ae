"""The location of an engine's results, to read them without loading the engine."""

from __future__ import annotations

# The open windows, and the open and the closed ones in one view, with is_open.
_LIVE = {"penstock": 'penstock_live."{}"', "plain_spark": "{}_live"}
_ALL = {"penstock": 'penstock_history."{}"', "plain_spark": "{}_all"}


def live_rows(engine: str, name: str) -> str:
    """The SELECT of key and highest ``seq`` of some keys (%s), as a dashboard would ask."""
    live = _LIVE[engine].format(name)
    return f"SELECT key, max(seq)::bigint FROM {live} WHERE key = ANY(%s) GROUP BY key"  # noqa: S608


def totals(engine: str, name: str) -> str:
    """The SELECT of how many events were counted in all, in open windows and in closed ones."""
    return f"SELECT sum(count)::bigint FROM {_ALL[engine].format(name)}"  # noqa: S608


def sums(engine: str, name: str) -> str:
    """The SELECT of each key's count and total, over open windows and closed ones."""
    return f"SELECT key, sum(count)::bigint, sum(total) FROM {_ALL[engine].format(name)} GROUP BY key"  # noqa: S608


def windows(engine: str, name: str, highest: str = "max") -> str:
    """Return the SELECT of key, window start in ms, count, total, maximum, and whether the window is closed."""
    start = "(extract(epoch FROM window_start) * 1000)::bigint"
    return f"SELECT key, {start}, count, total, {highest}, NOT is_open FROM {_ALL[engine].format(name)}"  # noqa: S608
