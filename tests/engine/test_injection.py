"""Hostile names and texts in streams, gates and rules are treated as data in every statement."""

from __future__ import annotations

from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any

import psycopg
import pyarrow as pa
import pytest
from psycopg import sql

from penstock.core.errors import InvalidRequest
from penstock.db.statements import quote_identifier
from penstock.engine.alerts.rule_store import RuleStore
from penstock.engine.cycle.cycle_result import CommitTarget
from penstock.engine.cycle.partials import WatermarkScope
from penstock.engine.gates.release_loop import ReleaseLoop
from penstock.engine.query_registry import Registry
from penstock.engine.reference_tables import ReferenceTables
from penstock.engine.worker.read_config import ReadConfig
from penstock.log.log import Log
from penstock.stream.definition import Definition
from penstock.stream.gates import concurrency_gate, token_bucket_gate
from penstock.stream.reference_tables import reference_table
from penstock.stream.rules import above, rule
from penstock.stream.time_rules import TimeRules
from tests.conditions import eventually
from tests.corpus.hostile import NAMES
from tests.cycle_driver import CycleDriver
from tests.log.logs import data, drain, opened


@pytest.fixture
async def log(database_url: str) -> AsyncIterator[Log]:
    async with opened(database_url) as made:
        yield made


PRINTABLE = [name for name in NAMES if name.isprintable()]
#: Names that PostgreSQL does not truncate.
SHORT = [name for name in PRINTABLE if len(name.encode()) <= 63]

_NONE: Any = None


async def test_hostile_field_names_and_literals_in_window_outputs(database_url: str) -> None:
    counted = Definition.from_("orders").window_tumbling(seconds=60).aggregate({"count": "count(*)", "total": "sum(x)"})
    fields = {name: "count" for name in SHORT} | {f"text {n}": literal(name) for n, name in enumerate(PRINTABLE)}
    wanted = " OR ".join(f"key = {literal(name)}" for name in PRINTABLE)
    stream = counted.select(fields).having(wanted).to("out")
    async with opened(database_url) as log:
        await log.configure("out")
        driver = await CycleDriver.start(log, "selected", stream=stream)
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
def test_hostile_reference_table_names(name: str, database_url: str) -> None:
    spark: Any = SimpleNamespace(createDataFrame=lambda rows: rows.to_pylist())
    references = ReferenceTables(ReadConfig(database_url, 0, "q", pa.schema([]), {}, None, 0, (), False))
    with psycopg.connect(database_url, autocommit=True) as conn:
        conn.execute(sql.SQL("CREATE TABLE {} ({} text)").format(sql.Identifier(name), sql.Identifier(name)))
        conn.execute(sql.SQL("INSERT INTO {} VALUES (%s)").format(quote_identifier(name)), [name])
        try:
            reference = reference_table(sql.Identifier(name).as_string(), notify=name)
        except InvalidRequest:
            assert '"' in name or len(name.encode()) > 63, "neither of which is worth a way to spell it"
            return
        rows: Any = references.frame(spark, "it", reference)
        assert rows == [{name: name}]
        assert not references.forget_stale()
        conn.execute("SELECT pg_notify(%s, 'x')", [name])
        eventually(references.forget_stale)
    references.close()


@pytest.mark.parametrize("name", PRINTABLE, ids=lambda name: name[:20])
async def test_hostile_gate_and_rule_names(name: str, log: Log) -> None:
    await log.configure(name)
    registry = Registry(log)
    query = await registry.register(name, ["from: x"], "abc", sink=name, history_seconds=60)
    fence = await registry.acquire_lease(query, name, 30.0)
    assert fence is not None
    scope = WatermarkScope.PARTITION
    target = CommitTarget(query.id, name, fence, 30.0, [], None, TimeRules(), scope, name, "drop", 60.0)
    bucket = token_bucket_gate(capacity=1, refill_per_sec=1, shared=True)
    await ReleaseLoop(log, target, [concurrency_gate(limit=3, group=name), bucket], _NONE, _NONE).prepare()
    assert [info.group for info in await log.groups(name)] == [name]

    rules = RuleStore(log)
    await rules.save(rule(name, on=name, value=name, when=above(1), alerts=f"{name[:100]} alerts"))
    assert [each.rule.name for each in await rules.all()] == [name]
    found = await rules.find(name)
    assert found is not None
    assert (found.queue, found.value, found.alerts) == (name, name, f"{name[:100]} alerts")
    assert await rules.delete(name)
    await registry.release_lease(query.id, fence)
    assert await registry.delete(name)
    assert sorted(queue.name for queue in await log.queues()) == sorted([name, f"{name[:100]} alerts"])
