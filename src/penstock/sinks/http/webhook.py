"""``Webhook``: posts batches of events to a URL."""

from __future__ import annotations

import asyncio
import contextlib
import math
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

import msgspec

from penstock.core.backoff import Backoff
from penstock.core.clock import to_micros
from penstock.core.errors import InvalidRequest, SinkBusy, SinkError, SinkRejected, short_repr
from penstock.core.names import check_text
from penstock.core.option_checks import check_integer
from penstock.sinks.base import Sink
from penstock.sinks.http.address_filter import check_networks, resolve
from penstock.sinks.http.circuit_breaker import CircuitBreaker
from penstock.sinks.http.signature import read_secret, sign
from penstock.sinks.sink_options import read_mapping, read_number

if TYPE_CHECKING:
    import ssl

    import httpx

    from penstock.log.event import Event

#: Statuses that reject the events for good.
_REJECTED = frozenset((400, 413, 415, 422))
#: Statuses of a receiver that is unavailable or configured wrongly. No event is at fault.
_BUSY = frozenset((401, 403, 404, 405, 407, 408, 410, 425, 429, 502, 503, 504))
#: How much of a response goes into the error message.
_MAX_MESSAGE_BYTES = 500
#: How much of a response is read, so that its connection can be reused.
_MAX_READ_BYTES = 64 << 10
#: Headers that the HTTP client sets.
_RESERVED_HEADERS = frozenset(("content-length", "transfer-encoding", "connection"))
_HEADER_NAME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
#: The longest Retry-After that is followed.
_MAX_RETRY_AFTER = 3600.0


class Webhook(Sink):
    """Posts batches of events to a URL as JSON.

    A batch is ``{"id", "queue", "events": [{"id", "key", "partition", "offset", "time", "headers", "data"}]}``. A
    status of 2xx accepts the whole batch. After another status the batch is sent again, after ``Retry-After`` or with a
    backoff. The id of an event is the same each time and unique across databases, so that a receiver can skip
    duplicates.

    Addresses that are not public are refused, and redirects are not followed, so that a URL cannot reach services that
    only this machine can reach.

    Args:
        url: The URL.
        secret: Signs the requests (Standard Webhooks).
        headers: More headers.
        timeout: Seconds for a request.
        allow: Networks that are allowed although they are not public, such as ``["10.0.0.0/8"]``.
        breaker: After this many consecutive failures, only single requests are sent until one succeeds.
        backoff: The pauses between those single requests.
        verify: The TLS verification, as in httpx.
        read_seconds: How long the body of a response is read.
        batch: The most events of a request.
        concurrency: The most requests at the same time. Each has events of one partition, so that those of a key arrive
            in order.
    """

    batch = 100
    is_concurrent = True

    def __init__(
        self,
        url: str,
        *,
        secret: str | None = None,
        headers: Mapping[str, str] | None = None,
        timeout: float = 10.0,
        allow: Sequence[str] = (),
        breaker: int = 5,
        backoff: Backoff | None = None,
        verify: Any = True,
        read_seconds: float = 1.0,
        batch: int = 100,
        concurrency: int = 1,
    ) -> None:
        import httpx

        try:
            self._url = httpx.URL(check_text(url, "the URL"))
        except (httpx.InvalidURL, InvalidRequest, UnicodeError) as error:
            raise InvalidRequest(f"the URL of a webhook cannot be read: {str(error)[:200]}") from None
        if self._url.scheme not in ("http", "https") or not self._url.host:
            raise InvalidRequest(
                f"the URL of a webhook must begin with https:// or http://, which {short_repr(url)} does not"
            )
        if self._url.userinfo:
            raise InvalidRequest("the URL of a webhook must not contain a password, because logs show it: use headers")
        self.name = f"webhook:{self._url.host}{self._url.path}"[:200].rstrip()
        self._key = None if secret is None else read_secret(secret)
        self._headers = _check_headers(read_mapping("headers", headers or {}))
        self._timeout = read_number("timeout", timeout, 3600)
        self._allow = check_networks(allow)
        self._breaker = CircuitBreaker(check_integer("breaker", breaker, 1, 1_000_000), backoff or Backoff())
        self._verify = verify
        self._read_seconds = read_number("read_seconds", read_seconds, 3600)
        self.batch = check_integer("batch", batch, 1, 100_000)
        self.concurrency = check_integer("concurrency", concurrency, 1, 1_000)
        self._ssl_context: ssl.SSLContext | None = None
        #: One client with one connection for each request at the same time: the pool of a client looks at all of its
        #: connections for each request, which takes half of the time with 16 of them.
        self._idle_clients: list[httpx.AsyncClient] = []
        self._clients: list[httpx.AsyncClient] = []

    @property
    def is_resting(self) -> bool:
        """Whether the circuit breaker is open."""
        return self._breaker.is_open

    async def open(self) -> None:
        """Check that the address of the URL is allowed."""
        import httpx

        port = self._url.port or (443 if self._url.scheme == "https" else 80)
        with contextlib.suppress(SinkBusy):  # every request resolves the name again
            await resolve(self._url.host, port, self._allow)
        self._ssl_context = httpx.create_ssl_context(verify=self._verify, trust_env=False)

    async def close(self) -> None:
        """Close the connections."""
        for client in self._clients:
            await client.aclose()
        self._clients, self._idle_clients = [], []

    async def write(self, events: Sequence[Event]) -> None:
        """Post the events as one request."""
        import httpx

        self._breaker.check()
        try:
            with self._idle_client() as client:
                async with asyncio.timeout(self._timeout):
                    response = await self._post(client, events)
                status, text = response.status_code, await _read_message(response, self._read_seconds)
        except (httpx.TransportError, TimeoutError, OSError) as error:
            self._breaker.record_failure()
            problem = (
                "did not respond in time"
                if isinstance(error, TimeoutError)
                else f"cannot be reached: {str(error) or repr(error)}"
            )
            is_sent = not isinstance(error, httpx.ConnectError | httpx.ConnectTimeout)
            raise SinkBusy(f"{self._url.netloc.decode()} {problem}", is_sent=is_sent) from error
        if 200 <= status < 300:
            self._breaker.record_success()
            return
        message = f"{self._url.host} responded {status}" + (f": {text}" if text else "")
        if status in _REJECTED:
            self._breaker.record_success()  # the receiver works
            raise SinkRejected(message)
        retry_after = parse_retry_after(response.headers)
        self._breaker.record_failure(retry_after)
        if status in _BUSY or 300 <= status < 400 or retry_after is not None:
            raise SinkBusy(message, retry_after=retry_after)
        raise SinkError(message)  # the events may have caused it

    @contextlib.contextmanager
    def _idle_client(self) -> Iterator[httpx.AsyncClient]:
        import httpx

        if self._idle_clients:
            client = self._idle_clients.pop()
        else:
            # A proxy from the environment would resolve the name itself.
            client = httpx.AsyncClient(trust_env=False, follow_redirects=False, verify=self._ssl_context or True)
            self._clients.append(client)
        try:
            yield client
        finally:
            self._idle_clients.append(client)

    async def _post(self, client: httpx.AsyncClient, events: Sequence[Event]) -> httpx.Response:
        """Post the events to the first address of the receiver that accepts a connection."""
        import httpx

        port = self._url.port or (443 if self._url.scheme == "https" else 80)
        addresses = await resolve(self._url.host, port, self._allow)
        id = batch_id(events)
        body = encode(id, events)
        headers = {
            "content-type": "application/json",
            "user-agent": "penstock-webhook",
            # A compressed response could be large after decompression.
            "accept-encoding": "identity",
            **self._headers,
            "host": self._url.netloc.decode(),
            "webhook-id": id,
        }
        if self._key is not None:
            now = int(time.time())
            headers |= {"webhook-timestamp": str(now), "webhook-signature": sign(self._key, id, now, body)}
        requests = [
            client.build_request(
                "POST",
                self._url.copy_with(host=address),
                content=body,
                headers=headers,
                # An address without a response leaves time for the others.
                timeout=httpx.Timeout(self._timeout, connect=self._timeout / len(addresses)),
                # The certificate is for the name.
                extensions={"sni_hostname": self._url.host},
            )
            for address in addresses
        ]
        for request in requests[:-1]:
            with contextlib.suppress(httpx.ConnectError, httpx.ConnectTimeout):
                return await client.send(request, stream=True)
        return await client.send(requests[-1], stream=True)


