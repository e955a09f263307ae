"""Rules on the results in a queue: alerts arrive in their queue, each once."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

from penstock.log.log import Log
from penstock.sinks import Alerts, Rules, Sinks
from penstock.stream.rules import Rule, above, absent, rule
from tests.cli.command_line import CommandLine
from tests.log.logs import drain, eventually, push

BEGIN = datetime(2026, 1, 31, 12, 0, tzinfo=UTC)


def results(key: str, values: list[float], first: int = 0) -> list[dict[str, Any]]:
    return [
        {
            "key": key,
            "window_start": (BEGIN + timedelta(seconds=5 * n)).isoformat(),
            "window_end": (BEGIN + timedelta(seconds=5 * n + 5)).isoformat(),
            "avg": value,
        }
        for n, value in enumerate(values, first)
    ]


async def saved(log: Log, made: Rule) -> Rule:
    await Rules(log).save(made)
    return made


async def alerts(log: Log, queue: str) -> list[tuple[str, str]]:
    return [(event.data["key"], event.data["state"]) for event in await drain(log, queue)]


async def test_alerts_go_into_their_queue_and_what_fires_is_known(log: Log, queue: str) -> None:
    hot = await saved(log, rule(queue, on=queue, value="avg", when=above(80), alerts=f"{queue}-alerts"))
    await push(log, results("boiler", [70, 85, 90, 60, 99]), queue=queue, key="boiler")
    await push(log, results("pump", [70, 75]), queue=queue, key="pump")

    await Sinks(log=log).add(queue, Alerts(hot), batch=2).run(idle_seconds=0.2)

    found = await drain(log, hot.alerts)
    assert [(e.key, e.data["state"], e.data["value"]) for e in found] == [
        ("boiler", "firing", 85),
        ("boiler", "cleared", 60),
        ("boiler", "firing", 99),
    ]
    assert found[0].data["message"] == "boiler: avg is 85, above 80"
    assert [(name, key) for name, key, _ in await Rules(log).firing() if name == queue] == [(queue, "boiler")]
    assert await Rules(log).delete(queue)


async def test_each_alert_is_pushed_once_although_the_watcher_is_cut_off(log: Log, queue: str) -> None:
    hot = await saved(log, rule(queue, on=queue, value="avg", when=above(80), alerts=f"{queue}-alerts"))
    values = [90.0 if n % 3 == 0 else 10.0 for n in range(200)]
    await push(log, results("boiler", values), queue=queue, key="boiler")
    for _ in range(5):
        sinks = Sinks(log=log).add(queue, Alerts(hot), batch=5, lease_seconds=0.3)
        task = asyncio.create_task(sinks.outlets[0].run(idle_seconds=0.2))

        async def some(sinks: Sinks = sinks, task: Any = task) -> object:
            return sinks.outlets[0].counters.batches >= 2 or task.done()

        await eventually(some)
        task.cancel()
        await asyncio.wait([task])
    await Sinks(log=log).add(queue, Alerts(hot)).run(idle_seconds=0.5)

    found = [state for _, state in await alerts(log, hot.alerts)]
    assert found == ["firing", "cleared"] * 67


async def test_a_rule_that_is_changed_begins_anew_and_one_that_is_not_does_not(log: Log, queue: str) -> None:
    first = rule(queue, on=queue, value="avg", when=above(80), alerts=f"{queue}-alerts")
    for limit, firing in ((80, 1), (80, 1), (85, 0)):
        made = await saved(log, rule(queue, on=queue, value="avg", when=above(limit), alerts=f"{queue}-alerts"))
        if made == first and not [each for each in await Rules(log).firing() if each[0] == queue]:
            await push(log, results("boiler", [90]), queue=queue, key="boiler")
            await Sinks(log=log).add(queue, Alerts(made)).run(idle_seconds=0.2)
        (info,) = [each for each in await Rules(log).all() if each.rule.name == queue]
        assert info.firing == firing


async def test_a_key_that_falls_silent_or_never_comes_is_missed_and_comes_back(log: Log, queue: str) -> None:
    made = rule(queue, on=queue, when=absent(0.4), alerts=f"{queue}-alerts", expect=["never"])
    silent = await saved(log, made)
    await push(log, results("boiler", [1]), queue=queue, key="boiler")
    sinks = Sinks(log=log).add(queue, Alerts(silent))
    running = asyncio.create_task(sinks.run())
    found: list[tuple[str, str]] = []

    async def missed() -> object:
        found.extend(await alerts(log, silent.alerts))
        return len(found) == 2

    await eventually(missed)
    assert sorted(found) == [("boiler", "firing"), ("never", "firing")]
    await push(log, results("boiler", [1], first=1), queue=queue, key="boiler")

    async def back() -> object:
        found.extend(await alerts(log, silent.alerts))
        return ("boiler", "cleared") in found

    await eventually(back)
    sinks.stop()
    await running


async def test_an_open_window_that_is_above_already_rings_before_it_closes(log: Log, queue: str) -> None:
    async with log.database.connection() as conn:
        # Open windows as the clients of other languages keep them: the view has them beside the engine's.
        await conn.execute(
            "INSERT INTO penstock.shared_queries (name, source_queue, config_hash, group_name)"
            " VALUES (%s, %s, '', 'g')",
            [queue, queue],
        )
        await push(log, results("site", [1], first=-1), queue=queue, key="site")
        await conn.execute(
            "INSERT INTO penstock.shared_state SELECT q.id, p.id, 'a', '{\"avg\": 101}', 'site', %s, %s, now()"
            " FROM penstock.shared_queries q, penstock.partitions p WHERE q.name = %s"
            " AND p.queue_id = (SELECT id FROM penstock.queues WHERE name = %s)",
            [BEGIN, BEGIN + timedelta(seconds=5), queue, queue],
        )
    made = rule(queue, on=queue, value="avg", when=above(100), live=queue, alerts=f"{queue}-alerts")
    surge = await saved(log, made)
    sinks = Sinks(log=log).add(queue, Alerts(surge))
    running = asyncio.create_task(sinks.run())
    found: list[tuple[str, str]] = []

    async def rang() -> object:
        found.extend(await alerts(log, surge.alerts))
        return found == [("site", "firing")]

    await eventually(rang)
    await push(log, results("site", [50]), queue=queue, key="site")

    async def cleared() -> object:
        found.extend(await alerts(log, surge.alerts))
        return found == [("site", "firing"), ("site", "cleared")]

    await eventually(cleared)
    sinks.stop()
    await running


def test_rules_on_the_command_line(sinks_url: str) -> None:
    cli = CommandLine(sinks_url)
    cli.ok("queue", "create", "cli-results")
    cli.ok("queue", "push", "cli-results", '{"avg": 90}', "--key", "boiler")

    cli.ok(
        "rule", "save", "cli-hot", "--on", "cli-results", "--value", "avg", "--above", "80", "--alerts", "cli-alerts"
    )
    cli.ok("rule", "run", "--only", "cli-hot", "--idle-seconds", "0.2")
    told = cli.json("rule", "list")

    assert [each["key"] for each in told["firing"] if each["rule"] == "cli-hot"] == ["boiler"]
    assert "boiler" in cli.ok("rule", "list")
    assert "in one way" in cli.refused("rule", "save", "x", "--on", "cli-results")[1]
    cli.ok("rule", "delete", "cli-hot", "--yes")
    assert cli.refused("rule", "delete", "cli-hot", "--yes")[0] == 3
    assert cli.refused("rule", "run", "--only", "cli-hot")[0] == 3
