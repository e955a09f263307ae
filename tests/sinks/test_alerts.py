"""Rules on the results in a queue: alerts arrive in their queue, each once."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any, cast

import pytest

from penstock.core import json
from penstock.core.clock import Clock
from penstock.core.errors import QueueFull
from penstock.engine.alerts.evaluate import evaluate_rules
from penstock.log.log import Log
from penstock.log.write.encode.json_events import JsonEvents
from penstock.sinks import Alerts, RuleStore, Sinks
from penstock.stream.rules import Rule, above, absent, rule
from tests.cli.command_line import CommandLine
from tests.conditions import eventually_async
from tests.log.logs import drain, opened, push

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
    await RuleStore(log).save(made)
    return made


async def alerts(log: Log, queue: str) -> list[tuple[str, str]]:
    return [(event.data["key"], event.data["state"]) for event in await drain(log, queue)]


async def test_alerts_are_pushed_and_firing_keys_are_listed(log: Log, queue: str) -> None:
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
    assert [(name, key) for name, key, _ in await RuleStore(log).firing() if name == queue] == [(queue, "boiler")]
    assert await RuleStore(log).delete(queue)


async def test_events_without_windows_are_evaluated_and_alert_ids_are_unique(log: Log, queue: str) -> None:
    name, key = "r" * 200, "k" * 1000
    hot = await saved(log, rule(name, on=queue, value="avg", when=above(80), alerts=f"{queue}-alerts"))
    await push(log, [{"avg": each} for each in (20, 95, 99, 10, 81)], queue=queue, key=key)

    await Sinks(log=log).add(queue, Alerts(hot)).run(idle_seconds=0.2)

    found = await drain(log, hot.alerts)
    assert [(e.data["state"], e.data["value"]) for e in found] == [("firing", 95), ("cleared", 10), ("firing", 81)]
    assert len({e.id for e in found}) == 3
    assert await RuleStore(log).delete(name)


@pytest.mark.slow
async def test_alerts_are_pushed_once_if_the_sink_is_cancelled(log: Log, queue: str) -> None:
    hot = await saved(log, rule(queue, on=queue, value="avg", when=above(80), alerts=f"{queue}-alerts"))
    values = [90.0 if n % 3 == 0 else 10.0 for n in range(200)]
    await push(log, results("boiler", values), queue=queue, key="boiler")
    for _ in range(5):
        sinks = Sinks(log=log).add(queue, Alerts(hot), batch=5, lease_seconds=0.3)
        task = asyncio.create_task(sinks.workers[0].run(idle_seconds=0.2))

        async def some(sinks: Sinks = sinks, task: Any = task) -> object:
            return sinks.workers[0].counters.batches >= 2 or task.done()

        await eventually_async(some)
        task.cancel()
        await asyncio.wait([task])
    await Sinks(log=log).add(queue, Alerts(hot)).run(idle_seconds=0.5)

    found = [state for _, state in await alerts(log, hot.alerts)]
    assert found == ["firing", "cleared"] * 67


async def test_saving_a_changed_rule_resets_its_state(log: Log, queue: str) -> None:
    first = rule(queue, on=queue, value="avg", when=above(80), alerts=f"{queue}-alerts")
    for limit, firing in ((80, 1), (80, 1), (85, 0)):
        made = await saved(log, rule(queue, on=queue, value="avg", when=above(limit), alerts=f"{queue}-alerts"))
        if made == first and not [each for each in await RuleStore(log).firing() if each[0] == queue]:
            await push(log, results("boiler", [90]), queue=queue, key="boiler")
            await Sinks(log=log).add(queue, Alerts(made)).run(idle_seconds=0.2)
        (info,) = [each for each in await RuleStore(log).all() if each.rule.name == queue]
        assert info.firing == firing


@pytest.mark.parametrize("end", ["changed", "deleted"])
async def test_firing_keys_are_cleared_when_the_rule_is_changed_or_deleted(log: Log, queue: str, end: str) -> None:
    hot = await saved(log, rule(queue, on=queue, value="avg", when=above(80), alerts=f"{queue}-alerts"))
    for key, value in (("boiler", 90), ("pump", 10)):
        await push(log, results(key, [value]), queue=queue, key=key)
    await Sinks(log=log).add(queue, Alerts(hot)).run(idle_seconds=0.2)

    if end == "changed":
        await saved(log, rule(queue, on=queue, value="avg", when=above(85), alerts="elsewhere"))
    else:
        assert await RuleStore(log).delete(queue)

    fired, cleared = await drain(log, hot.alerts)
    assert (fired.data["key"], fired.data["state"]) == ("boiler", "firing")
    assert (cleared.data["key"], cleared.data["state"], cleared.data["since"]) == (
        "boiler",
        "cleared",
        fired.data["since"],
    )
    assert cleared.data["message"] == f"boiler: the rule was {end}"


@pytest.mark.parametrize("state", ["full", "gone"])
async def test_a_rule_with_a_full_or_deleted_alert_queue_can_be_deleted(log: Log, queue: str, state: str) -> None:
    hot = await saved(log, rule(queue, on=queue, value="avg", when=above(80), alerts=f"{queue}-alerts"))
    await push(log, results("boiler", [90]), queue=queue, key="boiler")
    await Sinks(log=log).add(queue, Alerts(hot)).run(idle_seconds=0.2)
    if state == "full":
        await log.subscribe(hot.alerts, "nobody")
        await log.configure(hot.alerts, options={"max_depth_events": 1})

        async def is_full() -> object:
            try:
                await push(log, [{"key": "boiler", "state": "still firing"}], queue=hot.alerts)
            except QueueFull:
                return True
            return False

        await eventually_async(is_full)
    else:
        assert await log.delete_queue(hot.alerts)

    assert await RuleStore(log).delete(queue)
    assert await RuleStore(log).find(queue) is None
    if state == "full":
        assert ("boiler", "cleared") not in await alerts(log, hot.alerts)


async def ticked(log: Log, made: Rule, watcher: Alerts | None = None) -> list[tuple[str, str]]:
    """What time alone brings about."""
    async with log.database.connection() as conn, conn.transaction():
        found = await (watcher or Alerts(made)).write_in(conn, [])
    told = [json.decode(line) for batch in found for line in cast("JsonEvents", batch.events).data]
    return [(alert["key"], alert["state"]) for alert in told]


async def test_expected_keys_are_missing_only_after_the_rule_was_changed(log: Log, queue: str) -> None:
    await saved(log, rule(queue, on=queue, when=absent(60), alerts=f"{queue}-alerts", expect=["boiler"]))
    async with log.database.connection() as conn:
        ages = "UPDATE penstock.rules SET created_at = now() - interval '1 day', updated_at = now() - interval '1 day'"
        await conn.execute(f"{ages} WHERE name = %s", [queue])
    changed = await saved(log, rule(queue, on=queue, when=absent(30), alerts=f"{queue}-alerts", expect=["boiler"]))

    assert await ticked(log, changed) == []


async def test_keys_with_unread_events_are_not_missing(log: Log, queue: str, sinks_url: str) -> None:
    silent = await saved(log, rule(queue, on=queue, when=absent(60), alerts=f"{queue}-alerts"))

    async def watch() -> None:
        await Sinks(log=log).add(queue, Alerts(silent)).run(idle_seconds=0.2)

    async with opened(sinks_url, clock=Clock(timedelta(hours=-1))) as hour_ago:
        await push(hour_ago, [1], queue=queue, key="boiler")
        await watch()
        await push(hour_ago, [1], queue=queue, key="boiler")
    assert await ticked(log, silent) == []  # nobody has watched for an hour, and one result is there to be read
    await watch()
    assert await ticked(log, silent) == [("boiler", "firing")]


async def test_missing_keys_fire_and_clear_when_they_return(log: Log, queue: str) -> None:
    made = rule(queue, on=queue, when=absent(0.4), alerts=f"{queue}-alerts", expect=["never"])
    silent = await saved(log, made)
    await push(log, results("boiler", [1]), queue=queue, key="boiler")
    sinks = Sinks(log=log).add(queue, Alerts(silent))
    running = asyncio.create_task(sinks.run())
    found: list[tuple[str, str]] = []

    async def missed() -> object:
        found.extend(await alerts(log, silent.alerts))
        return len(found) == 2

    await eventually_async(missed)
    assert sorted(found) == [("boiler", "firing"), ("never", "firing")]
    await push(log, results("boiler", [1], first=1), queue=queue, key="boiler")

    async def back() -> object:
        found.extend(await alerts(log, silent.alerts))
        return ("boiler", "cleared") in found

    await eventually_async(back)
    sinks.stop()
    await running


async def open_windows(log: Log, queue: str, values: dict[str, float]) -> None:
    """Open windows as the clients of other languages keep them: the view has them beside the engine's."""
    await push(log, [1], queue=queue, key="any")
    async with log.database.connection() as conn, conn.transaction():
        await conn.execute(
            "INSERT INTO penstock.client_queries (name, source_queue, config_hash, group_name)"
            " VALUES (%s, %s, '', 'g')",
            [queue, queue],
        )
        await conn.execute(
            "INSERT INTO penstock.client_query_state"
            " SELECT q.id, p.id, n.key, jsonb_build_object('avg', n.value), n.key, %s, %s, now()"
            " FROM penstock.client_queries q, penstock.partitions p, unnest(%s::text[], %s::float8[]) AS n (key, value)"
            " WHERE q.name = %s AND p.queue_id = (SELECT id FROM penstock.queues WHERE name = %s)",
            [BEGIN, BEGIN + timedelta(seconds=5), list(values), list(values.values()), queue, queue],
        )


