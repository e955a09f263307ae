"""The Grafana dashboards: their SQL runs, and their metrics exist."""

from __future__ import annotations

import json
import re
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import psycopg
import pytest

from penstock.core.settings import Settings
from penstock.db.pool import Database
from penstock.log.log import Log
from penstock.log.read.pop_request import PopRequest
from penstock.log.write.encode.batch import Batch
from penstock.server.metrics.exposition import ALL_FAMILIES
from tests.cycle_driver import CycleDriver
from tests.docs.pages import blocks_of
from tests.servers import Server

ROOT = Path(__file__).parents[3]
GRAFANA = ROOT / "deploy" / "grafana"
METRICS, LIVE = (
    json.loads((GRAFANA / "dashboards" / name).read_text()) for name in ("penstock-metrics.json", "penstock-live.json")
)


def panels(dashboard: dict[str, Any]) -> list[dict[str, Any]]:
    return [panel for panel in dashboard["panels"] if panel["type"] != "row"]


QUERIES = [
    *[(panel["title"], target["rawSql"]) for panel in panels(LIVE) for target in panel["targets"]],
    *[(variable["name"], variable["query"]) for variable in LIVE["templating"]["list"]],
]
EXPRESSIONS = [
    *[(panel["title"], target["expr"]) for panel in panels(METRICS) for target in panel["targets"]],
    *[(variable["name"], variable["definition"]) for variable in METRICS["templating"]["list"]],
]


def as_grafana_sends_it(question: str) -> str:
    question = question.replace("${query:sqlstring}", "'live_orders'").replace("${query:raw}", "live_orders")
    question = question.replace("${aggregate:sqlstring}", "'total'")
    question = re.sub(
        r"\$__timeFilter\(([\w.]+)\)", r"\1 BETWEEN now() - interval '1 day' AND now() + interval '1 day'", question
    )
    assert "$" not in question
    return question


@pytest.fixture
async def filled(database_url: str) -> AsyncIterator[str]:
    """A database with a query, groups that lag, a dead letter and a failed cycle."""
    log = await Log(Database(Settings(database_url=database_url))).open()
    await log.configure("orders", {"retry_limit": 0})
    await log.push([Batch("orders", [{"data": n} for n in range(3)])])
    events = await log.pop(PopRequest("orders", "billing", batch=1))
    await log.ack(events, "dead_letter", error="on purpose")
    driver = await CycleDriver.start(log, "live_orders")
    now = int(time.time())
    await driver.cycle([("ada", now - 120, 2, 10), ("bob", now, 1, 5)], upto=now - 60)
    async with log.database.connection() as conn:
        await conn.execute(
            "INSERT INTO penstock.cycles (query_id, cycle, fence, plan, planned, error) "
            "VALUES (%s, 99, 1, '', 5, 'the disk is full')",
            (driver.id,),
        )
    await driver.close()
    yield database_url
    await log.close()


@pytest.fixture
def grafana(filled: str, pg18: Server) -> Iterator[psycopg.Connection]:
    """A connection with only the privileges that the documentation grants."""
    name = str(psycopg.conninfo.conninfo_to_dict(filled)["dbname"])
    grafana, dashboards = f"grafana_{uuid4().hex[:8]}", f"dashboards_{uuid4().hex[:8]}"
    with pg18.superuser(name) as conn:
        conn.execute(f"CREATE ROLE {dashboards}".encode())
        conn.execute(f"GRANT USAGE ON SCHEMA penstock_live, penstock_history TO {dashboards}".encode())
        conn.execute(f"GRANT SELECT ON ALL TABLES IN SCHEMA penstock_live, penstock_history TO {dashboards}".encode())
        (block,) = [each for each in blocks_of(ROOT / "docs/how-to/grafana.md", "sql") if "CREATE ROLE" in each.text]
        conn.execute(re.sub(r"\bgrafana\b", grafana, re.sub(r"\bdashboards\b", dashboards, block.text)).encode())
        try:
            with psycopg.connect(pg18.url(name, grafana), autocommit=True) as connection:
                yield connection
        finally:
            for role in (grafana, dashboards):
                conn.execute(f"DROP OWNED BY {role}".encode())
                conn.execute(f"DROP ROLE {role}".encode())


def test_panels_have_data_for_a_read_only_role(grafana: psycopg.Connection) -> None:
    for title, question in QUERIES:
        rows = grafana.execute(as_grafana_sends_it(question).encode()).fetchall()
        assert rows, title
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        grafana.execute("SELECT data FROM penstock.dead_letters")


def test_panels_use_existing_metrics_and_labels() -> None:
    exposed: dict[str, set[str]] = {}
    for family in ALL_FAMILIES:
        parts = ("_bucket", "_sum", "_count") if family.kind == "histogram" else ("",)
        for part in parts:
            exposed[family.exposed_name + part] = {*family.labels, *(["le"] if part == "_bucket" else [])}
    for title, expression in EXPRESSIONS:
        names = re.findall(r"\bpenstock_\w+", expression)
        assert names, title
        assert set(names) <= exposed.keys(), title
        labels = set(re.findall(r"(\w+)=~", expression))
        for grouped in re.findall(r"(?:by|on) \(([^)]*)\)", expression):
            labels |= {label.strip() for label in grouped.split(",")}
        for name in names:
            assert labels <= exposed[name], (title, name)


@pytest.mark.parametrize("dashboard", [METRICS, LIVE], ids=["metrics", "live"])
def test_dashboard_layout_is_consistent(dashboard: dict[str, Any]) -> None:
    provisioned = (GRAFANA / "provisioning/datasources/penstock.yaml").read_text()
    ids = [panel["id"] for panel in dashboard["panels"]]
    assert len(set(ids)) == len(ids)
    places = [(panel["gridPos"]["x"], panel["gridPos"]["y"]) for panel in dashboard["panels"]]
    assert len(set(places)) == len(places)
    for panel in panels(dashboard):
        for source in (panel["datasource"], *[target["datasource"] for target in panel["targets"]]):
            assert f"uid: {source['uid']}\n    type: {source['type']}\n" in provisioned
        assert panel["gridPos"]["x"] + panel["gridPos"]["w"] <= 24
