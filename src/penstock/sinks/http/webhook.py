"""Events as signed HTTP requests."""

from __future__ import annotations

import asyncio
import contextlib
import math
import re
import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

import msgspec

from penstock.core.errors import InvalidRequest, SinkBusy, SinkRejected, shown
from penstock.core.names import check_text
from penstock.core.timestamps import to_micros
from penstock.sinks.backoff import Backoff
from penstock.sinks.base import Sink
from penstock.sinks.http.address_filter import check_networks, resolve
from penstock.sinks.http.circuit_breaker import Breaker
from penstock.sinks.http.signature import read_secret, sign
from penstock.sinks.validation import read_count, read_mapping, read_number

if TYPE_CHECKING:
    import httpx

    from penstock.log.event import Event

#: The answer says that the events are wrong, and would be the next time.
_REJECTED = frozenset((400, 413, 415, 422))
#: The receiver is not there, not ready, or not where it was thought to be: no event's fault.
_BUSY = frozenset((401, 403, 404, 405, 407, 408, 410, 425, 429, 502, 503, 504))
#: What is kept of an answer, for the error; and what is read of it, so that its connection can be used again.
_LONGEST_ANSWER = 500
_MOST_READ = 64 << 10
_READ_SECONDS = 1.0
#: Of a header that would say where a request ends, and does not know.
_NOT_YOURS = frozenset(("content-length", "transfer-encoding", "connection"))
_HEADER_NAME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
#: Longer than this nobody is waited for, whatever it asks for.
_LONGEST_WAIT = 3600.0


class ReceiverFailed(Exception):
    """The receiver answered with an error that may be about the events."""


class Webhook(Sink):
    """Posts batches of events to a URL as JSON, signed if there is a secret.

    A batch is ``{"id", "queue", "events": [{"id", "key", "partition", "offset", "time", "headers", "data"}]}``. An
    answer of 2xx takes the whole of it, whatever comes after that. After any other it comes again: when ``Retry-After``
    asks for it, or after a wait that grows. An event's id is the same each time, so that a receiver can leave out what
    it has had, and no event of another database has it. After ``breaker`` failures in a row the receiver is left alone
    but for one request now and then.

    Addresses that are not public are refused unless ``allow`` names their network, and redirects are not followed:
    whoever may set a URL must not reach what only this machine can.
    """

    batch = 100

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
    ) -> None:
        import httpx

        try:
            self._url = httpx.URL(check_text(url, "the URL"))
        except (httpx.InvalidURL, InvalidRequest, UnicodeError) as error:
            raise InvalidRequest(f"the URL of a webhook cannot be read: {str(error)[:200]}") from None
        if self._url.scheme not in ("http", "https") or not self._url.host:
            raise InvalidRequest(f"the URL of a webhook begins with https:// or http://, not as {shown(url)} does")
        if self._url.userinfo:
            raise InvalidRequest("a webhook's URL holds no name or password, which logs would show: use headers")
        self.name = f"webhook:{self._url.host}{self._url.path}"[:200].rstrip()
        self._key = None if secret is None else read_secret(secret)
        self._headers = _checked(read_mapping("headers", headers or {}))
        self._timeout = read_number("timeout", timeout, 3600)
        self._allow = check_networks(allow)
        self._breaker = Breaker(read_count("breaker", breaker), backoff or Backoff())
        self._verify = verify
        self._client: httpx.AsyncClient | None = None

    @property
    def is_resting(self) -> bool:
        """Whether the receiver is being left alone but for one request now and then."""
        return self._breaker.is_open

    async def open(self) -> None:
        """Look whether the URL leads where it may."""
        import httpx

        port = self._url.port or (443 if self._url.scheme == "https" else 80)
        with contextlib.suppress(SinkBusy):  # there may be no name server now; it is asked again each time
            await resolve(self._url.host, port, self._allow)
        # No proxy of the environment: it would look the name up for itself.
        self._client = httpx.AsyncClient(trust_env=False, follow_redirects=False, verify=self._verify)

    async def close(self) -> None:
        """Close the connections."""
        if self._client is not None:
            await self._client.aclose()
            self._client = None

    async def write(self, events: Sequence[Event]) -> None:
        """Post the events as one request."""
        import httpx

        self._breaker.check()
        try:
            async with asyncio.timeout(self._timeout):
                answer = await self._post(events)
        except (httpx.TransportError, TimeoutError, OSError) as error:
            self._breaker.failed()
            what = "did not answer in time" if isinstance(error, TimeoutError) else f"cannot be reached: {error!r}"
            raise SinkBusy(f"{self._url.host} {what}") from error
        status, headers, said = answer.status_code, answer.headers, await _beginning(answer)
        if 200 <= status < 300:
            self._breaker.succeeded()
            return
        what = f"{self._url.host} answered {status}" + (f": {said}" if said else "")
        if status in _REJECTED:
            self._breaker.succeeded()  # it is there, and says what it does not want
            raise SinkRejected(what)
        wait = retry_after(headers)
        self._breaker.failed(wait)
        if status in _BUSY or 300 <= status < 400 or wait is not None:
            raise SinkBusy(what, retry_after=wait)
        raise ReceiverFailed(what)

    async def _post(self, events: Sequence[Event]) -> httpx.Response:
        """Post the events to the first of the receiver's addresses that takes a connection."""
        import httpx

        assert self._client is not None  # noqa: S101 - it is open between open and close
        port = self._url.port or (443 if self._url.scheme == "https" else 80)
        addresses = await resolve(self._url.host, port, self._allow)
        id = batch_id(events)
        body = encode(id, events)
        headers = {
            "content-type": "application/json",
            "user-agent": "penstock-webhook",
            # What is read of an answer is little, and is not to be much more once it is undone.
            "accept-encoding": "identity",
            **self._headers,
            "host": self._url.netloc.decode(),
            "webhook-id": id,
        }
        if self._key is not None:
            now = int(time.time())
            headers |= {"webhook-timestamp": str(now), "webhook-signature": sign(self._key, id, now, body)}
        requests = [
            self._client.build_request(
                "POST",
                self._url.copy_with(host=address),
                content=body,
                headers=headers,
                # One that does not answer leaves time for the others.
                timeout=httpx.Timeout(self._timeout, connect=self._timeout / len(addresses)),
                # The certificate is for the name, not for the address.
                extensions={"sni_hostname": self._url.host},
            )
            for address in addresses
        ]
        for request in requests[:-1]:
            with contextlib.suppress(httpx.ConnectError, httpx.ConnectTimeout):
                return await self._client.send(request, stream=True)
        return await self._client.send(requests[-1], stream=True)


