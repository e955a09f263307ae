"""An API key as its owner sees it: ``penstock_<id>_<secret>``.

The secret is 256 random bits. What is stored is its SHA-256: nobody can guess his way back from a hash to so many
random bits, so a slow hash, which is for what people can remember, would add nothing but the time it takes.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from typing import NamedTuple

PREFIX = "penstock_"
_ALPHABET = "abcdefghjkmnpqrstuvwxyz23456789"
_ID_LENGTH = 12
_LONGEST = 200


class KeyText(NamedTuple):
    """A key in its parts."""

    id: str
    secret: str

    def __str__(self) -> str:
        return f"{PREFIX}{self.id}_{self.secret}"

    def __repr__(self) -> str:
        return f"KeyText({self.id!r})"

    @property
    def hash(self) -> bytes:
        """What is stored of the secret."""
        return hashlib.sha256(self.secret.encode()).digest()


def new_key(key_id: str | None = None) -> KeyText:
    """A new key, or a new secret for the key of this id."""
    if key_id is None:
        key_id = "".join(secrets.choice(_ALPHABET) for _ in range(_ID_LENGTH))
    return KeyText(key_id, secrets.token_urlsafe(32))


def parse_key(text: str) -> KeyText | None:
    """The parts of what somebody sent, if it looks like a key."""
    if not text.startswith(PREFIX) or len(text) > _LONGEST or not text.isascii():
        return None
    key_id, separator, secret = text[len(PREFIX) :].partition("_")
    return KeyText(key_id, secret) if separator and key_id and secret else None


def same(one: bytes, other: bytes) -> bool:
    """Whether two hashes are equal, in a time that does not say how much of them is."""
    return hmac.compare_digest(one, other)
