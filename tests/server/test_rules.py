"""Rules over HTTP: saved, listed with what fires, forgotten."""

from __future__ import annotations

import asyncio

import httpx
import pytest

from penstock.core.settings import Settings
from penstock.db.pool import Database
from penstock.engine.alerts.evaluate import Result, look_at
from penstock.engine.alerts.store import Rules
from penstock.log.log import Log
from tests.server.refusals import refusal
from tests.server.serving import Serving

HOT = {"on": "readings-5s", "value": "avg", "when": {"kind": "above", "limit": 80, "clear": 75}, "fire_after": 1}


def test_a_rule_is_saved_changed_seen_to_fire_and_forgotten(http: httpx.Client, database_url: str) -> None:
    assert refusal(http.put("/v1/rules/hot", json=HOT)) == (404, "not-found")
    http.put("/v1/queues/readings-5s", json={})
    saved = http.put("/v1/rules/hot", json=HOT).json()
    assert (saved["name"], saved["when"]) == ("hot", {"kind": "above", "limit": 80.0, "clear": 75.0, "over": None})
    assert http.get("/v1/queues/alerts").is_success
    asyncio.run(_fire(database_url))
    listed = http.get("/v1/rules").json()
    assert [(each["name"], each["on"], each["firing"]) for each in listed["rules"]] == [("hot", "readings-5s", 1)]
    assert [(each["rule"], each["key"]) for each in listed["firing"]] == [("hot", "boiler")]

    http.put("/v1/rules/hot", json={**HOT, "when": {"kind": "zscore", "limit": 3}}).raise_for_status()
    listed = http.get("/v1/rules").json()
    assert (listed["rules"][0]["when"]["over"], listed["firing"]) == (20, [])
    assert http.delete("/v1/rules/hot").status_code == 204
    assert http.get("/v1/rules").json() == {"rules": [], "firing": []}
    assert refusal(http.delete("/v1/rules/hot")) == (404, "not-found")


async def _fire(database_url: str) -> None:
    """Let the rule look at a window that is worth an alert."""
    log = await Log(Database(Settings(database_url=database_url))).open()
    found = await Rules(log).find("hot")
    assert found is not None
    async with log.database.connection() as conn, conn.transaction():
        ends = {"window_start": "2026-01-01T00:00:00+00:00", "window_end": "2026-01-01T00:00:05+00:00"}
        now = (await (await conn.execute("SELECT now()")).fetchall())[0][0]
        assert len(await look_at(conn, found, [Result("boiler", {"avg": 91, **ends}, now)])) == 1
    await log.close()


@pytest.mark.parametrize(
    "wrong",
    [
        {"when": {"kind": "above", "limit": 80, "clear": 90}},
        {"when": {"kind": "absent", "limit": 30, "clear": 3}},
        {"when": {"kind": "above", "limit": 80, "over": 3}},
        {"when": {"kind": "louder", "limit": 80}},
        {"when": {"kind": "change", "limit": 0}},
        {"on": ""},
        {"alerts": "readings-5s"},
        {"expect": ["boiler"]},
        {"fire_after": 0},
        {"volume": 11},
    ],
)
def test_a_rule_that_cannot_be_is_refused(shared_server: Serving, wrong: dict[str, object]) -> None:
    answer = httpx.put(f"{shared_server.url}/v1/rules/hot", json={**HOT, **wrong})
    assert answer.status_code in (400, 422), answer.text
    assert answer.headers["content-type"] == "application/problem+json"
