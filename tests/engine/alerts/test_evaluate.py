"""The commit that closes a window evaluates its rules: the alert appears with the window, once and in order."""

from __future__ import annotations

import asyncio
import dataclasses
from typing import Any

from penstock.core.settings import Settings
from penstock.db.pool import Database
from penstock.log.log import Log
from penstock.sinks import Alerts, RuleStore, Sinks
from penstock.stream.rules import Rule, above, change, rule
from tests.engine.pipelines import NEVER_IDLE, T0, Bench, stream


def readings(values: dict[str, list[int]]) -> list[tuple[str, dict[str, Any]]]:
    """One value for each key and each window of ten seconds, ordered by time."""
    return [
        (key, {"ts": T0 + 10 * window, "value": of_key[window]})
        for window in range(max(map(len, values.values())))
        for key, of_key in values.items()
    ]


def averages() -> Any:
    return (
        stream("readings")
        .window_tumbling(seconds=10, event_time="ts", idle_flush_seconds=NEVER_IDLE)
        .aggregate({"avg": "avg(value)"})
        .to("averages")
    )


def with_log(bench: Bench, work: Any) -> Any:
    async def run() -> Any:
        log = Log(Database(Settings(database_url=bench.url)))
        await log.open()
        try:
            return await work(log)
        finally:
            await log.close()

    return asyncio.run(run())


def save(bench: Bench, *rules: Rule) -> None:
    async def work(log: Log) -> None:
        for made in rules:
            await RuleStore(log).save(made)

    with_log(bench, work)


def alerts(bench: Bench, queue: str = "alerts") -> list[tuple[str, str, str]]:
    return [(each["rule"], each["key"], each["state"]) for each in bench.emitted(queue)]


def transactions(bench: Bench, queue: str) -> set[str]:
    """The ids of the transactions that appended to a queue."""
    id = bench.ask("SELECT id FROM penstock.queues WHERE name = %s", queue)
    return set(bench.ask(f"SELECT array_agg(xmin::text) FROM penstock.chunks_{id}_1"))  # noqa: S608


def test_a_closing_window_fires_its_alert_in_the_same_commit(bench: Bench) -> None:
    bench.queue("readings", partitions=1)
    save(
        bench,
        rule("hot", on="averages", value="avg", when=above(80, clear=70)),
        rule("jump", on="averages", value="avg", when=change(1, over=2), alerts="jumps"),
        rule("unrelated", on="other", value="avg", when=above(0)),
    )
    bench.push(readings({"boiler": [50, 90, 75, 60], "pump": [10, 10, 50, 10]}), queue="readings")
    bench.run(averages())

    assert alerts(bench) == [("hot", "boiler", "firing"), ("hot", "boiler", "cleared")]
    assert alerts(bench, "jumps") == [("jump", "pump", "firing"), ("jump", "pump", "cleared")]
    assert bench.events("alerts")[0].id.startswith("hot/boiler/")
    assert transactions(bench, "alerts") <= transactions(bench, "averages"), (
        "the alert and its window are in one transaction"
    )


def test_windows_without_key_and_end_in_their_output_fire_once(bench: Bench) -> None:
    bench.queue("readings", partitions=1)
    hot = rule("hot", on="averages", value="mean", when=above(80), fire_after=2)
    save(bench, hot)
    bench.push(readings({"boiler": [50, 90, 91, 60, 99, 60], "pump": [10] * 6}), queue="readings")
    selected = dataclasses.replace(averages(), outputs={"mean": "avg"})
    bench.run(selected)

    async def follow(log: Log) -> None:
        await Sinks(log=log).add("averages", Alerts(hot)).run(idle_seconds=0.3)

    with_log(bench, follow)
    assert alerts(bench) == [("hot", "boiler", "firing"), ("hot", "boiler", "cleared")]
    assert all("window_end" in each for each in bench.emitted("alerts"))
    assert set(bench.emitted("averages")[0]) == {"mean"}


def test_the_alerts_sink_fires_no_second_time(bench: Bench) -> None:
    bench.queue("readings", partitions=1)
    hot = rule("hot", on="averages", value="avg", when=above(80))
    save(bench, hot)
    bench.push(readings({"boiler": [50, 90, 60, 95, 40]}), queue="readings")
    bench.run(averages())

    async def follow(log: Log) -> int:
        sinks = Sinks(log=log).add("averages", Alerts(hot))
        await sinks.run(idle_seconds=0.3)
        return sinks.workers[0].counters.written

    assert with_log(bench, follow) == 5
    assert [state for _, _, state in alerts(bench)] == ["firing", "cleared", "firing", "cleared"]
    assert len({event.id for event in bench.events("alerts")}) == 4, (
        "one cycle closed all windows, and each alert has its own id"
    )


def test_a_rule_without_its_queue_does_not_stop_the_query(bench: Bench) -> None:
    bench.queue("readings", partitions=1)
    save(bench, rule("hot", on="averages", value="avg", when=above(80)))
    bench.penstock.queue("alerts").delete()
    bench.push(readings({"boiler": [90, 90]}), queue="readings")

    assert bench.run(averages()).status.windows == 2
    assert len(bench.emitted("averages")) == 2
