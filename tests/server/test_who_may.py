"""Every route against every caller: nothing answers to the wrong one.

It goes over the routes themselves, so a new one is covered when it is added; one that takes a body has to say in
``BODIES`` what a request for it looks like.
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
from penstock.server.auth.api_keys import Keys
from penstock.server.http.endpoint import Endpoint, Role
from tests import gated, servers
from tests.server.keys import bearer, token, with_keys
from tests.server.serving import serving
from tests.servers import Server

QUEUE = "shop.orders"
SECRET = "a secret that is long enough to sign tokens with"  # noqa: S105
REFUSED = (401, 403)


@dataclass
class Stage:
    """A server with a queue, something leased from it and a dead letter, and every kind of caller."""

    url: str
    database_url: str
    http: httpx.Client
    #: What a request names: partitions, leases, ids.
    facts: dict[str, Any] = field(default_factory=dict)
    keys: dict[str, str] = field(default_factory=dict)


Body = Callable[[dict[str, Any]], object]

#: A request for each route that takes a body, as somebody would send who may.
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
    "POST /v1/dead-letters/purge": lambda _: {"queue": QUEUE},
    "POST /v1/keys": lambda _: {"name": "new", "roles": ["read"]},
    "POST /v1/keys/{key}/rotate": lambda _: {"grace_seconds": 0},
    "PATCH /v1/gates/{query}": lambda _: {"paused": True},
    "POST /v1/gates/{query}/hold": lambda _: {"seconds": 1},
    "PUT /v1/rules/{rule}": lambda _: {"on": QUEUE, "when": {"kind": "above", "limit": 1}, "alerts": f"{QUEUE}.alerts"},
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
#: Roles that a request needs beside those of its route.
ALSO = {
    # Making one, and saying of one what it is already, takes less.
    "POST /api/v1/configure": frozenset({Role.ADMIN}),
    "POST /v1/transaction": frozenset({Role.PRODUCE}),
    "POST /api/v1/transaction": frozenset({Role.CONSUME, Role.PRODUCE}),
    "POST /streams/v1/queries": frozenset({Role.PRODUCE}),
    "POST /streams/v1/cycle": frozenset({Role.PRODUCE}),
}


def name_of(endpoint: Endpoint) -> str:
    return f"{endpoint.method} {endpoint.path}"


def needs_body(endpoint: Endpoint) -> bool:
    return endpoint.body is not None or "requestBody" in endpoint.documented


def test_every_route_with_a_body_has_a_request_here() -> None:
    """Without one, nothing would show that its handler asks whose queue it works on."""
    assert {name_of(each) for each in ENDPOINTS if needs_body(each)} <= BODIES.keys()


def test_every_route_that_works_on_queues_knows_which() -> None:
    """A queue is in the path, or the handler asks; a body or a query that names one is not overlooked."""
    for endpoint in ENDPOINTS:
        body = BODIES[name_of(endpoint)](_Anything()) if needs_body(endpoint) else None
        named = QUEUE in repr(body) or "queue" in endpoint.query.__struct_fields__
        assert endpoint.asks or "{queue}" in endpoint.path or not named, name_of(endpoint)


class _Anything(dict[str, Any]):
    def __missing__(self, name: str) -> dict[str, Any]:
        return {}


@pytest.fixture(scope="module")
def stage(pg18: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    secret = tmp_path_factory.mktemp("who_may") / "secret"
    secret.write_text(SECRET)
    options = ["--require-access", "--jwt-secret-file", str(secret)]
    environ = {"PENSTOCK_FAILED_ATTEMPTS": "1000000", "PENSTOCK_REQUEST_LOG": "none"}
    with (
        pg18.fresh_database(servers.TEMPLATE) as url,
        serving(url, options, environ) as running,
        httpx.Client(base_url=running.url, timeout=30) as http,
    ):
        made = Stage(running.url, url, http, keys=with_keys(url, _callers))
        _set(made)
        yield made


ROLES: tuple[frozenset[Role], ...] = (*(frozenset({role}) for role in Role), frozenset({Role.CONSUME, Role.PRODUCE}))


def called(roles: frozenset[Role]) -> str:
    return "+".join(sorted(role.value for role in roles))


async def _callers(keys: Keys) -> dict[str, str]:
    """Keys and tokens by what they are: ``consume`` for all queues, ``consume@shop.*`` for some."""
    made = {"wrong": f"penstock_nobody_{'a' * 43}", "nonsense": "nonsense"}
    for patterns in (("*",), ("shop.*",), ("bank.*", "shop.orders2", "?hop.order")):
        for roles in ROLES:
            _, key = await keys.create("test", [*roles], patterns)
            made[called(roles) if patterns == ("*",) else f"{called(roles)}@{patterns[0]}"] = str(key)
    _, revoked = await keys.create("revoked", [Role.ADMIN])
    await keys.revoke(revoked.id)
    _, over = await keys.create("over", [Role.ADMIN], expires_at=datetime.now(UTC) - timedelta(seconds=1))
    made |= {"revoked": str(revoked), "over": str(over), "a token that is over": _token("admin", exp=1)}
    made |= {f"token {role}": _token(role) for role in ("admin", "read-only")}
    made["token admin@bank.*"] = _token("admin", queues=["bank.*"])
    return made


def _token(role: str, **claims: Any) -> str:
    return token(SECRET, "HS256", role=role, **claims)


def _set(stage: Stage) -> None:
    """Put on stage what requests name."""
    admin = bearer(stage.keys["admin"])

    def ask(method: str, path: str, json: object = None) -> Any:
        answer = stage.http.request(method, path, json=json, headers=admin)
        assert answer.is_success, answer.text
        return answer.json() if answer.content else None

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


def ask(stage: Stage, endpoint: Endpoint, credential: str | None) -> tuple[int, str]:
    """Ask for what an endpoint does to the queue: the status and, if it is no stream, the answer."""
    plane = endpoint.plane
    parts = {
        "queue": QUEUE,
        "group": "mail" if plane else "billing",
        "partition": "plane" if plane else "leased",
        "transaction": stage.facts["plane_ack"]["transactionId"],
        "id": stage.facts["plane_dead_letter" if plane else "dead_letter"],
        "lease": stage.facts["plane_lease"],
        "query": "nothing",
    }
    if "{transaction}" in endpoint.path:
        parts["partition"] = stage.facts["plane_ack"]["partitionId"]
    path = re.sub(r"\{(\w+)(:\w+)?\}", lambda match: str(parts.get(match[1], "nothing")), endpoint.path)
    query = QUERIES.get(name_of(endpoint), {})
    headers = {} if credential is None else bearer(credential)
    if endpoint.websocket:
        try:
            with connect(stage.url.replace("http", "ws") + path, additional_headers=headers):
                return 101, ""
        except InvalidStatus as refused:
            return refused.response.status_code, bytes(refused.response.body or b"").decode()
    if query:
        path += f"?{urlencode(query)}"
    body = BODIES[name_of(endpoint)](stage.facts) if needs_body(endpoint) else None
    with stage.http.stream(endpoint.method, path, json=body, headers=headers) as answer:
        is_stream = answer.headers.get("content-type", "").startswith("text/event-stream")
        return answer.status_code, "" if is_stream else answer.read().decode()


def everything_stored(database_url: str) -> dict[str, list[str]]:
    """All rows of all tables, but those that say who has called, or which lanes were idle while it took place."""
    with psycopg.connect(database_url) as conn:
        tables = conn.execute("SELECT tablename FROM pg_tables WHERE schemaname = 'penstock'").fetchall()
        return {
            name: sorted(
                str(row[0])
                for row in conn.execute(sql.SQL("SELECT t::text FROM penstock.{} t").format(sql.Identifier(name)))
            )
            for (name,) in tables
            if name not in ("api_keys", "audit", "cursors")
        }


STRANGERS = ("wrong", "nonsense", "revoked", "over", "a token that is over")


def test_nothing_answers_to_the_wrong_one(stage: Stage) -> None:
    before = everything_stored(stage.database_url)
    for endpoint in ENDPOINTS:
        if not endpoint.roles:
            continue
        for caller in (None, *STRANGERS):
            status, text = ask(stage, endpoint, stage.keys[caller] if caller else None)
            assert status == 401, (name_of(endpoint), caller, text)
        for role in Role:
            if role is not Role.ADMIN and not is_for(endpoint, frozenset({role})):
                status, text = ask(stage, endpoint, stage.keys[role.value])
                assert status == 403, (name_of(endpoint), role, text)
        for caller in (name for name in stage.keys if name.endswith("@bank.*")):
            status, text = ask(stage, endpoint, stage.keys[caller])
            # What lists queues leaves the others out; all else is refused, or is not there for this caller.
            assert status in (403, 404) or (endpoint.asks and is_silent(text)), (
                name_of(endpoint),
                caller,
                status,
                text,
            )
            # Nobody learns what a queue is called by naming something in it.
            assert QUEUE not in text or names_the_queue(stage, endpoint), (name_of(endpoint), caller, text)
    assert everything_stored(stage.database_url) == before


def names_the_queue(stage: Stage, endpoint: Endpoint) -> bool:
    body = BODIES[name_of(endpoint)](stage.facts) if needs_body(endpoint) else ""
    return "{queue" in endpoint.path or QUEUE in f"{QUERIES.get(name_of(endpoint))} {body}"


def is_for(endpoint: Endpoint, roles: frozenset[Role]) -> bool:
    also = ALSO.get(name_of(endpoint), frozenset())
    return not endpoint.roles.isdisjoint(roles) and also <= roles


def is_silent(text: str) -> bool:
    return not any(word in text for word in (QUEUE, "payload", "billing", "mail"))


def test_everything_answers_to_the_right_one(stage: Stage) -> None:
    """So that the test above does not pass because nobody is let in."""
    for endpoint in ENDPOINTS:
        limited_may = not endpoint.roles or endpoint.asks or "{queue}" in endpoint.path
        callers = ["admin", "token admin", *(["admin@shop.*"] if limited_may else [])]
        for roles in ROLES:
            if not endpoint.roles or is_for(endpoint, roles):
                callers += [called(roles), *([f"{called(roles)}@shop.*"] if limited_may else [])]
        for caller in callers:
            status, text = ask(stage, endpoint, stage.keys[caller])
            assert status not in REFUSED, (name_of(endpoint), caller, status, text)
            assert status < 500 or status == 503, (name_of(endpoint), caller, status, text)
        if not endpoint.roles:
            assert ask(stage, endpoint, None)[0] == 200


def test_a_shared_query_is_only_for_who_may_read_its_source(stage: Stage) -> None:
    """Whoever registers it anew with a source of his own would wipe its state, and move its group."""
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


def test_a_gate_is_held_back_by_who_consumes_what_it_lets_through(stage: Stage) -> None:
    gated.store(stage.database_url)
    with psycopg.connect(stage.database_url) as conn:
        conn.execute("UPDATE penstock.queries SET sink_queue = %s WHERE name = %s", [QUEUE, gated.QUERY])

    def held(caller: str) -> int:
        asked = {"key": "tenant-7", "seconds": 1}
        path, credential = f"/v1/gates/{gated.QUERY}/hold", bearer(stage.keys[caller])
        return stage.http.post(path, json=asked, headers=credential).status_code

    assert [held(caller) for caller in ("consume", "consume@shop.*", "admin")] == [204] * 3
    assert [held(caller) for caller in ("consume@bank.*", "produce", "read@shop.*")] == [403] * 3


def test_a_lease_is_no_way_into_another_queue(stage: Stage) -> None:
    """What a request names by number must be of the queue that its path names."""
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
