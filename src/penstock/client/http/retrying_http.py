"""One request and its answer, as often as it takes: what is repeated changes nothing the second time."""

from __future__ import annotations

import asyncio
import logging
import random
import ssl
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TypeVar
from urllib.parse import quote, urlencode

import msgspec
import zstandard

from penstock.client.http.connection import Answer, Connections, NoAnswer
from penstock.client.http.errors import error_of, retry_after
from penstock.core.errors import (
    ConfigurationError,
    DatabaseUnavailable,
    InvalidRequest,
    PenstockError,
    QueueFull,
    ServerError,
    ServerUnavailable,
)

_logger = logging.getLogger("penstock.client")

#: Bodies from this size on are compressed: on a fast network less is not worth the work.
_COMPRESS_BYTES = 16 << 10
#: A server that has lost its database looks for it for so long before it says so.
_ANSWER_SECONDS = 45.0
_CONNECT_SECONDS = 10.0
_FIRST_PAUSE = 0.05
_LONGEST_PAUSE = 2.0
#: Statuses of a server, or of what is in front of it, that may be different the next time.
_PASSING = frozenset((429, 502, 503, 504))

_Answer = TypeVar("_Answer")


class Exchange:
    """Talks to a server.

    A request that gets no answer, or one that asks to come again (429, 503), is repeated until ``retry_seconds`` are
    over: after what ``Retry-After`` says, and a little more by chance, so that those who were sent away together do not
    come back together.
    """

    def __init__(
        self,
        url: str,
        *,
        api_key: str | None = None,
        retry_seconds: float = 30.0,
        ca_file: Path | None = None,
        connections: int | None = None,
        wait_for_room: bool = True,
    ) -> None:
        self.url = url.rstrip("/")
        self._retry_seconds = retry_seconds
        self._headers = {"User-Agent": "penstock", "Accept": "application/json"}
        if api_key is not None:
            # One that was read from a file often ends in a line break.
            key = api_key.strip()
            if not key.isascii() or not key.isprintable() or " " in key:
                raise ConfigurationError("the API key is not one: it is a single word, such as penstock_<id>_<secret>")
            self._headers["Authorization"] = f"Bearer {key}"
        self._trusted = _trust(ca_file)
        self._connections = connections
        self._wait_for_room = wait_for_room
        self._server: Connections | None = None

    async def open(self) -> None:
        """Get ready; nothing is sent yet."""
        self._server = Connections(self.url, self._trusted, self._connections, _CONNECT_SECONDS)

    async def close(self) -> None:
        """End the connections."""
        if self._server is not None:
            await self._server.close()

    async def ask(
        self,
        method: str,
        path: str,
        answer: type[_Answer],
        *,
        query: Mapping[str, object] | None = None,
        body: Callable[[], bytes] | bytes | None = None,
        key: str | None = None,
        wait_seconds: float = 0.0,
        once: bool = False,
    ) -> _Answer:
        """The answer to a request, or the error that it was.

        Args:
            method: The method.
            path: The path, its parts quoted by :func:`part`.
            answer: The type of the JSON that is expected.
            query: The query string; what is None is left out.
            body: JSON; called anew for each try, if a try has to differ from the one before.
            key: The idempotency key, the same for every try.
            wait_seconds: How long the server may take beyond what is usual.
            once: To do it twice would be to do more: it is not repeated if it may have been done.
        """
        response = await self.send(method, path, query=query, body=body, key=key, wait_seconds=wait_seconds, once=once)
        try:
            return msgspec.json.decode(response.content, type=answer)
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise ServerUnavailable(
                f"{self.url} answered what no Penstock server of this version says ({error}): check the url",
                status=response.status,
            ) from error

    async def send(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, object] | None = None,
        body: Callable[[], bytes] | bytes | None = None,
        key: str | None = None,
        wait_seconds: float = 0.0,
        once: bool = False,
    ) -> Answer:
        """The same for an answer that need not be read."""
        server = self._server
        assert server is not None  # noqa: S101 - the session opens it before it hands it out
        target = _target(path, query or {})
        extra = {} if key is None else {"Idempotency-Key": key}
        tries = _Tries(self._retry_seconds)
        while True:
            content, headers = _packed(body() if callable(body) else body)
            sent = {**self._headers, **headers, **extra}
            try:
                response = await server.ask(method, target, sent, content, _ANSWER_SECONDS + wait_seconds)
            except ssl.SSLCertVerificationError as error:
                raise ServerError(
                    f"the certificate of {self.url} is not to be trusted ({error.verify_message}): if the server has "
                    "one of its own, name the file that vouches for it as tls_ca_file"
                ) from error
            except NoAnswer as error:
                if once and error.was_sent:
                    raise ServerUnavailable(
                        f"the server at {self.url} gave no answer ({error}), and may have done what it was asked to or "
                        "not: look before you ask again"
                    ) from error
                await tries.again(self._unreachable(error), None)
                continue
            if response.is_success:
                return response
            refusal = error_of(self.url, response)
            is_full = isinstance(refusal, QueueFull)
            if response.status not in _PASSING or (is_full and not self._wait_for_room):
                raise refusal
            if once and isinstance(refusal, DatabaseUnavailable):
                raise refusal
            wanted = refusal.retry_after if isinstance(refusal, QueueFull) else retry_after(response)
            await tries.again(refusal, wanted)

    def _unreachable(self, error: NoAnswer) -> ServerUnavailable:
        return ServerUnavailable(
            f"the server at {self.url} gave no answer within {self._retry_seconds:g} s ({error}): check that it runs "
            "(`penstock serve`) and that the url is right"
        )