async def test_open_windows_of_several_pages_are_evaluated(log: Log, queue: str) -> None:
    await open_windows(log, queue, {f"k{n}": 96 + n for n in range(1, 8)})
    made = rule(queue, on=queue, value="avg", when=above(100), live=queue, alerts=f"{queue}-alerts")
    surge = await saved(log, made)

    firing = await ticked(log, surge, Alerts(surge, page_size=2))
    assert firing == [("k5", "firing"), ("k6", "firing"), ("k7", "firing")]
    assert await ticked(log, surge, Alerts(surge, page_size=2)) == []


async def test_a_changed_rule_evaluates_open_windows_again(log: Log, queue: str) -> None:
    await open_windows(log, queue, {"site 1": 90, "site 2": 90})
    high, low = (
        rule(queue, on=queue, value="avg", when=above(limit), live=queue, alerts=f"{queue}-alerts")
        for limit in (100, 80)
    )
    watcher = Alerts(await saved(log, high))
    assert await ticked(log, high, watcher) == []
    await saved(log, low)
    assert await ticked(log, low, watcher) == [("site 1", "firing"), ("site 2", "firing")]


async def test_the_scan_of_open_windows_does_not_lock_the_rule(log: Log, queue: str) -> None:
    await open_windows(log, queue, {"site": 101})
    made = rule(queue, on=queue, value="avg", when=above(100), live=queue, alerts=f"{queue}-alerts")
    surge = await saved(log, made)
    async with log.database.connection() as conn, conn.transaction():
        await conn.execute("LOCK TABLE penstock.client_query_state IN ACCESS EXCLUSIVE MODE")
        looking = asyncio.create_task(ticked(log, surge))

        async def waits() -> object:
            asked = "SELECT 1 FROM pg_locks WHERE relation = 'penstock.client_query_state'::regclass AND NOT granted"
            return await (await conn.execute(asked)).fetchone()

        await eventually_async(waits)
        # As a cycle that closes windows holds it.
        await conn.execute("SELECT FROM penstock.rules WHERE name = %s FOR NO KEY UPDATE NOWAIT", [queue])
    assert await looking == [("site", "firing")]


