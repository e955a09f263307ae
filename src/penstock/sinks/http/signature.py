"""Signed requests, as the Standard Webhooks specification has them, for which there are libraries in many languages."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import time
from collections.abc import Mapping

from penstock.core.errors import InvalidRequest

_PREFIX = "whsec_"


def read_secret(secret: str) -> bytes:
    """The bytes of a secret: base64 after ``whsec_``, or else the text itself."""
    given: object = secret
    if not isinstance(given, str) or not given.isascii():
        raise InvalidRequest("the secret is no ASCII text: make one with `openssl rand -base64 32`")
    if secret.startswith(_PREFIX):
        try:
            key = base64.b64decode(secret.removeprefix(_PREFIX), validate=True)
        except binascii.Error:
            raise InvalidRequest(
                "the secret is not base64 after whsec_: make one with `openssl rand -base64 32`"
            ) from None
    else:
        key = secret.encode()
    if len(key) < 16:
        raise InvalidRequest("the secret is shorter than 16 bytes: make one with `openssl rand -base64 32`")
    return key


def sign(key: bytes, id: str, timestamp: int, body: bytes) -> str:
    """The signature of a request."""
    digest = hmac.digest(key, f"{id}.{timestamp}.".encode() + body, hashlib.sha256)
    return "v1," + base64.b64encode(digest).decode()


def verify(
    secret: str, headers: Mapping[str, str], body: bytes, *, tolerance_seconds: float = 300.0, now: float | None = None
) -> bool:
    """Whether a request was signed with the secret, not long ago: for receivers, and for tests of them.

    ``headers`` has its names in lower case, as most frameworks give them.
    """
    try:
        id, sent, given = headers["webhook-id"], int(headers["webhook-timestamp"]), headers["webhook-signature"]
    except (KeyError, ValueError):
        return False
    if abs((time.time() if now is None else now) - sent) > tolerance_seconds:
        return False
    expected = sign(read_secret(secret), id, sent, body).encode()
    # A sender who changes its secret signs with both for a while.
    return any(hmac.compare_digest(expected, each.encode()) for each in given.split())
