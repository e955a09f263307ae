"""Who is signed in: a cookie that says which key was shown, and until when that counts.

The cookie holds no key and nothing that a key could be made from. It is bound to the secret that the key had, so a key
that is revoked, over or rotated takes its sessions with it.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass

from penstock.server.auth.key_format import PlaintextKey

COOKIE = "penstock_session"
LASTS_SECONDS = 12 * 3600


@dataclass(frozen=True, slots=True)
class Session:
    """What a cookie says."""

    key_id: str
    until: int
    #: So that two sessions of one key differ, and one of them can be ended.
    nonce: str
    #: What the stored hash of the key's secret becomes under the console's own.
    bond: str


class Sessions:
    """Makes and reads cookies."""

    def __init__(self, secret: str, clock: Callable[[], float] = time.time) -> None:
        self._secret = secret.encode()
        self._clock = clock
        self._ended: dict[str, int] = {}

    def begin(self, key: PlaintextKey) -> str:
        """The cookie of somebody who has shown this key."""
        until = int(self._clock()) + LASTS_SECONDS
        text = ".".join((key.id, str(until), secrets.token_hex(8), self._sign(key.hash)))
        return f"{text}.{self._sign(text.encode())}"

    def read(self, cookie: str) -> Session | None:
        """What a cookie says, if it is one of ours and still counts."""
        text, _, signature = cookie.rpartition(".")
        parts = text.split(".")
        if len(parts) != 4 or not hmac.compare_digest(self._sign(text.encode()).encode(), signature.encode()):
            return None
        session = Session(parts[0], int(parts[1]), parts[2], parts[3])
        return None if self.is_over(session) else session

    def is_over(self, session: Session) -> bool:
        """Whether its time has passed, or its owner has signed out."""
        return session.until <= self._clock() or session.nonce in self._ended

    def holds(self, session: Session, hashes: tuple[bytes, ...]) -> bool:
        """Whether the key still has the secret that it had."""
        return any([hmac.compare_digest(self._sign(each), session.bond) for each in hashes])

    def end(self, session: Session) -> None:
        """Let a session count no more, whoever has a copy of its cookie."""
        now = self._clock()
        self._ended = {nonce: until for nonce, until in self._ended.items() if until > now}
        self._ended[session.nonce] = session.until

    def _sign(self, what: bytes) -> str:
        return hmac.new(self._secret, what, hashlib.sha256).hexdigest()
