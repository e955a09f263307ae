"""``/v1/queries``: inspect and control queries."""

from __future__ import annotations

import subprocess
import sys
from datetime import UTC, datetime

import httpx
import pytest

from penstock.engine.query_commands import read_commands
from penstock.engine.query_registry import Registry
from penstock.log.log import Log
from penstock.log.write.encode.batch import Batch
from tests.cycle_driver import CycleDriver


async def test_get_query_and_its_cycles(http: httpx.AsyncClient, log: Log) -> None:
    driver = await CycleDriver.start(log, "shown")
    await log.configure("shown.orders")
    await log.push([Batch("shown.orders", [{"data": 1}])])
    await log.subscribe("shown.orders", "shown")
    async with log.database.connection() as conn:
        await conn.execute("UPDATE penstock.groups SET query_id = 'shown' WHERE name = 'shown'")
    appended = datetime(2026, 1, 1, tzinfo=UTC)
    await driver.cycle([("ada", 0, 2, 10), ("bob", 120, 1, 5)], upto=90, appended=appended)
    shown = (await http.get("/v1/queries/shown")).json()
    assert (shown["state"], shown["driver"], shown["open_windows"]) == ("running", "a test", 1)
    assert shown["watermark"] == "1970-01-01T00:01:30Z"
    assert shown["lately"]["events"] == 3
    assert (shown["lag"], shown["queues"]) == (1, ["shown.orders"])
    (listed,) = [each for each in (await http.get("/v1/queries")).json()["queries"] if each["name"] == "shown"]
    assert (listed["name"], listed["cycle"]) == ("shown", 1)
    await driver.cycle([("bob", 120, 1, 5)])
    cycles = (await http.get("/v1/queries/shown/cycles")).json()["cycles"]
    assert [(cycle["cycle"], cycle["state"], cycle["events"]) for cycle in cycles] == [
        (2, "committed", 1),
        (1, "committed", 3),
    ]
    assert cycles[1]["freshness_seconds"] > 0
    before = await http.get("/v1/queries/shown/cycles", params={"before": 2, "limit": 5})
    assert [cycle["cycle"] for cycle in before.json()["cycles"]] == [1]
    failed = await http.get("/v1/queries/shown/cycles", params={"failed": True})
    assert failed.json() == {"cycles": []}
    await driver.close()


async def test_pause_resume_stop_and_delete_query(http: httpx.AsyncClient, log: Log) -> None:
    driver = await CycleDriver.start(log, "controlled")
    since = datetime(2026, 1, 1, tzinfo=UTC)
    assert (await http.post("/v1/queries/controlled/pause")).status_code == 204
    assert (await http.get("/v1/queries/controlled")).json()["state"] == "paused"
    assert (await http.post("/v1/queries/controlled/resume")).status_code == 204
    assert (await http.get("/v1/queries/controlled")).json()["state"] == "running"
    busy = await http.delete("/v1/queries/controlled")
    assert (busy.status_code, busy.json()["type"].rsplit("/")[-1]) == (409, "group-busy")
    assert (await http.post("/v1/queries/controlled/stop")).status_code == 204
    found = await read_commands(log.database, driver.id, since)
    assert found is not None
    assert found.stopped
    await Registry(log).release_lease(driver.id, driver.fence)
    assert (await http.get("/v1/queries/controlled")).json()["state"] == "stopped"
    assert (await http.delete("/v1/queries/controlled")).status_code == 204
    assert (await http.get("/v1/queries/controlled")).status_code == 404
    await driver.close()


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", ""),
        ("DELETE", ""),
        ("GET", "/cycles"),
        ("POST", "/pause"),
        ("POST", "/resume"),
        ("POST", "/stop"),
    ],
)
async def test_missing_query_is_not_found(http: httpx.AsyncClient, method: str, path: str) -> None:
    response = await http.request(method, f"/v1/queries/nothing{path}")
    assert (response.status_code, response.json()["type"].rsplit("/")[-1]) == (404, "not-found")


async def test_cycle_parameters_are_validated(http: httpx.AsyncClient, log: Log) -> None:
    driver = await CycleDriver.start(log, "limited")
    for params in ({"limit": 0}, {"limit": 1001}, {"before": -1}, {"before": 2**63}):
        response = await http.get("/v1/queries/limited/cycles", params=params)
        assert response.status_code == 400
    await driver.close()


def test_server_does_not_import_spark() -> None:
    code = "import sys, penstock.server.process.http_worker; print({'pyspark', 'pyarrow', 'pandas'} & set(sys.modules))"
    assert subprocess.check_output([sys.executable, "-c", code], text=True) == "set()\n"
