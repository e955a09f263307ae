"""Rules look at windows in the cycle that closes them: an alert is there when its window is, once, and in order."""

from __future__ import annotations

import asyncio
import dataclasses
from typing import Any

from penstock.core.settings import Settings
from penstock.db.pool import Database
from penstock.log.log import Log
from penstock.sinks import Alerts, Rules, Sinks
from penstock.stream.rules import Rule, above, change, rule
from tests.engine.pipelines import NEVER_IDLE, T0, Bench, stream


def readings(values: dict[str, list[int]]) -> list[tuple[str, dict[str, Any]]]:
    """A value for each window of ten seconds, of each key, in the order of time."""
    return [
        (key, {"ts": T0 + 10 * place, "value": some[place]})
        for place in range(max(map(len, values.values())))
        for key, some in values.items()
    ]


def averages() -> Any:
    return (
        stream("readings")
        .window_tumbling(seconds=10, event_time="ts", idle_flush_seconds=NEVER_IDLE)
        .aggregate({"avg": "avg(value)"})
        .to("averages")
    )


def in_log(bench: Bench, work: Any) -> Any:
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
            await Rules(log).save(made)

    in_log(bench, work)


def alerts(bench: Bench, queue: str = "alerts") -> list[tuple[str, str, str]]:
    return [(each["rule"], each["key"], each["state"]) for each in bench.emitted(queue)]


def transactions(bench: Bench, queue: str) -> set[str]:
    """Those that have appended to a queue."""
    id = bench.ask("SELECT id FROM penstock.queues WHERE name = %s", queue)
    return set(bench.ask(f"SELECT array_agg(xmin::text) FROM penstock.chunks_{id}_1"))  # noqa: S608


def test_a_window_that_closes_rings_in_the_same_commit_with_nobody_following(bench: Bench) -> None:
    bench.queue("readings", partitions=1)
    save(
        bench,
        rule("hot", on="averages", value="avg", when=above(80, clear=70)),
        rule("jump", on="averages", value="avg", when=change(1, over=2), alerts="jumps"),
        rule("elsewhere", on="other", value="avg", when=above(0)),
    )
    bench.push(readings({"boiler": [50, 90, 75, 60], "pump": [10, 10, 50, 10]}), queue="readings")
    bench.run(averages())

    assert alerts(bench) == [("hot", "boiler", "firing"), ("hot", "boiler", "cleared")]
    assert alerts(bench, "jumps") == [("jump", "pump", "firing"), ("jump", "pump", "cleared")]
    assert bench.events("alerts")[0].id.startswith("hot/boiler/")
    assert transactions(bench, "alerts") <= transactions(bench, "averages"), "an alert is there when its window is"


def test_windows_that_are_sent_on_without_their_key_and_end_ring_for_them_all_the_same_and_once(bench: Bench) -> None:
    bench.queue("readings", partitions=1)
    hot = rule("hot", on="averages", value="mean", when=above(80), fire_after=2)
    save(bench, hot)
    bench.push(readings({"boiler": [50, 90, 91, 60, 99, 60], "pump": [10] * 6}), queue="readings")
    selected = dataclasses.replace(averages(), outputs={"mean": "avg"})
    bench.run(selected)

    async def follow(log: Log) -> None:
        await Sinks(log=log).add("averages", Alerts(hot)).run(idle_seconds=0.3)

    in_log(bench, follow)
    assert alerts(bench) == [("hot", "boiler", "firing"), ("hot", "boiler", "cleared")]
    assert all("window_end" in each for each in bench.emitted("alerts"))
    assert set(bench.emitted("averages")[0]) == {"mean"}


def test_who_follows_the_queue_as_well_rings_no_second_time(bench: Bench) -> None:
    bench.queue("readings", partitions=1)
    hot = rule("hot", on="averages", value="avg", when=above(80))
    save(bench, hot)
    bench.push(readings({"boiler": [50, 90, 60, 95, 40]}), queue="readings")
    bench.run(averages())

    async def follow(log: Log) -> int:
        sinks = Sinks(log=log).add("averages", Alerts(hot))
        await sinks.run(idle_seconds=0.3)
        return sinks.outlets[0].counters.written

    assert in_log(bench, follow) == 5
    assert [state for _, _, state in alerts(bench)] == ["firing", "cleared", "firing", "cleared"]
    assert len({event.id for event in bench.events("alerts")}) == 4, "one cycle closed them, and each is another alert"


def test_a_rule_whose_queue_is_gone_stops_no_query(bench: Bench) -> None:
    bench.queue("readings", partitions=1)
    save(bench, rule("hot", on="averages", value="avg", when=above(80)))
    bench.penstock.queue("alerts").delete()
    bench.push(readings({"boiler": [90, 90]}), queue="readings")

    assert bench.run(averages()).status.windows == 2
    assert len(bench.emitted("averages")) == 2
