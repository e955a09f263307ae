"""A TCP proxy between two processes that can cut, refuse, delay and stall connections."""

from __future__ import annotations

import asyncio
import socket
import struct
import threading
from contextlib import suppress
from pathlib import Path

_RESET = struct.pack("ii", 1, 0)


class Proxy:
    """Forwards a loopback port to a port or a Unix socket, in its own thread."""

    def __init__(self, name: str, target: Path | int) -> None:
        self.name = name
        self.port = 0
        self.connections = 0
        self._target = target
        self._ends: set[asyncio.StreamWriter] = set()
        self._delay = 0.0
        self._refuses = False
        self._loop: asyncio.AbstractEventLoop
        self._thread = threading.Thread(target=self._main, name=f"proxy {name}", daemon=True)
        self._ready = threading.Event()
        self._stop = asyncio.Event()
        self._flows = asyncio.Event()

    def start(self) -> Proxy:
        """Listen."""
        self._loop = asyncio.new_event_loop()
        self._thread.start()
        self._ready.wait()
        return self

    def stop(self) -> None:
        """Close all connections and stop."""
        self.cut()
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(10)

    def cut(self) -> None:
        """Reset all connections."""
        self._loop.call_soon_threadsafe(self._cut)

    def refuse(self, refuses: bool) -> None:
        """Close all connections and refuse new ones, or accept them again."""
        self._refuses = refuses
        if refuses:
            self.cut()

    def delay(self, seconds: float) -> None:
        """Delay all data by this many seconds."""
        self._delay = seconds

    def freeze(self, frozen: bool) -> None:
        """Forward nothing and close nothing, like an unplugged cable, or forward again."""
        self._loop.call_soon_threadsafe(self._flows.clear if frozen else self._flows.set)

    def heal(self) -> None:
        """Forward normally again."""
        self._delay, self._refuses = 0.0, False
        self.freeze(False)

    def _main(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_until_complete(self._serve())
        self._loop.close()

    async def _serve(self) -> None:
        self._flows.set()
        server = await asyncio.start_server(self._pass_on, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        self._ready.set()
        async with server:
            await self._stop.wait()
        for task in asyncio.all_tasks():
            if task is not asyncio.current_task():
                task.cancel()

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        there: asyncio.StreamWriter | None = None
        self._ends.add(writer)
        try:
            if self._refuses:
                return
            back, there = await self._connect()
            self._ends.add(there)
            pumps = [asyncio.create_task(self._pump(reader, there)), asyncio.create_task(self._pump(back, writer))]
            await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
            for pump in pumps:
                pump.cancel()
            await asyncio.gather(*pumps, return_exceptions=True)
        except OSError:
            pass
        except asyncio.CancelledError:
            return
        finally:
            for end in (writer, there):
                if end is not None:
                    self._ends.discard(end)
                    end.close()

    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        if isinstance(self._target, Path):
            return await asyncio.open_unix_connection(self._target)
        return await asyncio.open_connection("127.0.0.1", self._target)

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while some := await reader.read(1 << 16):
                if self._delay:
                    await asyncio.sleep(self._delay)
                await self._flows.wait()
                writer.write(some)
                await writer.drain()

    def _cut(self) -> None:
        for end in list(self._ends):
            sock: socket.socket | None = end.get_extra_info("socket")
            if sock is not None and sock.family != socket.AF_UNIX:
                with suppress(OSError):
                    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
            end.transport.abort()
