"""Bearer tokens (JWT) that somebody else has signed, with keys that the server was given in files.

The algorithm is that of the key, never that of the token: a key of RSA verifies RS256 and nothing else, so nobody can
pass its public half off as a secret.
"""

from __future__ import annotations

import hashlib
import time
from collections import OrderedDict
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import jwt
import msgspec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey

from penstock.core.errors import ConfigurationError
from penstock.server.auth.identity import EVERY_QUEUE, Identity
from penstock.server.http.endpoint import Role
from penstock.server.settings import ServerSettings

_LEEWAY_SECONDS = 10
#: How long a token that was verified need not be again, and how often the file of keys is looked at.
_TRUSTED_SECONDS = 30.0
_LOOK_SECONDS = 5.0
_MOST_REMEMBERED = 5_000
_LONGEST_TOKEN = 8 << 10
_LONGEST_SUBJECT = 200
_MOST_PATTERNS = 100
_SHORTEST_SECRET = 32
_SHORTEST_RSA = 2048

#: What a role of a token means here: our own names, and those of the message plane's other servers.
ROLES: dict[str, frozenset[Role]] = {
    **{role.value: frozenset({role}) for role in Role},
    "read-write": frozenset({Role.PRODUCE, Role.CONSUME, Role.READ}),
    "read-only": frozenset({Role.READ}),
    "write-only": frozenset({Role.PRODUCE}),
}


class InvalidToken(Exception):
    """A token that is not to be believed; the message says why and holds nothing of it."""


class VerifyingKey(NamedTuple):
    """A key, and the one algorithm that it is for."""

    id: str | None
    algorithm: str
    key: Any


class Tokens:
    """Reads bearer tokens."""

    def __init__(self, settings: ServerSettings) -> None:
        self._settings = settings
        self._keys = _load(settings)
        self._stamp = _stamp(settings)
        self._looked = time.monotonic()
        self._verified: OrderedDict[bytes, tuple[float, Identity]] = OrderedDict()

    @property
    def is_on(self) -> bool:
        """Whether there is a key that a token could be signed with."""
        return bool(self._keys)

    def identify(self, token: str) -> Identity:
        """Who a token says its bearer is, or InvalidToken."""
        self._look_again()
        if len(token) > _LONGEST_TOKEN:
            raise InvalidToken("the token is too long")
        digest = hashlib.sha256(token.encode()).digest()
        until, identity = self._verified.get(digest, (0.0, None))
        if identity is not None and time.time() < until:
            return identity
        claims = self._claims(token)
        identity = _identity(claims)
        self._verified[digest] = (min(float(claims["exp"]), time.time() + _TRUSTED_SECONDS), identity)
        if len(self._verified) > _MOST_REMEMBERED:
            self._verified.popitem(last=False)
        return identity

    def _claims(self, token: str) -> Mapping[str, Any]:
        try:
            header = jwt.get_unverified_header(token)
        except (jwt.PyJWTError, ValueError):
            raise InvalidToken("this is no token") from None
        failure = "no key that is known here has signed the token"
        for key in self._keys:
            if key.algorithm != header.get("alg") or (key.id and header.get("kid") not in (None, key.id)):
                continue
            try:
                return jwt.decode(
                    token,
                    key.key,
                    algorithms=[key.algorithm],
                    audience=self._settings.jwt_audience,
                    issuer=self._settings.jwt_issuer,
                    leeway=_LEEWAY_SECONDS,
                    options={"require": ["exp"], "verify_aud": self._settings.jwt_audience is not None},
                )
            except jwt.InvalidSignatureError:
                continue
            except jwt.ExpiredSignatureError:
                failure = "the token is over"
            except jwt.ImmatureSignatureError:
                failure = "the token does not hold yet"
            except jwt.InvalidAudienceError:
                failure = "the token is for another audience"
            except jwt.InvalidIssuerError:
                failure = "the token is of another issuer"
            except jwt.MissingRequiredClaimError as error:
                failure = f"the token has no claim {error.claim}"
            except (jwt.PyJWTError, ValueError):
                failure = "the token cannot be read"
        raise InvalidToken(failure)

    def _look_again(self) -> None:
        """Take over a file of keys that has changed; one that cannot be read changes nothing."""
        now = time.monotonic()
        if now - self._looked < _LOOK_SECONDS:
            return
        self._looked = now
        stamp = _stamp(self._settings)
        if stamp != self._stamp:
            try:
                self._keys, self._stamp = _load(self._settings), stamp
            except ConfigurationError:
                return
            self._verified.clear()


