"""Authentication over HTTP: keys, tokens, failed attempts, the audit log."""

from __future__ import annotations

import json
from datetime import timedelta
from operator import methodcaller
from pathlib import Path
from typing import Any

import httpx
import pytest

from penstock.server.auth.identity import Role
from penstock.server.auth.key_format import PlaintextKey, parse_key
from tests.conditions import eventually
from tests.server.access_server import JWT_SECRET, AccessServer
from tests.server.keys import audit_rejecting_writes, bearer, create_key, read_audit, sign_token, use_key_store
from tests.server.problems import problem_kind
from tests.server.server_process import run_server


def parsed(key: str) -> PlaintextKey:
    plaintext = parse_key(key)
    assert plaintext is not None
    return plaintext


def test_key_grants_access(access_server: AccessServer) -> None:
    key = access_server.create_key(Role.READ)
    assert problem_kind(access_server.get("/v1/queues")) == (401, "unauthenticated")
    assert access_server.get("/v1/queues").headers["www-authenticate"] == "Bearer"
    assert access_server.get("/v1/queues", **bearer(key)).status_code == 200
    assert access_server.get("/v1/queues", **{"X-API-Key": key}).status_code == 200
    assert access_server.get("/healthz").status_code == 200


@pytest.mark.parametrize(
    "authorization",
    [
        "Bearer",
        "Basic YTpi",
        "Bearer penstock_",
        "Bearer penstock_a_b",
        "Bearer penstock_" + "a" * 10_000,
        "Bearer nonsense",
        "Bearer a.b.c",
        "Bearer \xff\xfe",
    ],
)
def test_malformed_credentials_are_refused(access_server: AccessServer, authorization: str) -> None:
    response = httpx.get(
        f"{access_server.url}/v1/queues", headers=[(b"Authorization", authorization.encode("latin-1"))]
    )
    assert problem_kind(response) == (401, "unauthenticated")
    assert response.headers["www-authenticate"].startswith("Bearer")


def test_wrong_secret_is_refused(access_server: AccessServer) -> None:
    key = access_server.create_key(Role.READ)
    for wrong in (key[:-1], key + "a", key[:-1] + ("a" if key[-1] != "a" else "b"), key.swapcase()):
        assert access_server.get("/v1/queues", **bearer(wrong)).status_code == 401


def test_previous_secret_is_valid_during_the_grace_period(access_server: AccessServer) -> None:
    old = access_server.create_key(Role.READ)
    key_id = parsed(old).id
    assert access_server.get("/v1/queues", **bearer(old)).status_code == 200
    _, new = use_key_store(access_server.database_url, lambda keys: keys.rotate(key_id, timedelta(hours=1)))
    assert access_server.get("/v1/queues", **bearer(str(new))).status_code == 200, "at once, although the key is cached"
    assert access_server.get("/v1/queues", **bearer(old)).status_code == 200
    _, newest = use_key_store(access_server.database_url, lambda keys: keys.rotate(key_id, timedelta()))
    assert access_server.get("/v1/queues", **bearer(str(newest))).status_code == 200
    for expired in (old, str(new)):
        assert access_server.get("/v1/queues", **bearer(expired)).status_code == 401


