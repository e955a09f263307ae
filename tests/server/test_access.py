"""Who is let in: keys, tokens, failed attempts, what is written down."""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from operator import methodcaller
from pathlib import Path
from typing import Any

import httpx
import jwt
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey, generate_private_key

from penstock.core.errors import ConfigurationError
from penstock.core.settings import Settings
from penstock.server.auth.identity import Identity
from penstock.server.auth.jwt import InvalidToken, Tokens
from penstock.server.auth.key_format import parse_key
from penstock.server.auth.throttle import Attempts
from penstock.server.http.endpoint import Role
from penstock.server.settings import ServerSettings
from tests import servers
from tests.server.keys import bearer, make_key, no_audit, read_audit, token, with_keys
from tests.server.refusals import refusal
from tests.server.serving import Serving, serving
from tests.servers import Server

SECRET = "a secret that is long enough to sign tokens with"  # noqa: S105
MANY = "1000000"


@dataclass
class Guarded:
    """A server that asks for keys, and where its keys are."""

    running: Serving
    database_url: str
    log: Path

    def get(self, path: str, **headers: str) -> httpx.Response:
        return httpx.get(self.running.url + path, headers=headers, timeout=30)

    def key(self, *roles: Role, queues: tuple[str, ...] = ("*",)) -> str:
        return make_key(self.database_url, *roles, queues=queues)