async def test_closed_windows_without_an_end_are_evaluated_only_by_the_cycle(log: Log, queue: str) -> None:
    hot = await saved(log, rule(queue, on=queue, value="mean", when=above(80), fire_after=2, alerts=f"{queue}-alerts"))
    closed, end = [("boiler", b'{"mean": 90}')], BEGIN + timedelta(seconds=5)
    async with log.database.connection() as conn, conn.transaction():
        await conn.execute(
            "INSERT INTO penstock.queries (name, description, fingerprint, sink_queue, history_seconds)"
            " VALUES (%s, ARRAY['from: readings', 'window: tumbling', 'field mean: avg'], '', %s, 0)",
            [queue, queue],
        )
        rung = [await evaluate_rules(conn, log.catalog, queue, closed, [each], BEGIN) for each in (end, end)]
    assert rung == [[], []], "the second corrects the first"
    await push(log, [{"mean": 90}, {"mean": 91, "window_end": end.isoformat()}], queue=queue, key="boiler")

    await Sinks(log=log).add(queue, Alerts(hot)).run(idle_seconds=0.2)

    assert await alerts(log, hot.alerts) == []
    async with log.database.connection() as conn, conn.transaction():
        ((_, (alert,)),) = await evaluate_rules(conn, log.catalog, queue, closed, [end + timedelta(seconds=5)], BEGIN)
    assert json.decode(alert.line)["window_end"] == "2026-01-31T12:00:10+00:00"


async def test_an_open_window_above_the_limit_fires_before_it_closes(log: Log, queue: str) -> None:
    await push(log, results("site", [1], first=-1), queue=queue, key="site")
    await open_windows(log, queue, {"site": 101})
    made = rule(queue, on=queue, value="avg", when=above(100), live=queue, alerts=f"{queue}-alerts")
    surge = await saved(log, made)
    sinks = Sinks(log=log).add(queue, Alerts(surge))
    running = asyncio.create_task(sinks.run())
    found: list[tuple[str, str]] = []

    async def rang() -> object:
        found.extend(await alerts(log, surge.alerts))
        return found == [("site", "firing")]

    await eventually_async(rang)
    await push(log, results("site", [50]), queue=queue, key="site")

    async def cleared() -> object:
        found.extend(await alerts(log, surge.alerts))
        return found == [("site", "firing"), ("site", "cleared")]

    await eventually_async(cleared)
    sinks.stop()
    await running


def test_rule_commands(sinks_url: str) -> None:
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
    assert "give exactly one condition" in cli.error("rule", "save", "x", "--on", "cli-results")[1]
    cli.ok("rule", "delete", "cli-hot", "--yes")
    assert cli.error("rule", "delete", "cli-hot", "--yes")[0] == 3
    assert cli.error("rule", "run", "--only", "cli-hot")[0] == 3