def test_create_list_rotate_and_revoke_keys(access_server: AccessServer) -> None:
    admin = access_server.create_key(Role.ADMIN)
    with httpx.Client(base_url=f"{access_server.url}/v1/", headers=bearer(admin), timeout=30) as http:
        made = http.post("keys", json={"name": "shop", "roles": ["read"], "queues": ["shop.*"]})
        assert made.status_code == 201, made.text
        new = made.json()
        path, first = f"keys/{new['id']}", new.pop("key")
        assert access_server.get("/v1/queues", **bearer(first)).status_code == 200
        (listed,) = [key for key in http.get("keys").json()["keys"] if key["id"] == new["id"]]
        assert {**listed, "last_used_at": None} == new
        second = http.post(f"{path}/rotate", json={"grace_seconds": 0}).json()["key"]
        assert access_server.get("/v1/queues", **bearer(second)).status_code == 200
        assert access_server.get("/v1/queues", **bearer(first)).status_code == 401
        assert http.delete(path).status_code == 204
        (revoked,) = [key for key in http.get("keys").json()["keys"] if key["id"] == new["id"]]
        assert revoked["revoked_at"] is not None
        assert problem_kind(http.post(f"{path}/rotate")) == (404, "not-found")
        key_id = parsed(admin).id
        entries = http.get("audit", params={"who": key_id, "limit": 100}).json()["entries"]
        done = [each["action"] for each in entries if each["subject"] == f"{new['id']} shop"]
        assert done == ["key revoke", "key rotate", "key create"]
        for wrong, kind in (
            ({"name": "x", "roles": []}, (422, "invalid-option")),
            ({"name": "x", "roles": ["root"]}, (400, "invalid-request")),
            ({"name": "", "roles": ["read"]}, (422, "invalid-name")),
            ({"name": "x", "roles": ["read"], "expires_at": "2030-01-01T00:00:00"}, (422, "invalid-option")),
        ):
            assert problem_kind(http.post("keys", json=wrong)) == kind
    limited = access_server.create_key(Role.ADMIN, queues=("shop.*",))
    assert problem_kind(access_server.get("/v1/keys", **bearer(limited))) == (403, "forbidden")
    logged = access_server.log.read_text()
    assert not any(secret.rpartition("_")[2] in logged for secret in (first, second))


def test_revoked_administrator_cannot_change_keys(access_server: AccessServer) -> None:
    bystander = parse_key(access_server.create_key(Role.READ))
    assert bystander is not None
    changing: tuple[tuple[str, str, object], ...] = (
        ("POST", "keys", {"name": "heir", "roles": ["admin"]}),
        ("POST", f"keys/{bystander.id}/rotate", {"grace_seconds": 0}),
        ("DELETE", f"keys/{bystander.id}", None),
    )
    for method, path, body in changing:
        admin = access_server.create_key(Role.ADMIN)
        key_id = parsed(admin).id
        assert access_server.get("/v1/keys", **bearer(admin)).status_code == 200, "the key is cached from now on"
        use_key_store(access_server.database_url, methodcaller("revoke", key_id))
        response = httpx.request(method, f"{access_server.url}/v1/{path}", json=body, headers=bearer(admin))
        assert problem_kind(response) == (401, "unauthenticated"), path
    known = {key.id: key for key in use_key_store(access_server.database_url, lambda keys: keys.list_all())}
    assert "heir" not in {key.name for key in known.values()}
    assert (known[bystander.id].rotated_at, known[bystander.id].revoked_at) == (None, None)


def test_key_changes_succeed_when_the_audit_log_fails(access_server: AccessServer) -> None:
    admin = access_server.create_key(Role.ADMIN)
    with (
        audit_rejecting_writes(access_server.database_url),
        httpx.Client(base_url=f"{access_server.url}/v1/", headers=bearer(admin), timeout=30) as http,
    ):
        made = http.post("keys", json={"name": "unwritten", "roles": ["read"]})
        assert made.status_code == 201, made.text
        rotated = http.post(f"keys/{made.json()['id']}/rotate")
        assert rotated.status_code == 200, rotated.text
        assert access_server.get("/v1/queues", **bearer(rotated.json()["key"])).status_code == 200
        assert http.delete(f"keys/{made.json()['id']}").status_code == 204
    (line, *_) = [
        each for each in access_server.log.read_text().splitlines() if "could not write an audit entry" in each
    ]
    assert json.loads(line)["subject"] == f"{made.json()['id']} unwritten"