@pytest.fixture(scope="module")
def guarded(pg18: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    folder = tmp_path_factory.mktemp("guarded")
    (folder / "secret").write_text(SECRET)
    options = ["--require-access", "--jwt-secret-file", str(folder / "secret")]
    with (
        (folder / "log").open("w") as log,
        pg18.fresh_database(servers.TEMPLATE) as url,
        serving(url, options, {"PENSTOCK_FAILED_ATTEMPTS": MANY}, log) as running,
    ):
        yield Guarded(running, url, folder / "log")


def test_a_key_opens_what_it_is_for(guarded: Guarded) -> None:
    key = guarded.key(Role.READ)
    assert refusal(guarded.get("/v1/queues")) == (401, "unauthenticated")
    assert guarded.get("/v1/queues").headers["www-authenticate"] == "Bearer"
    assert guarded.get("/v1/queues", **bearer(key)).status_code == 200
    assert guarded.get("/v1/queues", **{"X-API-Key": key}).status_code == 200
    assert guarded.get("/healthz").status_code == 200


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
def test_what_is_no_key_is_refused(guarded: Guarded, authorization: str) -> None:
    answer = httpx.get(
        f"{guarded.running.url}/v1/queues", headers=[(b"Authorization", authorization.encode("latin-1"))]
    )
    assert refusal(answer) == (401, "unauthenticated")
    assert answer.headers["www-authenticate"].startswith("Bearer")


def test_a_secret_must_be_right_to_the_last_character(guarded: Guarded) -> None:
    key = guarded.key(Role.READ)
    for wrong in (key[:-1], key + "a", key[:-1] + ("a" if key[-1] != "a" else "b"), key.swapcase()):
        assert guarded.get("/v1/queues", **bearer(wrong)).status_code == 401


def test_a_revoked_key_is_refused_within_the_time_that_is_stated(guarded: Guarded) -> None:
    key = guarded.key(Role.READ)
    parsed = parse_key(key)
    assert parsed is not None
    assert guarded.get("/v1/queues", **bearer(key)).status_code == 200
    with_keys(guarded.database_url, lambda keys: keys.revoke(parsed.id))
    deadline = time.monotonic() + 20
    while guarded.get("/v1/queues", **bearer(key)).status_code == 200:
        assert time.monotonic() < deadline
        time.sleep(0.1)
    assert guarded.get("/v1/queues", **bearer(key)).status_code == 401


def test_a_rotated_key_is_good_twice_for_a_while(guarded: Guarded) -> None:
    old = guarded.key(Role.READ)
    parsed = parse_key(old)
    assert parsed is not None
    assert guarded.get("/v1/queues", **bearer(old)).status_code == 200
    _, new = with_keys(guarded.database_url, lambda keys: keys.rotate(parsed.id, timedelta(hours=1)))
    assert guarded.get("/v1/queues", **bearer(str(new))).status_code == 200, "at once, whatever is remembered"
    assert guarded.get("/v1/queues", **bearer(old)).status_code == 200
    _, newest = with_keys(guarded.database_url, lambda keys: keys.rotate(parsed.id, timedelta()))
    assert guarded.get("/v1/queues", **bearer(str(newest))).status_code == 200
    for over in (old, str(new)):
        assert guarded.get("/v1/queues", **bearer(over)).status_code == 401


def test_keys_are_made_listed_rotated_and_revoked_over_http(guarded: Guarded) -> None:
    admin = guarded.key(Role.ADMIN)
    with httpx.Client(base_url=f"{guarded.running.url}/v1/", headers=bearer(admin), timeout=30) as http:
        made = http.post("keys", json={"name": "shop", "roles": ["read"], "queues": ["shop.*"]})
        assert made.status_code == 201, made.text
        new = made.json()
        path, first = f"keys/{new['id']}", new.pop("key")
        assert guarded.get("/v1/queues", **bearer(first)).status_code == 200
        (listed,) = [key for key in http.get("keys").json()["keys"] if key["id"] == new["id"]]
        assert {**listed, "last_used_at": None} == new
        second = http.post(f"{path}/rotate", json={"grace_seconds": 0}).json()["key"]
        assert guarded.get("/v1/queues", **bearer(second)).status_code == 200
        assert guarded.get("/v1/queues", **bearer(first)).status_code == 401
        assert http.delete(path).status_code == 204
        (revoked,) = [key for key in http.get("keys").json()["keys"] if key["id"] == new["id"]]
        assert revoked["revoked_at"] is not None
        assert refusal(http.post(f"{path}/rotate")) == (404, "not-found")
        parsed = parse_key(admin)
        assert parsed is not None
        said = http.get("audit", params={"who": parsed.id, "limit": 100}).json()["entries"]
        done = [each["action"] for each in said if each["subject"] == f"{new['id']} shop"]
        assert done == ["key revoke", "key rotate", "key create"]
        for wrong, kind in (
            ({"name": "x", "roles": []}, (422, "invalid-option")),
            ({"name": "x", "roles": ["root"]}, (400, "invalid-request")),
            ({"name": "", "roles": ["read"]}, (422, "invalid-name")),
            ({"name": "x", "roles": ["read"], "expires_at": "2030-01-01T00:00:00"}, (422, "invalid-option")),
        ):
            assert refusal(http.post("keys", json=wrong)) == kind
    limited = guarded.key(Role.ADMIN, queues=("shop.*",))
    assert refusal(guarded.get("/v1/keys", **bearer(limited))) == (403, "forbidden")
    logged = guarded.log.read_text()
    assert not any(secret.rpartition("_")[2] in logged for secret in (first, second))


def test_a_revoked_administrator_makes_no_key_that_outlives_his(guarded: Guarded) -> None:
    bystander = parse_key(guarded.key(Role.READ))
    assert bystander is not None
    changing: tuple[tuple[str, str, object], ...] = (
        ("POST", "keys", {"name": "heir", "roles": ["admin"]}),
        ("POST", f"keys/{bystander.id}/rotate", {"grace_seconds": 0}),
        ("DELETE", f"keys/{bystander.id}", None),
    )
    for method, path, body in changing:
        admin = guarded.key(Role.ADMIN)
        parsed = parse_key(admin)
        assert parsed is not None
        assert guarded.get("/v1/keys", **bearer(admin)).status_code == 200, "and is remembered from now on"
        with_keys(guarded.database_url, methodcaller("revoke", parsed.id))
        answer = httpx.request(method, f"{guarded.running.url}/v1/{path}", json=body, headers=bearer(admin))
        assert refusal(answer) == (401, "unauthenticated"), path
    known = {key.id: key for key in with_keys(guarded.database_url, lambda keys: keys.all())}
    assert "heir" not in {key.name for key in known.values()}
    assert (known[bystander.id].rotated_at, known[bystander.id].revoked_at) == (None, None)


def test_a_key_is_given_out_although_it_cannot_be_written_down(guarded: Guarded) -> None:
    admin = guarded.key(Role.ADMIN)
    with (
        no_audit(guarded.database_url),
        httpx.Client(base_url=f"{guarded.running.url}/v1/", headers=bearer(admin), timeout=30) as http,
    ):
        made = http.post("keys", json={"name": "unwritten", "roles": ["read"]})
        assert made.status_code == 201, made.text
        rotated = http.post(f"keys/{made.json()['id']}/rotate")
        assert rotated.status_code == 200, rotated.text
        assert guarded.get("/v1/queues", **bearer(rotated.json()["key"])).status_code == 200
        assert http.delete(f"keys/{made.json()['id']}").status_code == 204
    (line, *_) = [each for each in guarded.log.read_text().splitlines() if "could not be written down" in each]
    assert json.loads(line)["subject"] == f"{made.json()['id']} unwritten"


def test_who_is_asked_for_no_key_makes_none(v1: httpx.Client) -> None:
    for method, path in (("GET", "keys"), ("POST", "keys"), ("DELETE", "keys/x"), ("GET", "audit")):
        answer = v1.request(method, path, json={"name": "x", "roles": ["admin"]} if method == "POST" else None)
        assert refusal(answer) == (403, "forbidden")
        assert "penstock key" in answer.json()["detail"]


def test_lists_leave_out_what_a_key_is_not_for(guarded: Guarded) -> None:
    admin = guarded.key(Role.ADMIN)
    for name in ("shop.orders", "bank"):
        assert httpx.put(f"{guarded.running.url}/v1/queues/{name}", headers=bearer(admin)).status_code == 200
    key = guarded.key(Role.READ, queues=("shop.*",))
    listed = guarded.get("/v1/queues", **bearer(key)).json()["queues"]
    assert [queue["name"] for queue in listed] == ["shop.orders"]
    assert refusal(guarded.get("/v1/queues/bank", **bearer(key))) == (403, "forbidden")


def test_what_an_administrator_does_is_written_down(guarded: Guarded) -> None:
    admin = guarded.key(Role.ADMIN)
    reader = guarded.key(Role.READ)
    url, headers = f"{guarded.running.url}/v1/queues/audited", {"X-Request-Id": "audited-1"}
    assert httpx.put(url, headers={**bearer(admin), **headers}).status_code == 200
    assert httpx.delete(url, headers=bearer(reader)).status_code == 403
    deadline = time.monotonic() + 20
    while True:
        lines = read_audit(guarded.database_url)
        found = {(line.who, line.action, line.subject, line.outcome) for line in lines}
        ids = {role: parsed.id for role, key in (("admin", admin), ("reader", reader)) if (parsed := parse_key(key))}
        wanted = {
            (ids["admin"], "PUT /v1/queues/{queue}", "audited", "200"),
            (ids["reader"], "DELETE /v1/queues/{queue}", "audited", "403"),
        }
        if wanted <= found:
            break
        assert time.monotonic() < deadline
        time.sleep(0.1)
    (line,) = [line for line in lines if line.request_id == "audited-1"]
    assert line.address == "127.0.0.1"


def test_neither_keys_nor_tokens_are_logged(guarded: Guarded) -> None:
    key, signed = guarded.key(Role.READ), token(SECRET, "HS256", role="read-only")
    parsed = parse_key(key)
    assert parsed is not None
    for credential in (key, signed):
        headers = {**bearer(credential), "X-API-Key": credential, "X-Request-Id": "looked-for"}
        assert guarded.get("/v1/queues", **headers).status_code == 200
        # Where they do not belong, too.
        for path in (f"/v1/queues/nothing?key={credential}", f"/v1/nowhere/{credential}"):
            assert guarded.get(path, **headers).status_code in (400, 404)
    wrong = f"{key[:-1]}?"
    assert guarded.get("/v1/queues", **bearer(wrong)).status_code == 401
    assert guarded.get("/healthz", **{"X-Request-Id": "the-last"}).status_code == 200
    deadline = time.monotonic() + 20
    while '"the-last"' not in (said := guarded.log.read_text()):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert '"looked-for"' in said
    assert f'"caller":"{parsed.id}"' in said
    written = said + json.dumps([line.outcome + line.subject + line.who for line in read_audit(guarded.database_url)])
    for secret in (parsed.secret, parsed.secret[:-1], signed, signed.rpartition(".")[2], SECRET):
        assert secret not in written


def test_too_many_wrong_keys_from_an_address_have_to_wait(pg18: Server) -> None:
    with pg18.fresh_database(servers.TEMPLATE) as url:
        key = make_key(url, Role.READ)
        with serving(url, ["--require-access"], {"PENSTOCK_FAILED_ATTEMPTS": "3"}) as running:
            path = f"{running.url}/v1/queues"
            assert httpx.get(path, headers=bearer(key)).status_code == 200
            answers = [httpx.get(path, headers=bearer(f"penstock_guess{n}_guess")) for n in range(5)]
            assert [answer.status_code for answer in answers] == [401, 401, 401, 429, 429]
            assert refusal(answers[-1]) == (429, "rate-limited")
            assert 1 <= int(answers[-1].headers["retry-after"]) <= 60
            assert httpx.get(path, headers=bearer(key)).status_code == 200, "a key that is known is not held up"
            assert httpx.get(path).status_code == 401, "who sends no key guesses none"


def test_attempts_are_counted_in_memory_that_does_not_grow() -> None:
    now = 1000.0
    attempts = Attempts(2, lambda: now)
    for _ in range(2):
        attempts.failed("2001:db8::1")
    assert attempts.wait_seconds("2001:db8::ffff") == 60, "the same /64"
    assert attempts.wait_seconds("2001:db8:0:1::1") == 0
    now += 60
    assert attempts.wait_seconds("2001:db8::1") == 0
    for n in range(20_000):
        attempts.failed(f"10.0.{n // 250}.{n % 250}")
    assert len(attempts._failures) == 10_000


@pytest.mark.parametrize(
    ("patterns", "reached", "not_reached"),
    [
        (("*",), ["a", "a.b", "*", "a\nb"], []),
        (("shop.*",), ["shop.", "shop.orders", "shop.a.b"], ["shop", "Shop.a", "a.shop.b"]),
        (("a?c", "x"), ["abc", "x"], ["ac", "abbc", "xx"]),
        (("a.b", "[ab]"), ["a.b", "[ab]"], ["acb", "a", "b"]),
        (("", "**a**"), ["a", "bab"], ["b"]),
        ((), [], ["a", ""]),
    ],
)
def test_patterns_cover_queues(patterns: tuple[str, ...], reached: list[str], not_reached: list[str]) -> None:
    identity = Identity("", frozenset(), patterns)
    assert all(identity.reaches(queue) for queue in reached)
    assert not any(identity.reaches(queue) for queue in not_reached)


# Tokens


@pytest.fixture(scope="module")
def rsa() -> RSAPrivateKey:
    return generate_private_key(65537, 2048)


ED25519 = Ed25519PrivateKey.generate()


def jwk(algorithm: type[jwt.algorithms.Algorithm], key: object, **more: str) -> dict[str, object]:
    return {**json.loads(algorithm.to_jwk(key)), **more}


def secret_jwk(secret: str, **more: str) -> dict[str, object]:
    return {"kty": "oct", "k": base64.urlsafe_b64encode(secret.encode()).decode().rstrip("="), **more}


@pytest.fixture
def jwks(tmp_path: Path, rsa: RSAPrivateKey) -> Path:
    path = tmp_path / "jwks.json"
    keys = [
        jwk(jwt.algorithms.RSAAlgorithm, rsa.public_key(), kid="r"),
        jwk(jwt.algorithms.OKPAlgorithm, ED25519.public_key(), kid="e"),
        secret_jwk(SECRET, kid="s"),
    ]
    path.write_text(json.dumps({"keys": keys}))
    return path


def tokens(jwks: Path, **more: str) -> Tokens:
    return Tokens(ServerSettings(Settings(), jwt_jwks=jwks, **more))  # type: ignore[arg-type]  # texts, all of them


def test_tokens_are_signed_in_three_ways(jwks: Path, rsa: RSAPrivateKey) -> None:
    for key, algorithm, kid in ((rsa, "RS256", "r"), (ED25519, "EdDSA", "e"), (SECRET, "HS256", "s")):
        for headers in ({"kid": kid}, None):
            found = tokens(jwks).identify(token(key, algorithm, headers, role="admin"))
            assert found == Identity("token:ada", frozenset({Role.ADMIN}))


@pytest.mark.parametrize(
    ("claims", "roles"),
    [
        ({"role": "read-write"}, {Role.PRODUCE, Role.CONSUME, Role.READ}),
        ({"role": "read-only"}, {Role.READ}),
        ({"roles": ["produce", "read"]}, {Role.PRODUCE, Role.READ}),
        ({"roles": ["root", 1, None]}, set()),
        ({"roles": {"admin": True}}, set()),
        ({}, set()),
    ],
)
def test_a_token_s_roles(jwks: Path, claims: dict[str, Any], roles: set[Role]) -> None:
    assert tokens(jwks).identify(token(SECRET, "HS256", **claims)).roles == roles


def test_a_token_s_queues(jwks: Path) -> None:
    read = tokens(jwks).identify
    assert read(token(SECRET, "HS256", queues=["a.*", "b"])).queues == ("a.*", "b")
    assert read(token(SECRET, "HS256", queues="a")).queues == ("a",)
    assert read(token(SECRET, "HS256", queues=[])).queues == ()
    for wrong in (1, [1], {"a": 1}, ["a"] * 101):
        with pytest.raises(InvalidToken, match="claim queues"):
            read(token(SECRET, "HS256", queues=wrong))


def test_a_token_that_is_not_to_be_believed(jwks: Path, rsa: RSAPrivateKey) -> None:
    public = rsa.public_key().public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    unsigned = jwt.encode({"exp": time.time() + 60, "role": "admin"}, None, "none")  # type: ignore[arg-type]  # no key
    header, _, signature = token(SECRET, "HS256", role="read").split(".")
    claims = (
        base64.urlsafe_b64encode(json.dumps({"exp": time.time() + 60, "role": "admin"}).encode()).decode().rstrip("=")
    )
    # The public key as a secret, which the library would not sign with: by hand.
    confused_head = base64.urlsafe_b64encode(b'{"alg":"HS256","kid":"r","typ":"JWT"}').decode().rstrip("=")
    mac = jwt.algorithms.HMACAlgorithm(jwt.algorithms.HMACAlgorithm.SHA256).sign(
        f"{confused_head}.{claims}".encode(), public
    )
    confused = f"{confused_head}.{claims}.{base64.urlsafe_b64encode(mac).decode().rstrip('=')}"
    without_end = jwt.encode({"role": "admin"}, SECRET, "HS256")
    for wrong in (
        unsigned,
        f"{header}.{claims}.{signature}",
        confused,
        without_end,
        token("another secret that is long enough to sign with", "HS256", role="admin"),
        token(SECRET, "HS384", role="admin"),
        token(SECRET, "HS256", {"kid": "r"}, role="admin"),
        token(SECRET, "HS256", exp=time.time() - 60),
        token(SECRET, "HS256", nbf=time.time() + 60),
        "a.b.c",
        "",
        "a" * 10_000,
    ):
        with pytest.raises(InvalidToken):
            tokens(jwks).identify(wrong)


def test_a_token_is_for_its_audience_and_of_its_issuer(jwks: Path) -> None:
    strict = tokens(jwks, jwt_audience="penstock", jwt_issuer="us")
    assert strict.identify(token(SECRET, "HS256", aud=["penstock", "x"], iss="us", role="read")).roles
    wrongs: list[dict[str, Any]] = [
        {"aud": "x", "iss": "us"},
        {"aud": "penstock", "iss": "them"},
        {"iss": "us"},
        {"aud": "penstock"},
    ]
    for wrong in wrongs:
        with pytest.raises(InvalidToken):
            strict.identify(token(SECRET, "HS256", **wrong))


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ("[]", "is no JWKS"),
        ("{", "is no JWKS"),
        ('{"keys": []}', "holds no key"),
        ('{"keys": [{"kty": "EC"}]}', "HS256 .oct., RS256"),
        ('{"keys": [{"kty": "RSA"}]}', "cannot be read"),
        (json.dumps({"keys": [secret_jwk("short")]}), "too short"),
        (json.dumps({"keys": [secret_jwk(SECRET, alg="none")]}), "HS256 .oct., RS256"),
        (json.dumps({"keys": [jwk(jwt.algorithms.OKPAlgorithm, ED25519)]}), "private"),
    ],
)
def test_a_file_of_keys_that_cannot_be_right(tmp_path: Path, keys: str, said: str) -> None:
    (tmp_path / "jwks.json").write_text(keys)
    with pytest.raises(ConfigurationError, match=said):
        tokens(tmp_path / "jwks.json")


