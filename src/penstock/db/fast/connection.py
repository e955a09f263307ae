"""A connection whose socket stays watched between statements.

The driver has the event loop watch the socket anew for each statement, under a timer, and forget it afterwards. For a
short statement that takes longer than all else that happens in this process.
"""

from __future__ import annotations

import asyncio
import os
from contextlib import suppress
from typing import Any, TypeVar
from weakref import finalize

from psycopg import AsyncConnection, errors
from psycopg.abc import PQGen
from psycopg.pq import ConnStatus, TransactionStatus
from psycopg.rows import Row
from psycopg.waiting import Ready, Wait, wait_async

_Answer = TypeVar("_Answer")

_READABLE = Wait.R

# How long a statement may take to end that was told to, and after how long it is told again, the first time.
_CANCEL_SECONDS = 5.0
_AGAIN_SECONDS = 0.1


class WatchedConnection(AsyncConnection[Row]):
    """A connection of the driver that waits for the server's answers in its own way, and for all else in the driver's.

    What is watched is another name of the socket: libpq closes its own when the server is gone, and the number may be
    another socket's before anybody hears of it.
    """

    _name: int | None = None
    _forget: finalize[..., Any]
    _loop: asyncio.AbstractEventLoop
    _is_watched = False
    # What is under way and what it waits for, who waits for it, and what came of it.
    _under_way: PQGen[Any] | None = None
    _wanted = Wait.R
    _waiter: asyncio.Future[bool]
    _answer: Any = None
    _error: BaseException | None = None

    async def wait(self, gen: PQGen[_Answer], interval: float = 0.1, timeout: float | None = None) -> _Answer:
        """Wait for what the generator waits for, to its end."""
        if timeout is not None or os.name != "posix":
            self._unwatch()
            return await super().wait(gen, interval, timeout)
        try:
            self._wanted = next(gen)
        except StopIteration as end:
            answer: _Answer = end.value
            return answer
        if self._wanted == _READABLE:
            if not self._is_watched:
                self._watch()
            self._waiter = self._loop.create_future()
            self._under_way = gen
            try:
                is_ended = await self._waiter
            except asyncio.CancelledError:
                self._under_way = self._answer = self._error = None
                await self._end(gen)
                raise
            if is_ended:
                answer, error = self._answer, self._error
                self._answer = self._error = None
                if error is not None:
                    raise error
                return answer
        # There is more to say than the socket takes at once.
        self._unwatch()
        try:
            return await wait_async(self._resumed(gen), self.pgconn.socket, interval=interval)
        except asyncio.CancelledError:
            await self._end(gen)
            raise

    def _heard(self) -> None:
        # Read here, and not when the waiter gets to run: the event loop would tell of the same once more.
        gen = self._under_way
        if gen is None:
            self._hear_unasked()
            return
        is_ended = True
        try:
            self._wanted = gen.send(Ready.R)
            if self._wanted == _READABLE:
                # uvloop stops watching a socket that was reset, although what came before that is read first.
                self._unwatch()
                self._watch()
                return
            is_ended = False
        except StopIteration as end:
            self._answer = end.value
        except BaseException as error:
            self._error = error
            if self.closed:
                self._let_go()
        self._under_way = None
        if not self._waiter.done():
            self._waiter.set_result(is_ended)

    def _hear_unasked(self) -> None:
        """Take what comes though nothing was asked: mostly the server's last word, after which nobody is lent it."""
        self._unwatch()
        if self.pgconn.transaction_status == TransactionStatus.ACTIVE:
            return  # rows, which are taken when somebody wants them
        with suppress(errors.OperationalError):
            # The word first, and then that there is nothing after it.
            self.pgconn.consume_input()
            self.pgconn.consume_input()
            while (notice := self.pgconn.notifies()) is not None:
                if self.pgconn.notify_handler is not None:
                    self.pgconn.notify_handler(notice)
        if self.closed:
            self._let_go()
        elif self._name is not None:
            self._watch()

    @property
    def is_lost(self) -> bool:
        """Whether the server has ended it, as far as anybody here can know without asking."""
        if not self._is_watched and self.pgconn.status == ConnStatus.OK:
            self._hear_unasked()  # it was the driver's for a while, and nobody has listened since
        return self.pgconn.status == ConnStatus.BAD

    async def close(self) -> None:
        """Close the connection."""
        await super().close()
        self._told_of_the_end()

    def cut(self) -> None:
        """Close the connection at once, whatever is under way: the server may be one that no longer answers."""
        self.pgconn.finish()
        self._told_of_the_end()

    def _told_of_the_end(self) -> None:
        if self.closed:
            if self._under_way is not None:
                self._heard()  # who waits is told that nothing will come
            self._let_go()

    def _watch(self) -> None:
        if self._name is None:
            self._loop = asyncio.get_running_loop()
            self._name = os.dup(self.pgconn.socket)
            self._forget = finalize(self, os.close, self._name)
        self._loop.add_reader(self._name, self._heard)
        self._is_watched = True

    def _unwatch(self) -> None:
        if self._is_watched and self._name is not None:
            self._loop.remove_reader(self._name)
            self._is_watched = False

    def _let_go(self) -> None:
        if self._name is not None:
            self._unwatch()
            self._forget()
            self._name = None

    async def _end(self, gen: PQGen[Any]) -> None:
        """End a statement whose caller was cancelled, so that the connection can be used again."""
        if self.pgconn.transaction_status != TransactionStatus.ACTIVE:
            return
        self._unwatch()
        until, pause = self._loop.time() + _CANCEL_SECONDS, _AGAIN_SECONDS
        with suppress(errors.Error, OSError):
            while self.pgconn.transaction_status == TransactionStatus.ACTIVE:
                left = until - self._loop.time()
                if left <= 0:
                    break
                await self.cancel_safe(timeout=left)
                # The server forgets what it is told before it has begun with the statement: then it is told again.
                with suppress(errors._WaitTimeout):
                    await super().wait(self._resumed(gen), timeout=min(left, pause))
                pause *= 2
        if self.pgconn.transaction_status == TransactionStatus.ACTIVE:
            self.pgconn.finish()

    def _resumed(self, gen: PQGen[_Answer]) -> PQGen[_Answer]:
        """A generator that has begun, from where it waits."""
        try:
            while True:
                ready = yield self._wanted
                # The driver's own wait begins anew when its caller is cancelled, and then it has nothing to say.
                if ready is not None:
                    self._wanted = gen.send(ready)
        except StopIteration as end:
            answer: _Answer = end.value
            return answer