def test_server_without_access_control_manages_no_keys(v1: httpx.Client) -> None:
    for method, path in (("GET", "keys"), ("POST", "keys"), ("DELETE", "keys/x"), ("GET", "audit")):
        response = v1.request(method, path, json={"name": "x", "roles": ["admin"]} if method == "POST" else None)
        assert problem_kind(response) == (403, "forbidden")
        assert "penstock key" in response.json()["detail"]


def test_lists_omit_queues_that_the_key_is_not_for(access_server: AccessServer) -> None:
    admin = access_server.create_key(Role.ADMIN)
    for name in ("shop.orders", "bank"):
        assert httpx.put(f"{access_server.url}/v1/queues/{name}", headers=bearer(admin)).status_code == 200
    key = access_server.create_key(Role.READ, queues=("shop.*",))
    listed = access_server.get("/v1/queues", **bearer(key)).json()["queues"]
    assert [queue["name"] for queue in listed] == ["shop.orders"]
    assert problem_kind(access_server.get("/v1/queues/bank", **bearer(key))) == (403, "forbidden")


def test_administrator_actions_are_audited(access_server: AccessServer) -> None:
    admin = access_server.create_key(Role.ADMIN)
    reader = access_server.create_key(Role.READ)
    url, headers = f"{access_server.url}/v1/queues/audited", {"X-Request-Id": "audited-1"}
    assert httpx.put(url, headers={**bearer(admin), **headers}).status_code == 200
    assert httpx.delete(url, headers=bearer(reader)).status_code == 403
    expected = {
        (parsed(admin).id, "PUT /v1/queues/{queue}", "audited", "200"),
        (parsed(reader).id, "DELETE /v1/queues/{queue}", "audited", "403"),
    }

    def is_written() -> bool:
        entries = read_audit(access_server.database_url)
        return expected <= {(entry.who, entry.action, entry.subject, entry.outcome) for entry in entries}

    eventually(is_written)
    (entry,) = [entry for entry in read_audit(access_server.database_url) if entry.request_id == "audited-1"]
    assert entry.address == "127.0.0.1"


def test_credentials_are_not_logged(access_server: AccessServer) -> None:
    key, signed = access_server.create_key(Role.READ), sign_token(JWT_SECRET, "HS256", role="read-only")
    for credential in (key, signed):
        headers = {**bearer(credential), "X-API-Key": credential, "X-Request-Id": "looked-for"}
        assert access_server.get("/v1/queues", **headers).status_code == 200
        # Also in places where credentials do not belong.
        for path in (f"/v1/queues/nothing?key={credential}", f"/v1/nowhere/{credential}"):
            assert access_server.get(path, **headers).status_code in (400, 404)
    wrong = f"{key[:-1]}?"
    assert access_server.get("/v1/queues", **bearer(wrong)).status_code == 401
    assert access_server.get("/healthz", **{"X-Request-Id": "the-last"}).status_code == 200
    eventually(lambda: '"the-last"' in access_server.log.read_text())
    logged = access_server.log.read_text()
    assert '"looked-for"' in logged
    assert f'"caller":"{parsed(key).id}"' in logged
    entries = read_audit(access_server.database_url)
    written = logged + json.dumps([entry.outcome + entry.subject + entry.who for entry in entries])
    secret = parsed(key).secret
    for part in (secret, secret[:-1], signed, signed.rpartition(".")[2], JWT_SECRET):
        assert part not in written


@pytest.mark.slow
def test_failed_attempts_are_throttled_by_address(access_server: AccessServer) -> None:
    url = access_server.database_url
    key = create_key(url, Role.READ)
    with run_server(url, ["--require-access"], {"PENSTOCK_FAILED_ATTEMPTS": "3"}) as running:
        path = f"{running.url}/v1/queues"
        assert httpx.get(path, headers=bearer(key)).status_code == 200
        responses = [httpx.get(path, headers=bearer(f"penstock_guess{n}_guess")) for n in range(5)]
        assert [response.status_code for response in responses] == [401, 401, 401, 429, 429]
        assert problem_kind(responses[-1]) == (429, "rate-limited")
        assert 1 <= int(responses[-1].headers["retry-after"]) <= 60
        assert httpx.get(path, headers=bearer(key)).status_code == 200, "a cached key is not throttled"
        assert httpx.get(path).status_code == 401, "a request without a credential is not an attempt"