def _checked(headers: Mapping[str, str]) -> dict[str, str]:
    """The headers, if they are some: with a line break in one, it could be the beginning of another request."""
    for name, value in headers.items():
        if not _HEADER_NAME.fullmatch(name):
            raise InvalidRequest(f"a header of a webhook cannot be called {shown(name)}")
        if name.lower() in _NOT_YOURS:
            raise InvalidRequest(f"the header {name!r} of a webhook follows from the request: leave it out")
        if not value.isprintable() or not value.isascii():
            raise InvalidRequest(f"the header {name!r} of a webhook must be printable ASCII in one line")
    return {name.lower(): value for name, value in headers.items()}


def encode(id: str, events: Sequence[Event]) -> bytes:
    """A batch as JSON."""
    said = [
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
    return msgspec.json.encode({"id": id, "queue": events[0].queue, "events": said})


def event_id(event: Event) -> str:
    """The id it was pushed with, or one that no event of another database has: when it was appended is part of it."""
    return event.given_id or _place(event)


def _place(event: Event) -> str:
    return f"{event.partition_id}-{event.offset}-{to_micros(event.appended_at)}"


def batch_id(events: Sequence[Event]) -> str:
    """The same for the same events, whenever they are sent."""
    digest = blake2b(digest_size=15)
    for event in events:
        digest.update(f"{_place(event)} ".encode())
    return f"msg_{digest.hexdigest()}"


def retry_after(headers: Mapping[str, str]) -> float | None:
    """How many seconds an answer asks to wait, if it does: a number, or a date."""
    said = headers.get("retry-after")
    if said is None:
        return None
    try:
        seconds = float(said)
    except ValueError:
        try:
            moment = parsedate_to_datetime(said)
        except ValueError:
            return None
        moment = moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
        seconds = (moment - datetime.now(UTC)).total_seconds()
    return min(max(seconds, 0.0), _LONGEST_WAIT) if math.isfinite(seconds) else None


async def _beginning(answer: httpx.Response) -> str:
    """What the answer says, as far as anybody wants to read it. Its status is known, however long the rest takes."""
    import httpx

    found, length = b"", 0
    try:
        async with asyncio.timeout(_READ_SECONDS):
            async for part in answer.aiter_raw():
                found += part[: _LONGEST_ANSWER - len(found)]
                length += len(part)
                if length > _MOST_READ:
                    break
    except (httpx.HTTPError, TimeoutError, OSError):
        pass
    finally:
        await answer.aclose()
    text = found.decode(errors="replace").strip()
    return text if text.isprintable() else ""