def _identity(claims: Mapping[str, Any]) -> Identity:
    said = claims.get("roles", claims.get("role", ()))
    names = [said] if isinstance(said, str) else said if isinstance(said, list) else []
    roles = frozenset(role for name in names if isinstance(name, str) for role in ROLES.get(name, ()))
    queues = claims.get("queues", list(EVERY_QUEUE))
    if isinstance(queues, str):
        queues = [queues]
    if not (isinstance(queues, list) and len(queues) <= _MOST_PATTERNS and all(isinstance(q, str) for q in queues)):
        raise InvalidToken(f"the token's claim queues must be a list of at most {_MOST_PATTERNS} patterns")
    subject = claims.get("sub")
    named = isinstance(subject, str) and subject.isprintable() and 0 < len(subject) <= _LONGEST_SUBJECT
    return Identity(f"token:{subject}" if named else "token", roles, tuple(queues))


def _stamp(settings: ServerSettings) -> tuple[object, ...]:
    """What changes when one of the files does."""
    stamps: list[object] = []
    for path in (settings.jwt_jwks, settings.jwt_secret_file):
        try:
            stamps.append(None if path is None else (path.stat().st_mtime_ns, path.stat().st_size))
        except OSError:
            stamps.append("gone")
    return tuple(stamps)


def _load(settings: ServerSettings) -> tuple[VerifyingKey, ...]:
    keys: list[VerifyingKey] = []
    if settings.jwt_secret_file is not None:
        secret = _read(settings.jwt_secret_file).strip()
        if len(secret) < _SHORTEST_SECRET:
            raise ConfigurationError(
                f"the secret in {settings.jwt_secret_file} is too short to sign with: "
                f"it needs {_SHORTEST_SECRET} bytes, say from `openssl rand -hex 32`"
            )
        keys.append(VerifyingKey(None, "HS256", secret))
    if settings.jwt_jwks is not None:
        keys += _read_jwks(settings.jwt_jwks)
    return tuple(keys)


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise ConfigurationError(f"{path} cannot be read: {error.strerror}") from error


def _read_jwks(path: Path) -> list[VerifyingKey]:
    try:
        entries = msgspec.json.decode(_read(path))["keys"]
        keys = [_verifying_key(path, entry) for entry in entries if entry.get("use", "sig") == "sig"]
    except (msgspec.DecodeError, UnicodeDecodeError, KeyError, TypeError, AttributeError):
        raise ConfigurationError(f'{path} is no JWKS: it should be {{"keys": [{{"kty": ..., ...}}, ...]}}') from None
    if not keys:
        raise ConfigurationError(f"{path} holds no key that signs")
    return keys


def _verifying_key(path: Path, entry: Mapping[str, Any]) -> VerifyingKey:
    algorithm = {"oct": "HS256", "RSA": "RS256", "OKP": "EdDSA"}.get(entry["kty"])
    name = entry.get("kid") or entry["kty"]
    if algorithm is None or entry.get("alg", algorithm) not in (algorithm, "Ed25519"):
        raise ConfigurationError(
            f"the key {name!r} in {path} is for {entry.get('alg') or entry['kty']}: "
            "HS256 (oct), RS256 (RSA) and EdDSA (OKP, Ed25519) are taken"
        )
    try:
        key = jwt.PyJWK(dict(entry), algorithm).key
    except (jwt.PyJWTError, ValueError, KeyError):
        raise ConfigurationError(f"the key {name!r} in {path} cannot be read") from None
    if algorithm != "HS256" and hasattr(key, "public_key"):
        raise ConfigurationError(f"the key {name!r} in {path} is a private one: give the server the public half only")
    if isinstance(key, RSAPublicKey) and key.key_size < _SHORTEST_RSA:
        raise ConfigurationError(f"the key {name!r} in {path} has {key.key_size} bits: RSA needs {_SHORTEST_RSA}")
    if algorithm == "EdDSA" and not isinstance(key, Ed25519PublicKey):
        raise ConfigurationError(f"the key {name!r} in {path} is on another curve than Ed25519")
    if algorithm == "HS256" and len(key) < _SHORTEST_SECRET:
        raise ConfigurationError(f"the key {name!r} in {path} is too short: HS256 needs {_SHORTEST_SECRET} bytes")
    return VerifyingKey(entry.get("kid"), algorithm, key)
