"""What needs somebody, the worst first, each with the page where it can be mended."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal

from penstock.console.data.vitals import Sight
from penstock.console.page import link
from penstock.core import formatting
from penstock.server.metrics import database as database_metrics

#: A queue that holds so much of what it may will soon refuse pushes.
_NEARLY_FULL = 0.8
#: A group whose oldest event waits for longer than this is behind.
_BEHIND_SECONDS = 60.0
_RANK = {"bad": 0, "warn": 1, "info": 2}


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that needs somebody."""

    tone: Literal["bad", "warn", "info"]
    what: str
    #: Where it is mended.
    href: str


def findings(sight: Sight, sees: Callable[[str], bool], sees_all: bool) -> list[Finding]:
    """All there is, the worst first."""
    found = [*_queues(sight, sees), *_sinks(sight, sees), *_dead_letters(sight, sees), *_groups(sight, sees)]
    if sees_all:
        found += [*_alerts(sight), *_queries(sight)]
    return sorted(found, key=lambda each: _RANK[each.tone])


def _alerts(sight: Sight) -> Iterator[Finding]:
    for rule, key, _ in sight.firing[:5]:
        yield Finding("bad", f"Alert {rule} fires" + (f" for {key}" if key else ""), link("/alerts"))
    if sight.firing_count > 5:
        yield Finding("bad", f"{formatting.number(sight.firing_count - 5)} more alerts fire", link("/alerts"))


def _queries(sight: Sight) -> Iterator[Finding]:
    lags: dict[str, float] = {}
    for (_, group), lag in sight.values(database_metrics.GROUP_LAG).items():
        lags[group] = lags.get(group, 0) + lag
    paused = sight.values(database_metrics.QUERY_PAUSED)
    for (query,), running in sight.values(database_metrics.QUERY_RUNNING).items():
        waiting = f"; {formatting.number(lags[query])} events wait" if lags.get(query) else ""
        href = link("/queries", query=query)
        if query in sight.failed:
            yield Finding("bad", f"The last cycle of {query} failed: {_line(sight.failed[query])}", href)
        if not running:
            yield Finding("bad" if waiting else "info", f"Nobody runs {query}{waiting}", href)
        elif paused.get((query,)):
            yield Finding("warn", f"{query} is paused{waiting}", href)


def _dead_letters(sight: Sight, sees: Callable[[str], bool]) -> Iterator[Finding]:
    for (queue, group), events in sight.values(database_metrics.DEAD_LETTERS).items():
        if sees(queue) and events:
            letters = "dead letter" if events == 1 else "dead letters"
            what = f"{formatting.number(events)} {letters} of {group} in {queue}"
            yield Finding("warn", what, link("/dead-letters", queue=queue))


def _queues(sight: Sight, sees: Callable[[str], bool]) -> Iterator[Finding]:
    counts = sight.values(database_metrics.GROUP_COUNTS)
    deepest: dict[str, float] = {}
    for (queue, group), lag in sight.values(database_metrics.GROUP_LAG).items():
        if counts.get((queue, group)):
            deepest[queue] = max(deepest.get(queue, 0), lag)
    for queue, depth in deepest.items():
        limit = sight.limits.get(queue)
        if limit and sees(queue) and depth >= limit * _NEARLY_FULL:
            full = depth >= limit
            what = (
                f"{queue} is {'full' if full else f'{depth / limit:.0%} full'}: {formatting.number(depth)} events wait"
            )
            yield Finding("bad" if full else "warn", what, link("/queues", queue=queue))


def _sinks(sight: Sight, sees: Callable[[str], bool]) -> Iterator[Finding]:
    lags = sight.values(database_metrics.GROUP_LAG)
    for (queue, sink), running in sight.values(database_metrics.SINK_RUNNING).items():
        waiting, href = lags.get((queue, sink), 0), link("/queues", queue=queue, group=sink)
        if not sees(queue) or not waiting:
            continue
        if not running:
            yield Finding(
                "info", f"Nobody runs the sink {sink}: {formatting.number(waiting)} events of {queue} wait", href
            )
        elif (queue, sink) in sight.failing_sinks:
            error, is_resting = sight.failing_sinks[queue, sink]
            doing = "has failed too often and rests" if is_resting else "fails"
            yield Finding("bad" if is_resting else "warn", f"The sink {sink} of {queue} {doing}: {_line(error)}", href)


def _groups(sight: Sight, sees: Callable[[str], bool]) -> Iterator[Finding]:
    counts = sight.values(database_metrics.GROUP_COUNTS)
    running = sight.values(database_metrics.QUERY_RUNNING)
    sinks = sight.values(database_metrics.SINK_RUNNING)
    for (queue, group), oldest in sight.values(database_metrics.GROUP_OLDEST).items():
        # A query or a sink that nobody runs, or that fails, is told of already.
        if not running.get((group,), 1) or not sinks.get((queue, group), 1) or (queue, group) in sight.failing_sinks:
            continue
        if not counts.get((queue, group)):
            continue
        if sees(queue) and oldest > _BEHIND_SECONDS:
            yield Finding(
                "warn", f"{group} is {formatting.duration(oldest)} behind in {queue}", link("/queues", queue=queue)
            )


def _line(error: str) -> str:
    first = error.strip().splitlines()[0] if error.strip() else "no reason was given"
    return first if len(first) <= 140 else f"{first[:139]}…"
