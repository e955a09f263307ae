"""Every endpoint with every kind of caller.

The tests iterate over all endpoints, so they cover new ones. An endpoint with a body needs a sample request in
``BODIES``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import urlencode

import httpx
import psycopg
import pytest
from psycopg import sql
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect

from penstock.server.app import ENDPOINTS
from penstock.server.auth.api_keys import ApiKeyStore
from penstock.server.auth.identity import Role
from penstock.server.queen.errors import QueenErrorFormat
from penstock.server.routing.endpoint import Endpoint
from tests import gate_rows, servers
from tests.server.access_server import JWT_SECRET, run_access_server
from tests.server.keys import bearer, sign_token, use_key_store
from tests.servers import Server

QUEUE = "shop.orders"
REFUSED = (401, 403)


@dataclass
class Stage:
    """A server with a queue, a lease and a dead letter, and credentials of every kind of caller."""

    url: str
    database_url: str
    http: httpx.Client
    #: Values for sample requests: partitions, leases, ids.
    facts: dict[str, Any] = field(default_factory=dict)
    keys: dict[str, str] = field(default_factory=dict)


Body = Callable[[dict[str, Any]], object]

#: A valid request for each endpoint with a body.
BODIES: dict[str, Body] = {
    "POST /v1/queues/{queue}/events": lambda _: {"data": 1, "key": "new"},
    "POST /v1/push": lambda _: {"batches": [{"queue": QUEUE, "events": [{"data": 1, "key": "new"}]}]},
    "POST /v1/transaction": lambda at: {
        "acks": [{"queue": QUEUE, "group": "billing", **at["ack"]}],
        "pushes": [{"queue": QUEUE, "events": [{"data": 1, "key": "new"}]}],
    },
    "POST /v1/queues/{queue}/groups/{group}/pop": lambda _: {"wait_seconds": 0},
    "POST /v1/queues/{queue}/groups/{group}/ack": lambda at: {"acks": [at["ack"]]},
    "POST /v1/queues/{queue}/groups/{group}/extend": lambda at: {
        "lease_id": at["lease"],
        "partition_ids": [at["partition_id"]],
    },
    "POST /v1/queues/{queue}/groups/{group}/release": lambda at: {"lease_id": at["lease"]},
    "POST /v1/queues/{queue}/groups/{group}/seek": lambda _: {"to": "end"},
    "PATCH /v1/queues/{queue}/groups/{group}": lambda _: {"counts": False},
    "PUT /v1/queues/{queue}": lambda _: {"options": {"retry_limit": 7}},
    "PATCH /v1/queues/{queue}": lambda _: {"options": {"retry_limit": 8}},
    "POST /v1/queues/{queue}/repartition": lambda _: {"partitioning": "hash", "partitions": 2},
    "POST /v1/dead-letters/redrive": lambda _: {"queue": QUEUE},
    "POST /v1/dead-letters/redrive/preview": lambda _: {"queue": QUEUE, "mapping": "*"},
    "POST /v1/dead-letters/purge": lambda _: {"queue": QUEUE},
    "POST /v1/keys": lambda _: {"name": "new", "roles": ["read"]},
    "POST /v1/keys/{key}/rotate": lambda _: {"grace_seconds": 0},
    "PATCH /v1/gates/{query}": lambda _: {"paused": True},
    "POST /v1/gates/{query}/hold": lambda _: {"seconds": 1},
    "PUT /v1/rules/{rule}": lambda _: {"on": QUEUE, "when": {"kind": "above", "limit": 1}, "alerts": f"{QUEUE}.alerts"},
    "POST /v1/rules/{rule}/silence": lambda _: {"seconds": 1},
    "POST /v1/rules/{rule}/try": lambda _: {"on": QUEUE, "when": {"kind": "above", "limit": 1}},
    "POST /api/v1/push": lambda _: {"items": [{"queue": QUEUE, "partition": "new", "payload": 1}]},
    "POST /api/v1/ack": lambda at: {**at["plane_ack"], "consumerGroup": "mail"},
    "POST /api/v1/ack/batch": lambda at: {"acknowledgments": [at["plane_ack"]], "consumerGroup": "mail"},
    "POST /api/v1/lease/{lease}/extend": lambda _: {"seconds": 60},
    "POST /api/v1/configure": lambda _: {"queue": QUEUE, "options": {"retryLimit": 9}},
    "POST /api/v1/consumer-groups/{group}/subscription": lambda _: {"subscriptionTimestamp": "2026-01-01T00:00:00Z"},
    "POST /api/v1/consumer-groups/{group}/queues/{queue}/seek": lambda _: {"toEnd": True},
    "POST /api/v1/transaction": lambda at: {
        "operations": [
            {"type": "ack", **at["plane_ack"], "consumerGroup": "mail"},
            {"type": "push", "items": [{"queue": QUEUE, "partition": "new", "payload": 1}]},
        ]
    },
    "POST /v1/kv": lambda _: {"operations": [{"op": "put", "namespace": QUEUE, "key": "a", "value": 1, "seconds": 60}]},
    "POST /v1/timers": lambda _: {
        "operations": [{"op": "schedule", "queue": QUEUE, "key": "a", "data": 1, "seconds": 600}]
    },
    "POST /v1/locks/acquire": lambda _: {"name": QUEUE, "owner": "me", "seconds": 60},
    "POST /v1/locks/renew": lambda _: {"name": QUEUE, "token": 1, "seconds": 60},
    "POST /v1/locks/release": lambda _: {"name": QUEUE, "token": 1},
    "POST /v1/locks/holders": lambda _: {"name": QUEUE},
    "POST /api/v1/system/maintenance": lambda _: {"enabled": False},
    "POST /api/v1/system/maintenance/pop": lambda _: {"enabled": False},
    "POST /api/v1/kv": lambda _: {"operations": [{"op": "put", "ns": QUEUE, "key": "a", "value": 1, "ttlSeconds": 60}]},
    "PUT /api/v1/kv/{ns}/{key:text}": lambda _: {"value": 1, "ttlSeconds": 60},
    "DELETE /api/v1/kv/{ns}/{key:text}": lambda _: {},
    "POST /api/v1/locks": lambda _: {"operations": [{"op": "acquire", "name": QUEUE, "ttlSeconds": 60, "owner": "me"}]},
    "POST /api/v1/timers": lambda _: {
        "operations": [{"op": "schedule", "queue": QUEUE, "timerKey": "a", "payload": "MQ==", "delayMs": 600_000}]
    },
    "POST /api/v1/fetch": lambda _: {"entries": [{"queue": QUEUE, "partition": "ada", "offset": 0}]},
    "POST /api/v1/partitions/changed": lambda _: {"entries": [{"queue": QUEUE}]},
    "POST /api/v1/traces": lambda at: {
        "transactionId": at["plane_ack"].get("transactionId"),
        "partitionId": at["plane_ack"].get("partitionId"),
        "data": {"seen": True},
    },
    "POST /streams/v1/queries": lambda _: {
        "name": "shared",
        "source_queue": QUEUE,
        "sink_queue": QUEUE,
        "config_hash": "b" * 64,
        "reset": True,
    },
    "POST /streams/v1/state/get": lambda at: {
        "query_id": at["shared_query"],
        "partition_id": at["plane_ack"].get("partitionId"),
    },
    "POST /streams/v1/cycle": lambda at: {
        "query_id": at["shared_query"],
        "partition_id": at["plane_ack"].get("partitionId"),
        "state_ops": [{"type": "upsert", "key": "k", "value": {"n": 1}}],
        "push_items": [{"queue": QUEUE, "partition": "new", "payload": 1}],
    },
}
#: What has to stand in the address of a route that works on a queue which the path does not name.
QUERIES: dict[str, dict[str, str]] = {
    "GET /v1/dead-letters": {"queue": QUEUE},
    "GET /v1/dead-letters/count": {"queue": QUEUE},
    "GET /v1/groups": {"queue": QUEUE},
    "GET /api/v1/dlq": {"queue": QUEUE},
    "DELETE /api/v1/dlq": {"queue": QUEUE},
    "GET /api/v1/pop": {"namespace": "shop"},
    "GET /api/v1/messages": {"queue": QUEUE},
    "GET /api/v1/resources/partitions": {"queue": QUEUE},
}
#: Roles that the sample request needs beside those of its endpoint.
ALSO = {
    # Only changing an existing queue needs ADMIN.
    "POST /api/v1/configure": frozenset({Role.ADMIN}),
    "POST /v1/transaction": frozenset({Role.PRODUCE}),
    "POST /api/v1/transaction": frozenset({Role.CONSUME, Role.PRODUCE}),
    "POST /streams/v1/queries": frozenset({Role.PRODUCE}),
    "POST /streams/v1/cycle": frozenset({Role.PRODUCE}),
}


def name_of(endpoint: Endpoint) -> str:
    return f"{endpoint.method} {endpoint.path}"


def needs_body(endpoint: Endpoint) -> bool:
    return endpoint.body is not None or "requestBody" in endpoint.openapi


def test_every_endpoint_with_a_body_has_a_sample_request() -> None:
    """The sample requests show that handlers check the queues in the body."""
    assert {name_of(each) for each in ENDPOINTS if needs_body(each)} <= BODIES.keys()


def test_every_endpoint_that_uses_queues_checks_them() -> None:
    """An endpoint with a queue in its body or query string checks it, unless the path names the queue."""
    for endpoint in ENDPOINTS:
        body = BODIES[name_of(endpoint)](_Anything()) if needs_body(endpoint) else None
        named = QUEUE in repr(body) or "queue" in getattr(endpoint.query, "__struct_fields__", ())
        assert endpoint.checks_queues or "{queue}" in endpoint.path or not named, name_of(endpoint)


class _Anything(dict[str, Any]):
    def __missing__(self, name: str) -> dict[str, Any]:
        return {}


@pytest.fixture(scope="module")
def stage(pg18: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    # Its own database: the tests compare all of its rows.
    with (
        pg18.fresh_database(servers.TEMPLATE) as url,
        run_access_server(url, tmp_path_factory.mktemp("matrix"), request_log="none") as running,
        httpx.Client(base_url=running.url, timeout=30) as http,
    ):
        stage = Stage(running.url, url, http, keys=use_key_store(url, _callers))
        _prepare(stage)
        yield stage


ROLES: tuple[frozenset[Role], ...] = (*(frozenset({role}) for role in Role), frozenset({Role.CONSUME, Role.PRODUCE}))


def role_names(roles: frozenset[Role]) -> str:
    return "+".join(sorted(role.value for role in roles))


async def _callers(keys: ApiKeyStore) -> dict[str, str]:
    """Return credentials by name: ``consume`` for all queues, ``consume@shop.*`` for some."""
    made = {"wrong": f"penstock_nobody_{'a' * 43}", "nonsense": "nonsense"}
    for patterns in (("*",), ("shop.*",), ("bank.*", "shop.orders2", "?hop.order")):
        for roles in ROLES:
            _, key = await keys.create("test", [*roles], patterns)
            made[role_names(roles) if patterns == ("*",) else f"{role_names(roles)}@{patterns[0]}"] = str(key)
    _, revoked = await keys.create("revoked", [Role.ADMIN])
    await keys.revoke(revoked.id)
    _, expired = await keys.create("expired", [Role.ADMIN], expires_at=datetime.now(UTC) - timedelta(seconds=1))
    made |= {"revoked": str(revoked), "expired": str(expired), "expired token": _token("admin", exp=1)}
    made |= {f"token {role}": _token(role) for role in ("admin", "read-only")}
    made["token admin@bank.*"] = _token("admin", queues=["bank.*"])
    return made


def _token(role: str, **claims: Any) -> str:
    return sign_token(JWT_SECRET, "HS256", role=role, **claims)


def _prepare(stage: Stage) -> None:
    """Create everything that the sample requests refer to."""
    admin = bearer(stage.keys["admin"])

    def ask(method: str, path: str, json: object = None) -> Any:
        response = stage.http.request(method, path, json=json, headers=admin)
        assert response.is_success, response.text
        return response.json() if response.content else None

    ask("PUT", f"/v1/queues/{QUEUE}", {"options": {"retry_limit": 0, "lease_seconds": 3600}})
    for key in ("dead", "leased", "plane"):
        ask("POST", f"/v1/queues/{QUEUE}/events", {"data": {"secret": "payload"}, "key": key})
    group = f"/v1/queues/{QUEUE}/groups/billing"
    (dead,) = ask("POST", f"{group}/pop", {"partition": "dead"})["events"]
    ask("POST", f"{group}/ack", {"acks": [{**_ack(dead), "status": "dead_letter"}]})
    (leased,) = ask("POST", f"{group}/pop", {"partition": "leased"})["events"]
    popped = ask("GET", f"/api/v1/pop/queue/{QUEUE}/partition/plane?consumerGroup=mail")
    (message,) = popped["messages"]
    (letter,) = ask("GET", f"/v1/dead-letters?queue={QUEUE}")["dead_letters"]
    (plane_letter,) = ask("GET", f"/api/v1/dlq?queue={QUEUE}")["messages"]
    query = {"name": "shared", "source_queue": QUEUE, "config_hash": "a" * 64}
    shared = ask("POST", "/streams/v1/queries", query)
    stage.facts.update(
        shared_query=shared["query_id"],
        ack=_ack(leased),
        lease=leased["lease_id"],
        partition_id=leased["partition_id"],
        plane_ack={
            "transactionId": message["transactionId"],
            "partitionId": message["partitionId"],
            "leaseId": popped["leaseId"],
            "status": "completed",
        },
        plane_lease=popped["leaseId"],
        dead_letter=letter["id"],
        plane_dead_letter=plane_letter["id"],
    )


def _ack(event: dict[str, Any]) -> dict[str, Any]:
    names = ("partition_id", "offset", "lease_id")
    return {name: event[name] for name in names}


def request(stage: Stage, endpoint: Endpoint, credential: str | None) -> tuple[int, str]:
    """Send the sample request of an endpoint; return the status, and the body unless it is a stream."""
    is_queen = isinstance(endpoint.errors, QueenErrorFormat)
    parts = {
        "queue": QUEUE,
        "ns": QUEUE,
        "group": "mail" if is_queen else "billing",
        "partition": "plane" if is_queen else "leased",
        "transaction": stage.facts["plane_ack"]["transactionId"],
        "id": stage.facts["plane_dead_letter" if is_queen else "dead_letter"],
        "lease": stage.facts["plane_lease"],
        "query": "nothing",
    }
    if "{transaction}" in endpoint.path:
        parts["partition"] = stage.facts["plane_ack"]["partitionId"]
    path = re.sub(r"\{(\w+)(:\w+)?\}", lambda match: str(parts.get(match[1], "nothing")), endpoint.path)
    query = QUERIES.get(name_of(endpoint), {})
    headers = {} if credential is None else bearer(credential)
    if endpoint.is_websocket:
        try:
            with connect(stage.url.replace("http", "ws") + path, additional_headers=headers):
                return 101, ""
        except InvalidStatus as refused:
            return refused.response.status_code, bytes(refused.response.body or b"").decode()
    if query:
        path += f"?{urlencode(query)}"
    body = BODIES[name_of(endpoint)](stage.facts) if needs_body(endpoint) else None
    with stage.http.stream(endpoint.method, path, json=body, headers=headers) as response:
        is_stream = response.headers.get("content-type", "").startswith("text/event-stream")
        return response.status_code, "" if is_stream else response.read().decode()


def everything_stored(database_url: str) -> dict[str, list[str]]:
    """Return all rows of all tables, except those that record callers, idle partitions or vitals."""
    with psycopg.connect(database_url) as conn:
        tables = conn.execute("SELECT tablename FROM pg_tables WHERE schemaname = 'penstock'").fetchall()
        return {
            name: sorted(
                str(row[0])
                for row in conn.execute(sql.SQL("SELECT t::text FROM penstock.{} t").format(sql.Identifier(name)))
            )
            for (name,) in tables
            if name not in ("api_keys", "audit", "cursors", "vitals")
        }


UNAUTHENTICATED = ("wrong", "nonsense", "revoked", "expired", "expired token")


@pytest.mark.slow
def test_unauthorized_callers_are_refused_and_change_nothing(stage: Stage) -> None:
    before = everything_stored(stage.database_url)
    for endpoint in ENDPOINTS:
        if not endpoint.roles:
            continue
        for caller in (None, *UNAUTHENTICATED):
            status, text = request(stage, endpoint, stage.keys[caller] if caller else None)
            assert status == 401, (name_of(endpoint), caller, text)
        for role in Role:
            if role is not Role.ADMIN and not is_allowed(endpoint, frozenset({role})):
                status, text = request(stage, endpoint, stage.keys[role.value])
                assert status == 403, (name_of(endpoint), role, text)
        for caller in (name for name in stage.keys if name.endswith("@bank.*")):
            status, text = request(stage, endpoint, stage.keys[caller])
            # Lists omit other queues; everything else is refused or not found.
            assert status in (403, 404) or (endpoint.checks_queues and is_silent(text)), (
                name_of(endpoint),
                caller,
                status,
                text,
            )
            # A caller does not learn the name of a queue from something in it.
            assert QUEUE not in text or names_the_queue(stage, endpoint), (name_of(endpoint), caller, text)
    assert everything_stored(stage.database_url) == before


def names_the_queue(stage: Stage, endpoint: Endpoint) -> bool:
    body = BODIES[name_of(endpoint)](stage.facts) if needs_body(endpoint) else ""
    return "{queue" in endpoint.path or "{ns}" in endpoint.path or QUEUE in f"{QUERIES.get(name_of(endpoint))} {body}"


def is_allowed(endpoint: Endpoint, roles: frozenset[Role]) -> bool:
    also = ALSO.get(name_of(endpoint), frozenset())
    return not endpoint.roles.isdisjoint(roles) and also <= roles


def is_silent(text: str) -> bool:
    return not any(word in text for word in (QUEUE, "payload", "billing", "mail"))


def test_authorized_callers_are_accepted(stage: Stage) -> None:
    """The test above would also pass if everybody was refused."""
    for endpoint in ENDPOINTS:
        limited_may = not endpoint.roles or endpoint.checks_queues or "{queue}" in endpoint.path
        callers = ["admin", "token admin", *(["admin@shop.*"] if limited_may else [])]
        for roles in ROLES:
            if not endpoint.roles or is_allowed(endpoint, roles):
                callers += [role_names(roles), *([f"{role_names(roles)}@shop.*"] if limited_may else [])]
        for caller in callers:
            status, text = request(stage, endpoint, stage.keys[caller])
            assert status not in REFUSED, (name_of(endpoint), caller, status, text)
            assert status < 500 or status == 503, (name_of(endpoint), caller, status, text)
        if not endpoint.roles:
            assert request(stage, endpoint, None)[0] == 200


def test_client_query_needs_access_to_its_source_queue(stage: Stage) -> None:
    """A registration with another source would delete its state and move its group."""
    admin, other = bearer(stage.keys["admin"]), bearer(stage.keys["consume+produce@bank.*"])
    registration = {"name": "counted", "source_queue": QUEUE, "config_hash": "a" * 64}
    made = stage.http.post("/streams/v1/queries", json=registration, headers=admin)
    assert made.status_code == 200
    theirs = {**registration, "source_queue": "bank.b", "config_hash": "b" * 64, "reset": True}
    assert stage.http.put("/v1/queues/bank.b", json={}, headers=admin).status_code == 200
    assert stage.http.post("/streams/v1/queries", json=theirs, headers=other).status_code == 403
    pushed = {"items": [{"queue": "bank.b", "partition": "p", "payload": 1}]}
    assert stage.http.post("/api/v1/push", json=pushed, headers=other).status_code == 201
    popped = stage.http.get("/api/v1/pop/queue/bank.b?consumerGroup=g", headers=other).json()
    place = {"query_id": made.json()["query_id"], "partition_id": popped["messages"][0]["partitionId"]}
    for path in ("/streams/v1/cycle", "/streams/v1/state/get"):
        assert stage.http.post(path, json={**place}, headers=other).status_code == 403


def test_gate_can_be_held_by_consumers_of_its_sink(stage: Stage) -> None:
    gate_rows.insert_gated_query(stage.database_url)
    with psycopg.connect(stage.database_url) as conn:
        conn.execute("UPDATE penstock.queries SET sink_queue = %s WHERE name = %s", [QUEUE, gate_rows.QUERY])

    def held(caller: str) -> int:
        body = {"key": "tenant-7", "seconds": 1}
        path, credential = f"/v1/gates/{gate_rows.QUERY}/hold", bearer(stage.keys[caller])
        return stage.http.post(path, json=body, headers=credential).status_code

    assert [held(caller) for caller in ("consume", "consume@shop.*", "admin")] == [204] * 3
    assert [held(caller) for caller in ("consume@bank.*", "produce", "read@shop.*")] == [403] * 3


def test_lease_gives_no_access_to_other_queues(stage: Stage) -> None:
    """Leases and partitions in a request must belong to the queue in its path."""
    admin, other = bearer(stage.keys["admin"]), bearer(stage.keys["consume@bank.*"])
    for name in ("bank.a", QUEUE):
        assert stage.http.put(f"/v1/queues/{name}", json={}, headers=admin).status_code == 200
    pushed = stage.http.post(f"/v1/queues/{QUEUE}/events", json={"data": 1, "key": "fenced"}, headers=admin)
    assert pushed.status_code == 200
    group = f"/v1/queues/{QUEUE}/groups/fenced"
    (event, *_) = stage.http.post(f"{group}/pop", json={"batch": 1}, headers=admin).json()["events"]
    elsewhere = "/v1/queues/bank.a/groups/fenced"
    before = everything_stored(stage.database_url)
    stage.http.post(f"{elsewhere}/ack", json={"acks": [_ack(event)]}, headers=other)
    extension = {"lease_id": event["lease_id"], "partition_ids": [event["partition_id"]], "seconds": 9999}
    stage.http.post(f"{elsewhere}/extend", json=extension, headers=other)
    stage.http.post(f"{elsewhere}/release", json={"lease_id": event["lease_id"]}, headers=other)
    assert everything_stored(stage.database_url) == before


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/transaction", {"kv": [{"op": "get", "namespace": "bank", "key": "a"}]}),
        ("/v1/transaction", {"kv": [{"op": "check", "namespace": "queen-locks", "key": "bank#0", "expect": 1}]}),
        ("/v1/transaction", {"timers": [{"op": "cancel", "queue": "bank", "key": "a"}]}),
        ("/v1/kv", {"operations": [{"op": "get_prefix", "namespace": "queen-locks", "prefix": "shop"}]}),
        ("/api/v1/transaction", {"kv": [{"op": "get", "ns": "bank", "key": "a"}]}),
        ("/api/v1/transaction", {"kv": [{"op": "check", "ns": "queen-locks", "key": "bank#0", "expect": 1}]}),
        ("/api/v1/transaction", {"timers": [{"op": "cancel", "queue": "bank", "timerKey": "a"}]}),
    ],
)
def test_entries_locks_and_timers_of_others_are_refused(path: str, body: dict[str, Any], stage: Stage) -> None:
    parts: dict[str, list[object]] = {"acks": [], "pushes": []} if path == "/v1/transaction" else {}
    key = stage.keys["consume+produce@shop.*"]
    response = stage.http.post(path, json={**parts, **body}, headers=bearer(key))
    assert response.status_code == 403, response.text


def test_a_producer_does_not_read_scheduled_data(stage: Stage) -> None:
    timer = {"op": "schedule", "queue": QUEUE, "timerKey": "secret", "payload": "MQ==", "delayMs": 600_000}
    stage.http.post("/api/v1/timers", json={"operations": [timer]}, headers=bearer(stage.keys["produce"]))
    found = {
        role: stage.http.get(f"/api/v1/timers/{QUEUE}/secret", headers=bearer(stage.keys[role])).json()
        for role in ("produce", "consume")
    }
    assert (found["produce"]["found"], "payload" in found["produce"]) == (True, False)
    assert found["consume"]["payload"] == "MQ=="
