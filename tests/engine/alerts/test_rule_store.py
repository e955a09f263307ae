"""Rules in the database: fields, silences, and who evaluates them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from penstock.core.errors import InvalidOption
from penstock.engine.alerts.evaluate import RuleInput, evaluate_rule
from penstock.engine.alerts.rule_store import RuleStore
from penstock.log.log import Log
from penstock.stream.rules import Rule, above, absent, rule
from tests.cycle_driver import CycleDriver
from tests.log.logs import QUEUE, push

BEGIN = datetime(2026, 1, 31, 12, 0, tzinfo=UTC)
HOT = rule("hot", on=QUEUE, value="stats.avg", when=above(80))


def window(n: int, value: float) -> dict[str, Any]:
    return {"stats": {"avg": value}, "window_end": (BEGIN + timedelta(seconds=5 * n)).isoformat()}


async def evaluate(log: Log, hot: Rule, key: str, *windows: dict[str, Any]) -> list[bytes]:
    async with log.database.connection() as conn, conn.transaction():
        return [alert.line for alert in await evaluate_rule(conn, hot, [RuleInput(key, row, BEGIN) for row in windows])]


async def test_a_field_that_no_result_has_is_refused_with_the_nearest_names(log: Log) -> None:
    await push(log, [window(0, 1)])
    store = RuleStore(log)
    with pytest.raises(InvalidOption, match=r"has the field 'stats.agv'; did you mean 'stats.avg'\?"):
        await store.save(rule("hot", on=QUEUE, value="stats.agv", when=above(80)))
    await store.save(rule("hot", on=QUEUE, value="stats.agv", when=above(80)), strict=False)
    await store.save(rule("silent", on=QUEUE, value="nothing", when=absent(30)))
    await store.save(HOT)


async def test_a_field_that_open_windows_do_not_have_is_refused(log: Log) -> None:
    def live(value: str) -> Rule:
        return rule("live", on=QUEUE, value=value, when=above(80), live="orders")

    store = RuleStore(log)
    await store.save(live("totl"))  # the query has no windows yet
    driver = await CycleDriver.start(log, "orders")
    with pytest.raises(InvalidOption, match=r"has the field 'totl'; did you mean 'total'"):
        await store.save(live("totl"))
    await store.save(live("total"))
    await driver.close()


async def test_a_field_is_not_checked_without_results(log: Log) -> None:
    await RuleStore(log).save(HOT)


async def test_a_silenced_rule_fires_when_the_silence_is_over(log: Log) -> None:
    store = RuleStore(log)
    await store.save(HOT)
    assert await store.silence("hot", 3600)
    assert await evaluate(log, HOT, "a", window(1, 90)) == []
    (info,) = await store.all()
    assert info.silenced_until is not None
    assert await store.silence("hot", 0)
    (alert,) = await evaluate(log, HOT, "a", window(2, 91))
    assert b'"firing"' in alert
    assert (await store.all())[0].silenced_until is None


async def test_a_silence_of_a_key_leaves_the_others(log: Log) -> None:
    store = RuleStore(log)
    await store.save(HOT)
    (fired,) = await evaluate(log, HOT, "b", window(1, 90))
    await store.silence("hot", 3600, key="a")
    await store.silence("hot", 3600, key="b")
    assert await evaluate(log, HOT, "a", window(1, 90)) == []
    assert len(await evaluate(log, HOT, "c", window(1, 90))) == 1
    (cleared,) = await evaluate(log, HOT, "b", window(2, 10))
    assert (b'"firing"' in fired, b'"cleared"' in cleared) == (True, True)
    assert sorted((await store.all())[0].silenced_keys) == ["a", "b"]


async def test_a_silence_of_a_missing_rule_is_refused(log: Log) -> None:
    assert not await RuleStore(log).silence("nothing", 1)


async def test_the_query_that_closes_windows_evaluates_a_rule(log: Log) -> None:
    store = RuleStore(log)
    assert await store.find_query(HOT) is None
    async with log.database.connection() as conn:
        await conn.execute(
            "INSERT INTO penstock.queries (name, description, fingerprint, history_seconds, sink_queue) "
            "VALUES ('q', ARRAY['window: 5 s'], 'x', 1, %s)",
            (QUEUE,),
        )
    assert await store.find_query(HOT) == "q"
    assert await store.find_query(rule("gone", on=QUEUE, when=absent(30))) is None