def test_a_token_opens_what_its_roles_say(guarded: Guarded) -> None:
    assert guarded.get("/v1/queues", **bearer(token(SECRET, "HS256", role="read-only"))).status_code == 200
    assert guarded.get("/v1/queues", **bearer(token(SECRET, "HS256"))).status_code == 403
    write = httpx.put(f"{guarded.running.url}/v1/queues/t", headers=bearer(token(SECRET, "HS256", role="read-only")))
    assert write.status_code == 403


@pytest.mark.parametrize("role", [Role.PRODUCE, Role.CONSUME])
def test_who_pushes_or_pops_may_make_a_queue_on_the_plane_but_not_change_one(guarded: Guarded, role: Role) -> None:
    queue = f"made-by-{role.value}"
    key, admin = guarded.key(role, queues=("made-*",)), guarded.key(Role.ADMIN)

    def configure(key: str, **told: Any) -> int:
        url = f"{guarded.running.url}/api/v1/configure"
        return httpx.post(url, json={"queue": queue, **told}, headers=bearer(key), timeout=30).status_code

    as_told = {"leaseTime": 60, "retryLimit": 3}
    assert configure(key, options=as_told) == 200
    # As a client does whenever it starts.
    assert configure(key, options=as_told) == 200
    assert configure(key) == 200
    for change in (
        {"options": {"leaseTime": 61}},
        {"options": {"retentionEnabled": True, "retentionSeconds": 1}},
        {"options": as_told, "namespace": "elsewhere"},
        {"options": as_told, "task": "other"},
        {"options": {"priority": 5}},
        {"mode": "replace"},
    ):
        assert configure(key, **change) == 403, change
    assert configure(admin, options={"leaseTime": 61}) == 200
    assert configure(key, options=as_told) == 403
    assert configure(key, options={"leaseTime": 61}) == 200