@pytest.mark.slow
def test_valid_credentials_are_accepted_from_a_throttled_address(access_server: AccessServer, tmp_path: Path) -> None:
    url = access_server.database_url
    key = create_key(url, Role.READ)
    token = sign_token(JWT_SECRET, "HS256", role="read-only")
    (tmp_path / "secret").write_text(JWT_SECRET)
    options = ["--require-access", "--jwt-secret-file", str(tmp_path / "secret")]
    with run_server(url, options, {"PENSTOCK_FAILED_ATTEMPTS": "1"}) as running:
        path = f"{running.url}/v1/queues"
        for wrong in ("penstock_guess_guess", "penstock_other_other", f"{key[:-1]}!", f"{token}x"):
            httpx.get(path, headers=bearer(wrong))
        assert httpx.get(path, headers=bearer(f"{token}x")).status_code == 429
        assert httpx.get(path, headers=bearer(token)).status_code == 200
        assert httpx.get(path, headers=bearer(key)).status_code == 200, "a key that this process has not seen before"


def test_token_roles_grant_access(access_server: AccessServer) -> None:
    reader = bearer(sign_token(JWT_SECRET, "HS256", role="read-only"))
    assert access_server.get("/v1/queues", **reader).status_code == 200
    assert access_server.get("/v1/queues", **bearer(sign_token(JWT_SECRET, "HS256"))).status_code == 403
    assert httpx.put(f"{access_server.url}/v1/queues/t", headers=reader).status_code == 403


@pytest.mark.parametrize(
    "path", ["/v1/dead-letters/redrive", "/api/v1/dlq/7073746f-636b-8002-8000-000000000001/replay"]
)
def test_redrive_of_dead_letters_needs_the_role_admin(access_server: AccessServer, path: str) -> None:
    def redrive(*roles: Role) -> int:
        headers = bearer(access_server.create_key(*roles))
        return httpx.post(access_server.url + path, json={"ids": [1]}, headers=headers, timeout=30).status_code

    assert redrive(Role.PRODUCE, Role.CONSUME, Role.READ) == 403
    assert redrive(Role.ADMIN) in (200, 404)


@pytest.mark.parametrize("role", [Role.PRODUCE, Role.CONSUME])
def test_producers_and_consumers_may_create_queen_queues_but_not_change_them(
    access_server: AccessServer, role: Role
) -> None:
    queue = f"made-by-{role.value}"
    key, admin = access_server.create_key(role, queues=("made-*",)), access_server.create_key(Role.ADMIN)

    def configure(key: str, **changes: Any) -> int:
        url = f"{access_server.url}/api/v1/configure"
        return httpx.post(url, json={"queue": queue, **changes}, headers=bearer(key), timeout=30).status_code

    options = {"leaseTime": 60, "retryLimit": 3}
    assert configure(key, options=options) == 200
    # Clients repeat it whenever they start.
    assert configure(key, options=options) == 200
    assert configure(key) == 200
    for change in (
        {"options": {"leaseTime": 61}},
        {"options": {"retentionEnabled": True, "retentionSeconds": 1}},
        {"options": options, "namespace": "elsewhere"},
        {"options": options, "task": "other"},
        {"options": {"priority": 5}},
        {"mode": "replace"},
    ):
        assert configure(key, **change) == 403, change
    assert configure(admin, options={"leaseTime": 61}) == 200
    assert configure(key, options=options) == 403
    assert configure(key, options={"leaseTime": 61}) == 200
