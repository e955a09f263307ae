"""``/v1/rules``: save, list and delete alert rules."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from penstock.engine.alerts.evaluate import RuleInput, evaluate_rule
from penstock.engine.alerts.rule_store import RuleStore
from penstock.log.log import Log
from tests.log.logs import push
from tests.server.problems import problem_kind

HOT = {"on": "readings-5s", "value": "avg", "when": {"kind": "above", "limit": 80, "clear": 75}, "fire_after": 1}


async def test_save_list_and_delete_rule(http: httpx.AsyncClient, log: Log) -> None:
    assert problem_kind(await http.put("/v1/rules/hot", json=HOT)) == (404, "not-found")
    await http.put("/v1/queues/readings-5s", json={})
    saved = (await http.put("/v1/rules/hot", json=HOT)).json()
    assert (saved["name"], saved["when"]) == ("hot", {"kind": "above", "limit": 80.0, "clear": 75.0, "over": None})
    assert (await http.get("/v1/queues/alerts")).is_success
    await _fire(log)
    listed = (await http.get("/v1/rules")).json()
    assert [(each["name"], each["on"], each["firing"]) for each in listed["rules"]] == [("hot", "readings-5s", 1)]
    assert [(each["rule"], each["key"]) for each in listed["firing"]] == [("hot", "boiler")]

    changed = await http.put("/v1/rules/hot", json={**HOT, "when": {"kind": "zscore", "limit": 3}})
    assert changed.is_success
    listed = (await http.get("/v1/rules")).json()
    assert (listed["rules"][0]["when"]["over"], listed["firing"]) == (20, [])
    assert (await http.delete("/v1/rules/hot")).status_code == 204
    assert (await http.get("/v1/rules")).json() == {"rules": [], "firing": []}
    assert problem_kind(await http.delete("/v1/rules/hot")) == (404, "not-found")


async def _fire(log: Log) -> None:
    """Evaluate the rule for a window that fires it."""
    rule = await RuleStore(log).find("hot")
    assert rule is not None
    async with log.database.connection() as conn, conn.transaction():
        window: dict[str, Any] = {
            "avg": 91,
            "window_start": "2026-01-01T00:00:00+00:00",
            "window_end": "2026-01-01T00:00:05+00:00",
        }
        ((now,),) = await (await conn.execute("SELECT now()")).fetchall()
        assert len(await evaluate_rule(conn, rule, [RuleInput("boiler", window, now)])) == 1


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
def test_invalid_rules_are_refused(v1: httpx.Client, wrong: dict[str, object]) -> None:
    response = v1.put("rules/hot", json={**HOT, **wrong})
    assert response.status_code in (400, 422), response.text
    assert response.headers["content-type"] == "application/problem+json"


async def test_try_and_silence_a_rule(http: httpx.AsyncClient, log: Log) -> None:
    await http.put("/v1/queues/readings-5s", json={})
    await push(log, [{"avg": value} for value in (70, 85, 60)], queue="readings-5s", key="boiler")
    trial = (await http.post("/v1/rules/hot/try", json=HOT)).json()
    assert [each["state"] for each in trial["alerts"]] == ["firing", "cleared"]
    assert [(point["value"], point["upper"], point["firing"]) for point in trial["points"]] == [
        (70, 80, False),
        (85, 80, True),
        (60, 75, False),
    ]
    assert (await http.get("/v1/rules")).json()["rules"] == []
    for response in (
        await http.put("/v1/rules/hot", json={**HOT, "value": "agv"}),
        await http.post("/v1/rules/hot/try", json={**HOT, "value": "agv"}),
    ):
        assert problem_kind(response) == (422, "invalid-option")
        assert "did you mean 'avg'?" in response.json()["detail"]
    assert problem_kind(await http.post("/v1/rules/hot/silence", json={"seconds": 60})) == (404, "not-found")
    await http.put("/v1/rules/hot", json=HOT)
    assert (await http.post("/v1/rules/hot/silence", json={"seconds": 60, "key": "boiler"})).is_success
    assert list((await http.get("/v1/rules")).json()["rules"][0]["silenced_keys"]) == ["boiler"]
