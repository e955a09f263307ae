"""HTTP/1.1 as this client needs it: one request at a time on each of a few connections that stay open.

A general client costs about ten times the CPU of everything else that a small push takes on this side.
"""

from __future__ import annotations

import asyncio
import ssl
from dataclasses import dataclass
from http import HTTPStatus
from urllib.parse import urlsplit

import httptools

from penstock.core.errors import InvalidRequest

#: A connection that was not used for so long is not trusted to be there; servers close theirs later than that.
_IDLE_SECONDS = 20.0
#: Most connections that are kept for later.
_KEPT = 32


class NoAnswer(Exception):
    """The server could not be reached, or its answer did not arrive whole."""

    #: Whether the server may have got the request.
    was_sent = True


class NoConnection(NoAnswer):
    """The server could not even be reached."""

    was_sent = False


@dataclass(frozen=True, slots=True)
class Answer:
    """What a server said. Names of headers are in lower case."""

    status: int
    headers: dict[str, str]
    content: bytes

    @property
    def is_success(self) -> bool:
        """Whether it was done."""
        return 200 <= self.status < 300

    @property
    def reason(self) -> str:
        """The status in words."""
        try:
            return HTTPStatus(self.status).phrase
        except ValueError:
            return ""


class Connections:
    """The connections to one server."""

    def __init__(self, url: str, trusted: ssl.SSLContext, most: int | None, connect_seconds: float) -> None:
        parts = urlsplit(url)
        self._host = parts.hostname or ""
        self._port = parts.port or (443 if parts.scheme == "https" else 80)
        self._ssl = trusted if parts.scheme == "https" else None
        self._prefix = parts.path.rstrip("/")
        self._netloc = parts.netloc.rpartition("@")[2]
        self._connect_seconds = connect_seconds
        self._idle: list[_Connection] = []
        self._room = None if most is None else asyncio.Semaphore(most)

    async def close(self) -> None:
        """End those that nobody uses."""
        for connection in self._idle:
            connection.end()
        self._idle.clear()
        await asyncio.sleep(0)

    async def ask(
        self, method: str, target: str, headers: dict[str, str], body: bytes | None, seconds: float
    ) -> Answer:
        """Send a request and wait so long for its answer; raises NoAnswer if there is none."""
        lines = [f"{method} {self._prefix}{target} HTTP/1.1", f"Host: {self._netloc}"]
        lines += [f"{name}: {value}" for name, value in headers.items()]
        if not all(line.isprintable() for line in lines):
            # A line break would begin a header, or a request, of somebody else's.
            raise InvalidRequest("a header of a request must be printable, in one line")
        if body is not None or method in ("POST", "PUT", "PATCH"):
            lines.append(f"Content-Length: {len(body or b'')}")
        request = "\r\n".join([*lines, "", ""]).encode() + (body or b"")
        if self._room is None:
            return await self._ask(request, seconds)
        async with self._room:
            return await self._ask(request, seconds)

    async def _ask(self, request: bytes, seconds: float) -> Answer:
        while True:
            connection = self._kept()
            is_new = connection is None
            if connection is None:
                connection = await self._connect()
            try:
                async with asyncio.timeout(seconds):
                    answer = await connection.ask(request)
            except TimeoutError:
                connection.end()
                raise NoAnswer(f"no answer within {seconds:g} s") from None
            except NoAnswer:
                connection.end()
                if is_new or connection.heard:
                    raise
                continue  # the server had ended it, while nobody used it
            except BaseException:
                connection.end()
                raise
            self._keep(connection)
            return answer

    def _kept(self) -> _Connection | None:
        now = asyncio.get_running_loop().time()
        while self._idle:
            connection = self._idle.pop()
            if connection.is_open and now - connection.used_at < _IDLE_SECONDS:
                return connection
            connection.end()
        return None

    def _keep(self, connection: _Connection) -> None:
        if connection.is_open and len(self._idle) < _KEPT:
            connection.used_at = asyncio.get_running_loop().time()
            self._idle.append(connection)
        else:
            connection.end()

    async def _connect(self) -> _Connection:
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(self._connect_seconds):
                _, connection = await loop.create_connection(_Connection, self._host, self._port, ssl=self._ssl)
        except TimeoutError:
            raise NoConnection(f"no connection within {self._connect_seconds:g} s") from None
        except ssl.SSLCertVerificationError:
            raise
        except OSError as error:
            raise NoConnection(str(error) or type(error).__name__) from error
        return connection


class _Connection(asyncio.Protocol):
    """One connection, and what arrives on it."""

    def __init__(self) -> None:
        self.used_at = 0.0
        self.is_open = False
        #: Whether anything of the answer has arrived.
        self.heard = False
        self._transport: asyncio.Transport | None = None
        self._waiter: asyncio.Future[Answer] | None = None
        self._until_the_end = False

    async def ask(self, request: bytes) -> Answer:
        """Send a request and wait for its answer."""
        transport = self._transport
        if transport is None or not self.is_open:
            raise NoAnswer("the connection was ended")
        self.heard = False
        self._parser = httptools.HttpResponseParser(self)
        self._headers: dict[str, str] = {}
        self._parts: list[bytes] = []
        self._until_the_end = False
        self._waiter = asyncio.get_running_loop().create_future()
        transport.write(request)
        try:
            return await self._waiter
        finally:
            self._waiter = None

    def end(self) -> None:
        """Let go at once."""
        self.is_open = False
        if self._transport is not None:
            self._transport.abort()

    # What asyncio calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The connection is there."""
        assert isinstance(transport, asyncio.Transport)  # noqa: S101 - of a stream it always is
        self._transport = transport
        self.is_open = True

    def data_received(self, data: bytes) -> None:
        """Something arrived."""
        self.heard = True
        if self._waiter is None:
            self.end()  # nobody has asked
            return
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as error:
            self._fail(NoAnswer(f"what came is no HTTP: {error}"))
            self.end()

    def connection_lost(self, error: Exception | None) -> None:
        """The connection is gone."""
        self.is_open = False
        if self._until_the_end and error is None:
            self.on_message_complete()
        self._fail(NoAnswer(str(error) if error is not None else "the server ended the connection"))

    # What the parser calls

    def on_header(self, name: bytes, value: bytes) -> None:
        """A header was read."""
        self._headers[name.decode("latin-1").lower()] = value.decode("latin-1")

    def on_headers_complete(self) -> None:
        """All of them were."""
        known = "content-length" in self._headers or "transfer-encoding" in self._headers
        self._until_the_end = not known and self._parser.get_status_code() != 204

    def on_body(self, body: bytes) -> None:
        """A part of the body was read."""
        self._parts.append(body)

    def on_message_complete(self) -> None:
        """The answer is whole."""
        if self._waiter is None or self._waiter.done():
            return
        if not self._parser.should_keep_alive():
            self.is_open = False
        self._until_the_end = False
        content = self._parts[0] if len(self._parts) == 1 else b"".join(self._parts)
        self._waiter.set_result(Answer(self._parser.get_status_code(), self._headers, content))

    def _fail(self, error: NoAnswer) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_exception(error)
