"""The text form of an API key: ``penstock_<id>_<secret>``.

The secret has 256 random bits, and the database stores its SHA-256. A slow password hash would add nothing: it
protects secrets that can be guessed, and 256 random bits cannot.
"""

from __future__ import annotations

import hashlib
import secrets
from typing import NamedTuple

PREFIX = "penstock_"
_ALPHABET = "abcdefghjkmnpqrstuvwxyz23456789"
_ID_LENGTH = 12
_MAX_LENGTH = 200


class PlaintextKey(NamedTuple):
    """An API key with its secret."""

    id: str
    secret: str

    def __str__(self) -> str:
        return f"{PREFIX}{self.id}_{self.secret}"

    def __repr__(self) -> str:
        return f"PlaintextKey({self.id!r})"

    @property
    def hash(self) -> bytes:
        """The hash that the database stores."""
        return hashlib.sha256(self.secret.encode()).digest()


def generate_key(key_id: str | None = None) -> PlaintextKey:
    """Generate a key, or a new secret for an existing key id."""
    if key_id is None:
        key_id = "".join(secrets.choice(_ALPHABET) for _ in range(_ID_LENGTH))
    return PlaintextKey(key_id, secrets.token_urlsafe(32))


def parse_key(text: str) -> PlaintextKey | None:
    """Split a credential into id and secret; None if it does not have the form of a key."""
    if not text.startswith(PREFIX) or len(text) > _MAX_LENGTH or not text.isascii():
        return None
    key_id, separator, secret = text[len(PREFIX) :].partition("_")
    return PlaintextKey(key_id, secret) if separator and key_id and secret else None
