"""Requests to a Penstock server, with retries."""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TypeVar
from urllib.parse import quote, urlencode

import msgspec

from penstock.client.http.connection import ConnectionFailed, ConnectionPool, HttpResponse, NoResponse
from penstock.client.http.encode import compress_body, encode_json, lone_surrogate
from penstock.client.http.errors import error_from_response, retry_after_seconds
from penstock.core.backoff import Backoff, RetryTimer
from penstock.core.errors import (
    ConfigurationError,
    DatabaseUnavailable,
    PenstockError,
    QueueFull,
    ServerError,
    ServerUnavailable,
)
from penstock.core.wait_notice import WaitNotice

_logger = logging.getLogger("penstock.client")

#: The time for a response. A server that has lost its database retries for 30 s before it responds with an error.
_RESPONSE_SECONDS = 45.0
_CONNECT_SECONDS = 10.0
_BACKOFF = Backoff(first=0.05, longest=2.0)
#: Statuses of a server, or of a proxy in front of it, after which the same request may succeed.
_RETRYABLE = frozenset((429, 502, 503, 504))

_T = TypeVar("_T")


class RetryingHttpClient:
    """Sends requests to a server.

    A request without a response, or with a retryable one (429, 502, 503, 504), is sent again until ``retry_seconds``
    have passed. The pauses follow the Retry-After header or grow with each attempt, and have jitter.
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
            # A key that was read from a file often ends with a line break.
            key = api_key.strip()
            if not key.isascii() or not key.isprintable() or " " in key:
                raise ConfigurationError(
                    "the API key is not valid: it must be a single word, such as penstock_<id>_<secret>"
                )
            self._headers["Authorization"] = f"Bearer {key}"
        # Reading the CA certificates of the system takes some 20 ms.
        needs_ssl = ca_file is not None or self.url.lower().startswith("https:")
        self._ssl_context = _create_ssl_context(ca_file) if needs_ssl else None
        self._connections = connections
        self._wait_for_room = wait_for_room
        self._pool: ConnectionPool | None = None

    async def open(self) -> None:
        """Create the connection pool; this sends nothing yet."""
        self._pool = ConnectionPool(self.url, self._ssl_context, self._connections, _CONNECT_SECONDS)

    async def close(self) -> None:
        if self._pool is not None:
            await self._pool.close()

    async def request(
        self,
        method: str,
        path: str,
        response_type: type[_T],
        *,
        query: Mapping[str, object] | None = None,
        body: object = None,
        key: str | None = None,
        wait_seconds: float = 0.0,
        once: bool = False,
    ) -> _T:
        """Send a request and return the decoded response, or raise the error of the response.

        Args:
            method: The HTTP method.
            path: The path below ``/v1/``; its segments are quoted with :func:`quote_segment`.
            response_type: The type of the JSON in the response.
            query: The query string; entries that are None are left out.
            body: A value to send as JSON, or a function that returns JSON for each attempt.
            key: The idempotency key, the same for every attempt.
            wait_seconds: How long the server may wait for events before it responds.
            once: Do not send the request again if the server may have executed it.
        """
        target = _build_target(path, query or {})
        encoded = body if body is None or callable(body) else encode_json(body)
        key_header = {} if key is None else {"Idempotency-Key": key}
        response = await self._send(method, target, key_header, encoded, _RESPONSE_SECONDS + wait_seconds, once=once)
        try:
            return msgspec.json.decode(response.content or b"null", type=response_type)
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise ServerUnavailable(
                f"the response of {self.url} is not one of a Penstock server of this version ({error}): check the url",
                status=response.status,
            ) from error

    async def _send(
        self,
        method: str,
        target: str,
        key_header: Mapping[str, str],
        body: Callable[[], bytes] | bytes | None,
        timeout_seconds: float,
        *,
        once: bool,
    ) -> HttpResponse:
        """Send a request until a response is a success or an error that must not be retried."""
        pool = self._pool
        assert pool is not None  # noqa: S101 - the session opens the client before it uses it
        retries = RetryTimer(_BACKOFF, self._retry_seconds)
        notice = WaitNotice(_logger.warning)
        while True:
            content, content_headers = compress_body(body() if callable(body) else body)
            headers = {**self._headers, **content_headers, **key_header}
            try:
                response = await pool.request(method, target, headers, content, timeout_seconds)
            except ssl.SSLCertVerificationError as error:
                raise ServerError(
                    f"the certificate of {self.url} is not trusted ({error.verify_message}): if the server has a "
                    "private CA, give the file with its certificate as tls_ca_file"
                ) from error
            except NoResponse as error:
                if once and error.was_sent:
                    raise ServerUnavailable(
                        f"the server at {self.url} sent no response ({error}) and may or may not have executed the "
                        "request: check before you repeat it"
                    ) from error
                await _pause(retries, notice, self._unreachable(error), None)
                continue
            if response.is_success:
                return response
            refusal = error_from_response(self.url, response)
            is_full = isinstance(refusal, QueueFull)
            if response.status not in _RETRYABLE or (is_full and not self._wait_for_room):
                raise refusal
            if once and isinstance(refusal, DatabaseUnavailable):
                raise refusal
            retry_after = refusal.retry_after if isinstance(refusal, QueueFull) else retry_after_seconds(response)
            await _pause(retries, notice, refusal, retry_after)

    def _unreachable(self, error: NoResponse) -> ServerUnavailable:
        check = "check that it runs (`penstock serve`) and that the url is right"
        if isinstance(error.__cause__, ConnectionRefusedError):
            return ServerUnavailable(
                f"nothing listens at {self.url}: the connection was refused, also after {self._retry_seconds:g} s of "
                f"retries. If it is a Penstock server, {check}"
            )
        if isinstance(error.__cause__, ssl.SSLError) and error.__cause__.reason == "WRONG_VERSION_NUMBER":
            return ServerUnavailable(f"the server at {self.url} does not speak TLS: write the url with http://")
        if isinstance(error, ConnectionFailed):
            return ServerUnavailable(f"the server at {self.url} cannot be reached ({error}): {check}")
        return ServerUnavailable(
            f"the server at {self.url} sent no response within {self._retry_seconds:g} s ({error}): {check}"
        )


async def _pause(retries: RetryTimer, notice: WaitNotice, error: PenstockError, retry_after: float | None) -> None:
    pause = retries.next_pause(retry_after)
    if pause is None:
        raise error
    _logger.debug("retry in %.2f s: %s", pause, error)
    if isinstance(error, QueueFull):
        notice.waits(error, pause)
    await asyncio.sleep(pause)


def quote_segment(name: str) -> str:
    """Quote a name as a segment of a path."""
    try:
        return quote(name, safe="")
    except UnicodeEncodeError:
        raise lone_surrogate() from None


def _build_target(path: str, query: Mapping[str, object]) -> str:
    parameters = {name: value for name, value in query.items() if value is not None}
    try:
        return f"/v1/{path}?{urlencode(parameters)}" if parameters else f"/v1/{path}"
    except UnicodeEncodeError:
        raise lone_surrogate() from None


def _create_ssl_context(ca_file: Path | None) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(cafile=ca_file)
    except (OSError, ssl.SSLError) as error:
        raise ConfigurationError(
            f"the CA certificates cannot be read from {ca_file}: {error}; give a file in PEM format"
        ) from error
