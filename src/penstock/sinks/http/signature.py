"""Signatures of webhook requests, as in the Standard Webhooks specification."""

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
    """Return the key of a secret: the base64 text after ``whsec_``, or the text itself."""
    given: object = secret
    if not isinstance(given, str) or not given.isascii():
        raise InvalidRequest("the secret must be ASCII text: create one with `openssl rand -base64 32`")
    if secret.startswith(_PREFIX):
        try:
            key = base64.b64decode(secret.removeprefix(_PREFIX), validate=True)
        except binascii.Error:
            raise InvalidRequest(
                "the secret is not base64 after whsec_: create one with `openssl rand -base64 32`"
            ) from None
    else:
        key = secret.encode()
    if len(key) < 16:
        raise InvalidRequest("the secret is shorter than 16 bytes: create one with `openssl rand -base64 32`")
    return key


def sign(key: bytes, id: str, timestamp: int, body: bytes) -> str:
    """Return the signature of a request."""
    digest = hmac.digest(key, f"{id}.{timestamp}.".encode() + body, hashlib.sha256)
    return "v1," + base64.b64encode(digest).decode()


def verify(
    secret: str, headers: Mapping[str, str], body: bytes, *, tolerance_seconds: float = 300.0, now: float | None = None
) -> bool:
    """Return whether a request was signed with the secret. Receivers call this.

    Args:
        secret: The secret of the webhook.
        headers: The headers of the request, with names in lower case.
        body: The body of the request.
        tolerance_seconds: How old the signature may be.
        now: The current Unix time, for tests.
    """
    try:
        id, sent, given = headers["webhook-id"], int(headers["webhook-timestamp"]), headers["webhook-signature"]
    except (KeyError, ValueError):
        return False
    if abs((time.time() if now is None else now) - sent) > tolerance_seconds:
        return False
    expected = sign(read_secret(secret), id, sent, body).encode()
    # A sender that rotates its secret sends a signature of each.
    return any(hmac.compare_digest(expected, signature.encode()) for signature in given.split())
