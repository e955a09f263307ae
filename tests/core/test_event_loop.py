from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from concurrent.futures import CancelledError
from contextvars import ContextVar

import pytest

from penstock.core.event_loop import EventLoopThread
from tests.python_process import run_python

_request: ContextVar[str] = ContextVar("_request", default="none")


@pytest.fixture
def loop() -> Iterator[EventLoopThread]:
    thread = EventLoopThread("test loop")
    yield thread
    thread.close()


async def _wait_for_ever(started: threading.Event, ended: threading.Event) -> None:
    try:
        started.set()
        await asyncio.Event().wait()
    finally:
        await asyncio.sleep(0.01)  # clean-up that awaits is not cancelled a second time
        ended.set()


def test_run_returns_the_result_of_a_coroutine_on_the_named_daemon_thread(loop: EventLoopThread) -> None:
    async def get_thread() -> threading.Thread:
        assert loop.is_current
        return threading.current_thread()

    thread = loop.run(get_thread())
    assert (thread.name, thread.daemon) == ("test loop", True)
    assert not loop.is_current


def test_run_raises_the_error_of_the_coroutine_and_the_loop_goes_on(loop: EventLoopThread) -> None:
    async def fail(error: BaseException) -> None:
        raise error

    with pytest.raises(ValueError, match="bad"):
        loop.run(fail(ValueError("bad")))
    with pytest.raises(SystemExit):
        loop.run(fail(SystemExit(3)))
    assert loop.run(asyncio.sleep(0, "still here")) == "still here"


def test_coroutines_see_the_context_variables_of_their_caller(loop: EventLoopThread) -> None:
    async def get() -> str:
        return _request.get()

    token = _request.set("mine")
    try:
        assert loop.run(get()) == "mine"
    finally:
        _request.reset(token)
    assert loop.run(get()) == "none"


def test_cancelling_the_future_cancels_the_coroutine(loop: EventLoopThread) -> None:
    started, ended = threading.Event(), threading.Event()
    future = loop.submit(_wait_for_ever(started, ended))
    assert started.wait(10)
    future.cancel()
    assert ended.wait(10)


def test_an_interrupt_cancels_the_coroutine_and_waits_for_its_end() -> None:
    output = run_python(
        """
        import asyncio, os, signal
        from penstock.core.event_loop import EventLoopThread

        async def interrupt_caller():
            try:
                os.kill(os.getpid(), signal.SIGINT)
                await asyncio.Event().wait()
            finally:
                await asyncio.sleep(0.01)
                print("cleaned up", flush=True)

        loop = EventLoopThread("test loop")
        try:
            loop.run(interrupt_caller())
        except KeyboardInterrupt:
            print("interrupted")
        loop.close()
        """
    )
    assert output.split("\n") == ["cleaned up", "interrupted", ""]


def test_close_cancels_what_runs_and_refuses_more(loop: EventLoopThread) -> None:
    started, ended = threading.Event(), threading.Event()
    future = loop.submit(_wait_for_ever(started, ended))
    assert started.wait(10)
    loop.close()
    loop.close()
    assert ended.is_set()
    with pytest.raises(CancelledError):
        future.result(0)
    with pytest.raises(RuntimeError, match="closed"):
        loop.run(asyncio.sleep(0))


def test_close_with_a_timeout_does_not_wait_for_a_thread_that_hangs(loop: EventLoopThread) -> None:
    started, release = threading.Event(), threading.Event()

    def hang() -> None:
        started.set()
        release.wait(10)

    loop.submit(asyncio.to_thread(hang))
    assert started.wait(10)
    try:
        assert not loop.close(timeout=0.05)
    finally:
        release.set()


def test_a_loop_that_was_not_closed_does_not_keep_the_process_from_exiting() -> None:
    output = run_python(
        """
        from penstock.core.event_loop import EventLoopThread

        loop = EventLoopThread("test loop")
        loop.itself = loop  # freed by the interpreter's last garbage collection
        print("done")
        """
    )
    assert output == "done\n"