def _check_headers(headers: Mapping[str, str]) -> dict[str, str]:
    """Return the headers in lower case; refuse a line break, which would inject another header or request."""
    for name, value in headers.items():
        if not _HEADER_NAME.fullmatch(name):
            raise InvalidRequest(f"{short_repr(name)} is not a valid name of a header of a webhook")
        if name.lower() in _RESERVED_HEADERS:
            raise InvalidRequest(f"the header {name!r} of a webhook is set automatically: leave it out")
        if not value.isprintable() or not value.isascii():
            raise InvalidRequest(f"the header {name!r} of a webhook must be printable ASCII in one line")
    return {name.lower(): value for name, value in headers.items()}


def encode(id: str, events: Sequence[Event]) -> bytes:
    """Return the JSON of a batch."""
    documents = [
        {
            "id": event_id(event),
            "key": event.key,
            "partition": event.partition,
            "offset": event.offset,
            "time": event.time,
            "headers": event.headers,
            "data": msgspec.Raw(event.raw),
        }
        for event in events
    ]
    return msgspec.json.encode({"id": id, "queue": events[0].queue, "events": documents})


def event_id(event: Event) -> str:
    """Return the id with which the event was pushed, or one that is unique across databases."""
    return event.given_id or _unique_id(event)


def _unique_id(event: Event) -> str:
    # The time makes the id differ from the id of an event at the same offset in another database.
    return f"{event.partition_id}-{event.offset}-{to_micros(event.appended_at)}"


def batch_id(events: Sequence[Event]) -> str:
    """Return an id of a batch that is the same whenever the same events are sent."""
    digest = blake2b(digest_size=15)
    for event in events:
        digest.update(f"{_unique_id(event)} ".encode())
    return f"msg_{digest.hexdigest()}"


def parse_retry_after(headers: Mapping[str, str]) -> float | None:
    """Return the seconds of the Retry-After header, which holds a number or a date; None without one."""
    value = headers.get("retry-after")
    if value is None:
        return None
    try:
        seconds = float(value)
    except ValueError:
        try:
            date = parsedate_to_datetime(value)
        except ValueError:
            return None
        date = date if date.tzinfo is not None else date.replace(tzinfo=UTC)
        seconds = (date - datetime.now(UTC)).total_seconds()
    return min(max(seconds, 0.0), _MAX_RETRY_AFTER) if math.isfinite(seconds) else None


async def _read_message(response: httpx.Response, seconds: float) -> str:
    """Return the beginning of a response as text. The rest may be slow or endless, so it is not waited for."""
    import httpx

    content, length = b"", 0
    try:
        async with asyncio.timeout(seconds):
            async for chunk in response.aiter_raw():
                content += chunk[: _MAX_MESSAGE_BYTES - len(content)]
                length += len(chunk)
                if length > _MAX_READ_BYTES:
                    break
    except (httpx.HTTPError, TimeoutError, OSError):
        pass
    finally:
        await response.aclose()
    text = content.decode(errors="replace").strip()
    return text if text.isprintable() else ""
