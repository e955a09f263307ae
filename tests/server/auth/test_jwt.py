"""Bearer tokens."""

from __future__ import annotations

import base64
import json
import time
from pathlib import Path
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey, generate_private_key

from penstock.core.errors import ConfigurationError
from penstock.core.settings import Settings
from penstock.server.auth.identity import Identity, Role
from penstock.server.auth.jwt import InvalidCredential, TokenVerifier
from penstock.server.settings import ServerSettings
from tests.server.access_server import JWT_SECRET
from tests.server.keys import sign_token


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
        secret_jwk(JWT_SECRET, kid="s"),
    ]
    path.write_text(json.dumps({"keys": keys}))
    return path


def tokens(jwks: Path, **more: str) -> TokenVerifier:
    return TokenVerifier(ServerSettings(Settings(), jwt_jwks=jwks, **more))  # type: ignore[arg-type]  # all are texts


def test_tokens_of_all_algorithms_are_verified(jwks: Path, rsa: RSAPrivateKey) -> None:
    for key, algorithm, kid in ((rsa, "RS256", "r"), (ED25519, "EdDSA", "e"), (JWT_SECRET, "HS256", "s")):
        for headers in ({"kid": kid}, None):
            found = tokens(jwks).verify(sign_token(key, algorithm, headers, role="admin"))
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
def test_token_roles(jwks: Path, claims: dict[str, Any], roles: set[Role]) -> None:
    assert tokens(jwks).verify(sign_token(JWT_SECRET, "HS256", **claims)).roles == roles


def test_token_queues(jwks: Path) -> None:
    read = tokens(jwks).verify
    assert read(sign_token(JWT_SECRET, "HS256", queues=["a.*", "b"])).queues == ("a.*", "b")
    assert read(sign_token(JWT_SECRET, "HS256", queues="a")).queues == ("a",)
    assert read(sign_token(JWT_SECRET, "HS256", queues=[])).queues == ()
    for wrong in (1, [1], {"a": 1}, ["a"] * 101):
        with pytest.raises(InvalidCredential, match="claim queues"):
            read(sign_token(JWT_SECRET, "HS256", queues=wrong))


def test_forged_or_invalid_tokens_are_refused(jwks: Path, rsa: RSAPrivateKey) -> None:
    public = rsa.public_key().public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    unsigned = jwt.encode({"exp": time.time() + 60, "role": "admin"}, None, "none")  # type: ignore[arg-type]  # no key
    header, _, signature = sign_token(JWT_SECRET, "HS256", role="read").split(".")
    claims = (
        base64.urlsafe_b64encode(json.dumps({"exp": time.time() + 60, "role": "admin"}).encode()).decode().rstrip("=")
    )
    # The public key as a secret, which the library would not sign with: by hand.
    confused_head = base64.urlsafe_b64encode(b'{"alg":"HS256","kid":"r","typ":"JWT"}').decode().rstrip("=")
    mac = jwt.algorithms.HMACAlgorithm(jwt.algorithms.HMACAlgorithm.SHA256).sign(
        f"{confused_head}.{claims}".encode(), public
    )
    confused = f"{confused_head}.{claims}.{base64.urlsafe_b64encode(mac).decode().rstrip('=')}"
    without_end = jwt.encode({"role": "admin"}, JWT_SECRET, "HS256")
    for wrong in (
        unsigned,
        f"{header}.{claims}.{signature}",
        confused,
        without_end,
        sign_token("another secret that is long enough to sign with", "HS256", role="admin"),
        sign_token(JWT_SECRET, "HS384", role="admin"),
        sign_token(JWT_SECRET, "HS256", {"kid": "r"}, role="admin"),
        sign_token(JWT_SECRET, "HS256", exp=time.time() - 60),
        sign_token(JWT_SECRET, "HS256", nbf=time.time() + 60),
        "a.b.c",
        "",
        "a" * 10_000,
    ):
        with pytest.raises(InvalidCredential):
            tokens(jwks).verify(wrong)


def test_token_audience_and_issuer_are_checked(jwks: Path) -> None:
    strict = tokens(jwks, jwt_audience="penstock", jwt_issuer="us")
    assert strict.verify(sign_token(JWT_SECRET, "HS256", aud=["penstock", "x"], iss="us", role="read")).roles
    wrongs: list[dict[str, Any]] = [
        {"aud": "x", "iss": "us"},
        {"aud": "penstock", "iss": "them"},
        {"iss": "us"},
        {"aud": "penstock"},
    ]
    for wrong in wrongs:
        with pytest.raises(InvalidCredential):
            strict.verify(sign_token(JWT_SECRET, "HS256", **wrong))


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ("[]", "is not a JWKS document"),
        ("{", "is not a JWKS document"),
        ('{"keys": []}', "contains no signing key"),
        ('{"keys": [{"kty": "EC"}]}', "HS256 .oct., RS256"),
        ('{"keys": [{"kty": "RSA"}]}', "is malformed"),
        (json.dumps({"keys": [secret_jwk("short")]}), "too short"),
        (json.dumps({"keys": [secret_jwk(JWT_SECRET, alg="none")]}), "HS256 .oct., RS256"),
        (json.dumps({"keys": [jwk(jwt.algorithms.OKPAlgorithm, ED25519)]}), "private"),
    ],
)
def test_invalid_jwks_files_are_refused(tmp_path: Path, keys: str, message: str) -> None:
    (tmp_path / "jwks.json").write_text(keys)
    with pytest.raises(ConfigurationError, match=message):
        tokens(tmp_path / "jwks.json")