@pytest.mark.parametrize(
    ("pattern", "name", "reaches"),
    [
        ("*", "any\nthing", True),
        ("", "", True),
        ("a", "a", True),
        ("a", "ab", False),
        ("a*", "ab", True),
        ("*a", "ba", True),
        ("*a", "ab", False),
        ("a*b*c", "axxbyyc", True),
        ("a*b*c", "axxbyy", False),
        ("a*bc*c", "abcbcc", True),
        ("*ab", "aab", True),
        ("*a*a", "aa", True),
        ("*a*a", "a", False),
        ("a?c", "abc", True),
        ("a?c", "ac", False),
        ("**a**", "xax", True),
        ("[a-z]", "b", False),
        ("a.c", "abc", False),
        ("*?", "", False),
        ("?*?", "ab", True),
    ],
)
def test_patterns_of_queues(pattern: str, name: str, reaches: bool) -> None:
    assert Identity("k", frozenset({Role.READ}), (pattern, "~")).reaches(name) is reaches


def test_a_name_that_almost_fits_a_pattern_many_times_over_is_refused_at_once() -> None:
    """Left to backtrack, this would take longer than anybody lives."""
    assert not Identity("k", frozenset({Role.READ}), ("*a" * 90 + "*b",)).reaches("a" * 200)
