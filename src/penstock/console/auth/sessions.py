"""Signed cookies of the users who signed in.

The cookie of an API key names the key and the end of the session. It contains neither the key nor its hash. It is bound
to the secret of the key, so its sessions end when the key is revoked, expires or is rotated. The cookie of a bearer
token contains the identity that the token stated, and its session ends with the token.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass

import msgspec

from penstock.server.auth.identity import Identity
from penstock.server.auth.key_format import PlaintextKey

COOKIE = "penstock_session"
SESSION_SECONDS = 12 * 3600


@dataclass(frozen=True, slots=True)
class SignInSession:
    """The content of a cookie."""

    #: Empty if the user signed in with a token.
    key_id: str
    #: Seconds since the epoch.
    expires_at: int
    #: Identifies the session among those of the same key.
    nonce: str
    #: HMAC of the key's hash with the console's secret; empty if the user signed in with a token.
    key_signature: str
    #: The identity that a token stated.
    identity: Identity | None = None


class SessionCookies:
    """Creates, parses and revokes cookies. ``secret`` signs them."""

    def __init__(self, secret: str, clock: Callable[[], float] = time.time) -> None:
        self._secret = secret.encode()
        self._clock = clock
        #: Sessions that ended by sign-out: nonce -> time of expiry.
        self._ended: dict[str, int] = {}

    def create(self, key: PlaintextKey) -> str:
        """Return the cookie of a new session for a key."""
        return self._create(key.id, int(self._clock()) + SESSION_SECONDS, self._sign(key.hash))

    def create_for_token(self, identity: Identity, expires_at: float) -> str:
        """Return the cookie of a new session for the identity of a verified token, which expires at this time."""
        encoded = base64.urlsafe_b64encode(msgspec.json.encode(identity)).decode()
        return self._create("", int(min(expires_at, self._clock() + SESSION_SECONDS)), encoded)

    def parse(self, cookie: str) -> SignInSession | None:
        """Return the session of a cookie, or None if the signature is wrong or the session is over."""
        text, _, signature = cookie.rpartition(".")
        parts = text.split(".")
        if len(parts) != 4 or not hmac.compare_digest(self._sign(text.encode()).encode(), signature.encode()):
            return None
        key_id, expires_at, nonce, content = parts
        if key_id:
            session = SignInSession(key_id, int(expires_at), nonce, key_signature=content)
        else:
            identity = msgspec.json.decode(base64.urlsafe_b64decode(content), type=Identity)
            session = SignInSession("", int(expires_at), nonce, "", identity)
        return None if self.is_over(session) else session

    def is_over(self, session: SignInSession) -> bool:
        """Return whether the session has expired or was ended by sign-out."""
        return session.expires_at <= self._clock() or session.nonce in self._ended

    def matches_key(self, session: SignInSession, hashes: tuple[bytes, ...]) -> bool:
        """Return whether the session was created with one of these hashes of the key's secret."""
        # A list, not a generator: all hashes are compared, so the time does not depend on which one matches.
        return any([hmac.compare_digest(self._sign(key_hash), session.key_signature) for key_hash in hashes])

    def end(self, session: SignInSession) -> None:
        """End a session for all copies of its cookie."""
        now = self._clock()
        self._ended = {nonce: expires_at for nonce, expires_at in self._ended.items() if expires_at > now}
        self._ended[session.nonce] = session.expires_at

    def _create(self, key_id: str, expires_at: int, content: str) -> str:
        text = ".".join((key_id, str(expires_at), secrets.token_hex(8), content))
        return f"{text}.{self._sign(text.encode())}"

    def _sign(self, data: bytes) -> str:
        return hmac.new(self._secret, data, hashlib.sha256).hexdigest()
