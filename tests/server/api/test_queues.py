"""``/v1/queues``: create, inspect, change and delete."""

from __future__ import annotations

import httpx
import pytest

from tests.server.problems import problem_kind


def test_create_get_change_and_delete_queue(v1: httpx.Client) -> None:
    made = v1.put("queues/orders", json={"partitioning": "hash", "partitions": 4, "options": {"lease_seconds": 5}})
    assert made.status_code == 200
    assert (made.json()["partition_count"], made.json()["options"]["lease_seconds"]) == (4, 5.0)

    assert v1.get("queues/orders").json() == made.json()
    assert "orders" in [queue["name"] for queue in v1.get("queues").json()["queues"]]

    changed = v1.patch("queues/orders", json={"options": {"retry_limit": 9}}).json()["options"]
    assert (changed["retry_limit"], changed["lease_seconds"]) == (9, 5.0)

    status = v1.get("queues/orders/status").json()
    assert (status["size"]["partitions"], status["groups"], status["dead_letters"]) == (4, [], 0)
    assert len(v1.get("queues/orders/partitions", params={"limit": 3}).json()["partitions"]) == 3

    assert v1.post("queues/orders/repartition", json={"partitioning": "key"}).json()["partitioning"] == "key"
    assert v1.delete("queues/orders").status_code == 204
    assert problem_kind(v1.get("queues/orders")) == (404, "not-found")
    assert problem_kind(v1.delete("queues/orders")) == (404, "not-found")


def test_configure_merges_options(v1: httpx.Client, queue: str) -> None:
    v1.put(f"queues/{queue}", json={"options": {"lease_seconds": 7}})

    options = v1.put(f"queues/{queue}").json()["options"]

    assert (options["lease_seconds"], options["retry_limit"]) == (7.0, 1)
    assert problem_kind(v1.put(f"queues/{queue}", json={"only_new": True})) == (409, "conflict")
    assert problem_kind(v1.put(f"queues/{queue}", json={"partitioning": "hash"})) == (409, "conflict")


@pytest.mark.parametrize(
    ("method", "path", "body", "expected"),
    [
        ("PUT", "queues/x", {"options": {"leese": 1}}, (422, "invalid-option")),
        ("PUT", "queues/x", {"options": {"lease_seconds": -1}}, (422, "invalid-option")),
        ("PUT", "queues/x", {"partitioning": "hash", "partitions": 5000}, (422, "invalid-option")),
        ("PUT", "queues/x", {"partitioning": "moon"}, (400, "invalid-request")),
        ("PUT", "queues/x", {"sort": "by size"}, (400, "invalid-request")),
        ("PUT", "queues/" + "x" * 201, {}, (422, "invalid-name")),
        ("PATCH", "queues/none", {"options": {"retry_limit": 1}}, (404, "not-found")),
        ("POST", "queues/none/repartition", {"partitioning": "key"}, (404, "not-found")),
        ("GET", "queues/none/status", None, (404, "not-found")),
        ("GET", "queues/none/partitions", None, (404, "not-found")),
        ("GET", "queues/none/partitions?limit=0", None, (400, "invalid-request")),
        ("GET", "queues?order=name", None, (400, "invalid-request")),
        ("POST", "queues", None, (405, "method-not-allowed")),
    ],
)
def test_invalid_queue_requests(
    v1: httpx.Client, method: str, path: str, body: object, expected: tuple[int, str]
) -> None:
    assert problem_kind(v1.request(method, path, json=body)) == expected


def test_problem_names_the_invalid_option(v1: httpx.Client) -> None:
    assert v1.put("queues/x", json={"options": {"leese": 1}}).json()["option"] == "leese"


def test_problem_of_a_missing_queue_tells_how_to_create_it(v1: httpx.Client) -> None:
    response = v1.post("queues/a%20b%2Fc/events", json={"data": 1})
    assert problem_kind(response) == (404, "not-found")
    assert "PUT /v1/queues/a%20b%2Fc" in response.json()["detail"]
    assert v1.put("queues/a%20b%2Fc", json={}).status_code == 200
    assert v1.post("queues/a%20b%2Fc/events", json={"data": 1}).status_code == 200


def test_upkeep_returns_its_result(v1: httpx.Client) -> None:
    assert set(v1.post("upkeep").json()) == {"rolled", "dropped", "parked", "waiting"}
