"""Bearer tokens (JWT), verified with keys from files.

The key determines the algorithm, never the token: an RSA key verifies RS256 only, so nobody can use its public half as
an HMAC secret.
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
from penstock.server.auth.identity import ALL_QUEUES, TOKEN, Identity, Role
from penstock.server.settings import ServerSettings

_LEEWAY_SECONDS = 10
#: How long a verified token is cached, and how often the key files are checked for changes.
_CACHE_SECONDS = 30.0
_RELOAD_SECONDS = 5.0
_MAX_CACHED = 5_000
_MAX_TOKEN_LENGTH = 8 << 10
_MAX_SUBJECT_LENGTH = 200
_MAX_PATTERNS = 100
_MIN_SECRET_BYTES = 32
_MIN_RSA_BITS = 2048

#: Role claims: our own names, and those of other servers of Queen's protocol.
ROLES: dict[str, frozenset[Role]] = {
    **{role.value: frozenset({role}) for role in Role},
    "read-write": frozenset({Role.PRODUCE, Role.CONSUME, Role.READ}),
    "read-only": frozenset({Role.READ}),
    "write-only": frozenset({Role.PRODUCE}),
}


class InvalidCredential(Exception):
    """A credential was refused. The message gives the reason and contains no part of the credential."""


class VerifyingKey(NamedTuple):
    id: str | None
    algorithm: str
    key: Any


class TokenVerifier:
    def __init__(self, settings: ServerSettings) -> None:
        self._settings = settings
        self._keys = _load_keys(settings)
        self._file_versions = _file_versions(settings)
        self._checked_at = time.monotonic()
        self._verified: OrderedDict[bytes, tuple[float, Identity]] = OrderedDict()

    @property
    def has_keys(self) -> bool:
        """Whether a key is configured with which a token can be signed."""
        return bool(self._keys)

    def verify(self, token: str) -> Identity:
        """Return the identity that a token states, or raise InvalidCredential."""
        self._reload_keys()
        if len(token) > _MAX_TOKEN_LENGTH:
            raise InvalidCredential("the token is too long")
        digest = hashlib.sha256(token.encode()).digest()
        expires, identity = self._verified.get(digest, (0.0, None))
        if identity is not None and time.time() < expires:
            return identity
        claims = self._decode(token)
        identity = _to_identity(claims)
        self._verified[digest] = (min(float(claims["exp"]), time.time() + _CACHE_SECONDS), identity)
        if len(self._verified) > _MAX_CACHED:
            self._verified.popitem(last=False)
        return identity

    def _decode(self, token: str) -> Mapping[str, Any]:
        try:
            header = jwt.get_unverified_header(token)
        except (jwt.PyJWTError, ValueError):
            raise InvalidCredential("the credential is neither a key nor a token") from None
        failure = "the token is not signed with a known key"
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
                failure = "the token is expired"
            except jwt.ImmatureSignatureError:
                failure = "the token is not valid yet"
            except jwt.InvalidAudienceError:
                failure = "the token is for another audience"
            except jwt.InvalidIssuerError:
                failure = "the token is from another issuer"
            except jwt.MissingRequiredClaimError as error:
                failure = f"the token has no claim {error.claim}"
            except (jwt.PyJWTError, ValueError):
                failure = "the token is malformed"
        raise InvalidCredential(failure)

    def _reload_keys(self) -> None:
        """Load key files that changed. A file that cannot be read changes nothing."""
        now = time.monotonic()
        if now - self._checked_at < _RELOAD_SECONDS:
            return
        self._checked_at = now
        versions = _file_versions(self._settings)
        if versions != self._file_versions:
            try:
                self._keys, self._file_versions = _load_keys(self._settings), versions
            except ConfigurationError:
                return
            self._verified.clear()


def _to_identity(claims: Mapping[str, Any]) -> Identity:
    claimed = claims.get("roles", claims.get("role", ()))
    names = [claimed] if isinstance(claimed, str) else claimed if isinstance(claimed, list) else []
    roles = frozenset(role for name in names if isinstance(name, str) for role in ROLES.get(name, ()))
    queues = claims.get("queues", list(ALL_QUEUES))
    if isinstance(queues, str):
        queues = [queues]
    if not (isinstance(queues, list) and len(queues) <= _MAX_PATTERNS and all(isinstance(q, str) for q in queues)):
        raise InvalidCredential(f"the token's claim queues must be a list of at most {_MAX_PATTERNS} patterns")
    subject = claims.get("sub")
    is_usable = isinstance(subject, str) and subject.isprintable() and 0 < len(subject) <= _MAX_SUBJECT_LENGTH
    return Identity(f"{TOKEN}:{subject}" if is_usable else TOKEN, roles, tuple(queues))


def _file_versions(settings: ServerSettings) -> tuple[object, ...]:
    versions: list[object] = []
    for path in (settings.jwt_jwks, settings.jwt_secret_file):
        try:
            versions.append(None if path is None else (path.stat().st_mtime_ns, path.stat().st_size))
        except OSError:
            versions.append("missing")
    return tuple(versions)


def _load_keys(settings: ServerSettings) -> tuple[VerifyingKey, ...]:
    keys: list[VerifyingKey] = []
    if settings.jwt_secret_file is not None:
        secret = _read_file(settings.jwt_secret_file).strip()
        if len(secret) < _MIN_SECRET_BYTES:
            raise ConfigurationError(
                f"the secret in {settings.jwt_secret_file} is too short: it needs at least {_MIN_SECRET_BYTES} bytes; "
                "generate one with `openssl rand -hex 32`"
            )
        keys.append(VerifyingKey(None, "HS256", secret))
    if settings.jwt_jwks is not None:
        keys += _read_jwks(settings.jwt_jwks)
    return tuple(keys)


def _read_file(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise ConfigurationError(f"cannot read {path}: {error.strerror}") from error


def _read_jwks(path: Path) -> list[VerifyingKey]:
    try:
        entries = msgspec.json.decode(_read_file(path))["keys"]
        keys = [_to_verifying_key(path, entry) for entry in entries if entry.get("use", "sig") == "sig"]
    except (msgspec.DecodeError, UnicodeDecodeError, KeyError, TypeError, AttributeError):
        raise ConfigurationError(
            f'{path} is not a JWKS document: expected {{"keys": [{{"kty": ..., ...}}, ...]}}'
        ) from None
    if not keys:
        raise ConfigurationError(f"{path} contains no signing key")
    return keys


def _to_verifying_key(path: Path, entry: Mapping[str, Any]) -> VerifyingKey:
    algorithm = {"oct": "HS256", "RSA": "RS256", "OKP": "EdDSA"}.get(entry["kty"])
    name = entry.get("kid") or entry["kty"]
    if algorithm is None or entry.get("alg", algorithm) not in (algorithm, "Ed25519"):
        raise ConfigurationError(
            f"the key {name!r} in {path} is for {entry.get('alg') or entry['kty']}: "
            "use HS256 (oct), RS256 (RSA) or EdDSA (OKP, Ed25519)"
        )
    try:
        key = jwt.PyJWK(dict(entry), algorithm).key
    except (jwt.PyJWTError, ValueError, KeyError):
        raise ConfigurationError(f"the key {name!r} in {path} is malformed") from None
    if algorithm != "HS256" and hasattr(key, "public_key"):
        raise ConfigurationError(f"the key {name!r} in {path} is a private key: give the server the public key only")
    if isinstance(key, RSAPublicKey) and key.key_size < _MIN_RSA_BITS:
        raise ConfigurationError(
            f"the key {name!r} in {path} has {key.key_size} bits: RSA needs at least {_MIN_RSA_BITS}"
        )
    if algorithm == "EdDSA" and not isinstance(key, Ed25519PublicKey):
        raise ConfigurationError(f"the key {name!r} in {path} is not on the curve Ed25519")
    if algorithm == "HS256" and len(key) < _MIN_SECRET_BYTES:
        raise ConfigurationError(
            f"the key {name!r} in {path} is too short: HS256 needs at least {_MIN_SECRET_BYTES} bytes"
        )
    return VerifyingKey(entry.get("kid"), algorithm, key)
