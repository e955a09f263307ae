"""Names and texts of every kind in streams, gates and rules are data, wherever statements mention them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any

import psycopg
import pytest
from psycopg import sql

from penstock.core.errors import InvalidRequest
from penstock.db.statements import quoted
from penstock.engine.alerts.store import Rules
from penstock.engine.cycle.models import Target
from penstock.engine.cycle.partials import Closing
from penstock.engine.gates.release_loop import Keeper
from penstock.engine.reference_tables import ReferenceTables
from penstock.engine.registry import Registry
from penstock.log.log import Log
from penstock.stream.definition import Definition, TimeRules, table
from penstock.stream.gates import concurrency_gate, token_bucket_gate
from penstock.stream.rules import above, rule
from tests.corpus.hostile import NAMES
from tests.engine.pipelines import eventually
from tests.log.logs import data, drain, opened
from tests.server.observe.cycles import Driver


@pytest.fixture
async def log(database_url: str) -> AsyncIterator[Log]:
    async with opened(database_url) as made:
        yield made


PRINTABLE = [name for name in NAMES if name.isprintable()]
#: What PostgreSQL does not cut off.
SHORT = [name for name in PRINTABLE if len(name.encode()) <= 63]

_NONE: Any = None


async def test_fields_of_closed_windows_and_what_is_asked_of_them_may_hold_anything(database_url: str) -> None:
    counted = Definition.from_("orders").window_tumbling(seconds=60).aggregate({"count": "count(*)", "total": "sum(x)"})
    fields = {name: "count" for name in SHORT} | {f"text {n}": literal(name) for n, name in enumerate(PRINTABLE)}
    wanted = " OR ".join(f"key = {literal(name)}" for name in PRINTABLE)
    stream = counted.select(fields).having(wanted).to("out")
    async with opened(database_url) as log:
        await log.configure("out")
        driver = await Driver.start(log, "selected", stream=stream)
        await driver.cycle([(name, 0, 2, 5) for name in [*PRINTABLE, "another"]], upto=10)
        with psycopg.connect(database_url) as conn:
            shown = sql.SQL("SELECT key, {} FROM penstock_live.selected ORDER BY key").format(
                sql.SQL(", ").join(map(sql.Identifier, SHORT))
            )
            assert {tuple(row) for row in conn.execute(shown)} == {(name, *[2] * len(SHORT)) for name in PRINTABLE}
        await driver.cycle(upto=120)
        await driver.close()
        events = await drain(log, "out")
        said = {name: 2 for name in SHORT} | {f"text {n}": name for n, name in enumerate(PRINTABLE)}
        assert data(events) == [said] * len(PRINTABLE)
        assert {event.key for event in events} == set(PRINTABLE)


def literal(text: str) -> str:
    """As Spark's SQL spells a text."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


@pytest.mark.parametrize("name", PRINTABLE, ids=lambda name: name[:20])
def test_a_reference_table_of_any_name_is_read_and_heard_of_by_that_name(name: str, database_url: str) -> None:
    spark: Any = SimpleNamespace(createDataFrame=lambda rows: rows.to_pylist())
    references = ReferenceTables(database_url, _NONE)
    with psycopg.connect(database_url, autocommit=True) as conn:
        conn.execute(sql.SQL("CREATE TABLE {} ({} text)").format(sql.Identifier(name), sql.Identifier(name)))
        conn.execute(sql.SQL("INSERT INTO {} VALUES (%s)").format(quoted(name)), [name])
        try:
            meant = table(sql.Identifier(name).as_string(), notify=name)
        except InvalidRequest:
            assert '"' in name or len(name.encode()) > 63, "neither of which is worth a way to spell it"
            return
        rows: Any = references.frame(spark, "it", meant)
        assert rows == [{name: name}]
        assert not references.forget_stale()
        conn.execute("SELECT pg_notify(%s, 'x')", [name])
        eventually(references.forget_stale)
    references.close()


@pytest.mark.parametrize("name", PRINTABLE, ids=lambda name: name[:20])
async def test_a_gate_and_a_rule_of_any_name_are_stored_and_found_by_that_name(name: str, log: Log) -> None:
    await log.configure(name)
    registry = Registry(log)
    query = await registry.register(name, ["from: x"], "abc", sink=name, history_seconds=60)
    fence = await registry.take(name, name, 30.0, query.at)
    assert fence is not None
    target = Target(query.id, name, fence, 30.0, [], None, TimeRules(), Closing.BY_PARTITION, name, "drop", 60.0)
    bucket = token_bucket_gate(capacity=1, refill_per_sec=1, shared=True)
    await Keeper(log, target, [concurrency_gate(limit=3, group=name), bucket], _NONE, _NONE).prepare()
    assert [info.group for info in await log.groups(name)] == [name]

    rules = Rules(log)
    await rules.save(rule(name, on=name, value=name, when=above(1), alerts=f"{name[:100]} alerts"))
    assert [each.rule.name for each in await rules.all()] == [name]
    found = await rules.find(name)
    assert found is not None
    assert (found.queue, found.value, found.alerts) == (name, name, f"{name[:100]} alerts")
    assert await rules.delete(name)
    await registry.release(query.id, fence)
    assert await registry.delete(name)
    assert sorted(queue.name for queue in await log.queues()) == sorted([name, f"{name[:100]} alerts"])