class _Tries:
    """How long to go on, and when."""

    def __init__(self, seconds: float) -> None:
        self._clock = asyncio.get_running_loop().time
        self._deadline = self._clock() + seconds
        self._pause = _FIRST_PAUSE

    async def again(self, error: PenstockError, wanted: float | None) -> None:
        """Wait for the next try, or raise the error if there is to be none."""
        pause = self._pause if wanted is None else wanted
        if self._clock() + pause > self._deadline:
            raise error
        _logger.debug("asked again in about %.2f s: %s", pause, error)
        # After what was wanted, never before; without a wish, anything up to the pause.
        chance = random.random()  # noqa: S311 - spreads load
        await asyncio.sleep(pause * (0.5 + chance / 2) if wanted is None else pause * (1 + chance / 4))
        self._pause = min(self._pause * 2, _LONGEST_PAUSE)


def _target(path: str, query: Mapping[str, object]) -> str:
    """The address of a request, without the server's."""
    given = {name: value for name, value in query.items() if value is not None}
    try:
        return f"/v1/{path}?{urlencode(given)}" if given else f"/v1/{path}"
    except UnicodeEncodeError:
        raise InvalidRequest("a lone surrogate was given, which UTF-8 cannot carry") from None


def part(name: str) -> str:
    """A name as a part of a path."""
    try:
        return quote(name, safe="")
    except UnicodeEncodeError:
        raise InvalidRequest("a lone surrogate was given, which UTF-8 cannot carry") from None


def _packed(body: bytes | None) -> tuple[bytes | None, dict[str, str]]:
    if body is None:
        return None, {}
    headers = {"Content-Type": "application/json"}
    if len(body) < _COMPRESS_BYTES:
        return body, headers
    return zstandard.compress(body, 1), {**headers, "Content-Encoding": "zstd"}


def _trust(ca_file: Path | None) -> ssl.SSLContext:
    """Whom to trust: those whom the system does, or those alone whose certificates are in a file."""
    try:
        return ssl.create_default_context(cafile=ca_file)
    except (OSError, ssl.SSLError) as error:
        raise ConfigurationError(
            f"the certificates to trust cannot be read from {ca_file}: {error}; name a file in PEM format"
        ) from error
