from __future__ import annotations

import inspect
import signal
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psycopg
import pytest

from penstock import ConsumeResult, Event, PenstockError, SyncPenstock, TransactionRefused
from penstock.client import _sync, buffer, dead_letters, penstock, queue, transaction
from tests.client.conditions import TIMEOUT_SECONDS, numbered_events, sequence_numbers
from tests.conditions import eventually

ROOT = Path(__file__).parents[2]


def test_the_generated_code_is_up_to_date() -> None:
    command = [sys.executable, str(ROOT / "scripts" / "generate_sync.py"), "--check"]

    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False)

    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize(
    ("asynchronous", "synchronous"),
    [
        (penstock.Penstock, _sync.SyncPenstock),
        (queue.QueueHandle, _sync.SyncQueueHandle),
        (buffer.Buffer, _sync.SyncBuffer),
        (buffer.Receipt, _sync.SyncReceipt),
        (dead_letters.DeadLetterHandle, _sync.SyncDeadLetterHandle),
        (transaction.Transaction, _sync.SyncTransaction),
        (transaction.TransactionQueue, _sync.SyncTransactionQueue),
    ],
)
def test_the_synchronous_class_has_the_same_methods(asynchronous: type[Any], synchronous: type[Any]) -> None:
    for name, method in inspect.getmembers(asynchronous, inspect.isfunction):
        if name.startswith("_"):
            continue
        sync_method = getattr(synchronous, name)
        assert list(inspect.signature(sync_method).parameters) == list(inspect.signature(method).parameters)
        assert not inspect.iscoroutinefunction(sync_method)
        assert "await " not in (sync_method.__doc__ or "")


def test_push_pop_and_ack(sync_q: SyncPenstock) -> None:
    sync_q.queue("jobs").config(lease_time=2).create()
    sync_q.queue("jobs").partition("a").push(numbered_events(3))

    events = sync_q.queue("jobs").group("g").batch(10).wait(True).timeout_millis(2000).pop()

    assert sequence_numbers(events) == [0, 1, 2]
    assert all(sync_q.ack(events, True, {"group": "g"}))
    assert sync_q.queue("jobs").group("g").lag() == 0
    assert sync_q.queue("jobs").dlq().list() == []


def test_transactions(sync_q: SyncPenstock) -> None:
    for name in ("orders", "shipments"):
        sync_q.queue(name).create()
    sync_q.queue("orders").push(numbered_events(2))
    events = sync_q.queue("orders").batch(2).pop()

    with sync_q.transaction() as tx:
        tx.ack(events)
        tx.queue("shipments").key("berlin").push({"data": 1})

    assert tx.result is not None
    assert tx.result.acked == 2
    with pytest.raises(TransactionRefused):
        sync_q.transaction().ack(events).queue("shipments").push({"data": 2}).commit()


@pytest.mark.slow
def test_threads_share_one_client_and_its_commits(sync_q: SyncPenstock) -> None:
    sync_q.queue("jobs").create("hash", 4)

    def produce(worker: int) -> int:
        return sum(sync_q.queue("jobs").push({"data": [worker, n]}).accepted for n in range(25))

    with ThreadPoolExecutor(8) as threads:
        assert sum(threads.map(produce, range(8))) == 200

    events = sync_q.queue("jobs").batch(1000).partitions(4).pop()
    assert sorted(event.data for event in events) == [[worker, n] for worker in range(8) for n in range(25)]
    # Concurrent pushes share a commit.
    assert len({event.appended_at for event in events}) < 200


def test_handlers_run_in_threads_and_can_use_the_client(sync_q: SyncPenstock) -> None:
    for name in ("jobs", "done"):
        sync_q.queue(name).create()
    sync_q.queue("jobs").push([{"data": n, "key": str(n % 4)} for n in range(20)])

    def handler(event: Event) -> None:
        sync_q.queue("done").push({"data": event.data})

    consumed = sync_q.queue("jobs").batch(3).each().consume(handler, concurrency=4, limit=20)

    assert consumed == ConsumeResult(completed=20)
    assert sorted(event.data for event in sync_q.queue("done").batch(100).pop()) == list(range(20))


def test_a_consumer_is_stopped_from_another_thread(sync_q: SyncPenstock) -> None:
    sync_q.queue("jobs").create()
    stop = threading.Event()
    seen: list[Event] = []
    with ThreadPoolExecutor(1) as threads:
        consuming = threads.submit(sync_q.queue("jobs").each().consume, seen.append, stop=stop)
        sync_q.queue("jobs").push(numbered_events(1))
        eventually(lambda: seen)
        stop.set()

        assert consuming.result(TIMEOUT_SECONDS) == ConsumeResult(completed=1)


def test_a_call_on_the_own_event_loop_is_refused(sync_q: SyncPenstock) -> None:
    sync_q.queue("jobs").create()
    sync_q.queue("jobs").push(numbered_events(1))
    refusals: list[str] = []

    async def handler(event: Event) -> None:
        try:
            sync_q.queues()
        except PenstockError as error:
            refusals.append(str(error))

    sync_q.queue("jobs").each().consume(handler, limit=1)

    assert "give consume() a plain function" in refusals[0]


def test_system_exit_of_a_handler_does_not_end_the_event_loop(sync_q: SyncPenstock) -> None:
    sync_q.queue("jobs").create()
    sync_q.queue("jobs").push(numbered_events(1))

    with pytest.raises(SystemExit):
        sync_q.queue("jobs").consume(lambda events: sys.exit(3))

    assert sequence_numbers(sync_q.queue("jobs").pop()) == [0]


def client_threads() -> list[threading.Thread]:
    """The threads of open clients, also those that other tests share."""
    return [thread for thread in threading.enumerate() if thread.name == "penstock"]


def test_close_ends_the_thread_and_waiting_calls(database_url: str) -> None:
    before = client_threads()
    q = SyncPenstock(database_url).open()
    assert len(client_threads()) == len(before) + 1
    q.queue("jobs").create()
    with ThreadPoolExecutor(1) as threads:
        popping = threads.submit(q.queue("jobs").group("g").wait().pop)
        eventually(lambda: q.groups())
        q.close()

        with pytest.raises(PenstockError, match="closed while"):
            popping.result(TIMEOUT_SECONDS)
    assert client_threads() == before


def test_a_failed_open_leaves_no_thread() -> None:
    before = client_threads()
    with pytest.raises(PenstockError, match="cannot be reached"):
        SyncPenstock("host=127.0.0.1 port=1 connect_timeout=1").open()

    assert client_threads() == before


INTERRUPTED = """
import sys
from penstock import SyncPenstock

with SyncPenstock(sys.argv[1]) as q:
    q.queue("jobs").create()
    print("waiting", flush=True)
    try:
        {call}
    except KeyboardInterrupt:
        print("interrupted", flush=True)
    q.queue("jobs").push({{"data": 1}})
    print(len(q.queue("jobs").group("g").pop()), flush=True)
"""


@pytest.mark.parametrize(
    "call", ['q.queue("jobs").group("g").wait().pop()', 'q.queue("jobs").group("g").consume(print)']
)
def test_an_interrupt_ends_a_waiting_call(database_url: str, call: str) -> None:
    command = [sys.executable, "-c", INTERRUPTED.format(call=call), database_url]
    with (
        SyncPenstock(database_url) as q,
        subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process,
    ):
        assert process.stdout is not None
        assert process.stdout.readline() == "waiting\n"
        eventually(lambda: q.groups())
        process.send_signal(signal.SIGINT)
        said, _ = process.communicate(timeout=TIMEOUT_SECONDS)

    assert said.splitlines() == ["interrupted", "1"]
    assert process.returncode == 0


FORKED = """
import os, sys
from penstock import PenstockError, SyncPenstock

with SyncPenstock(sys.argv[1]) as q:
    q.queues()
    child = os.fork()
    if child == 0:
        try:
            q.queues()
        except PenstockError as error:
            print(error, flush=True)
        q.close()
        os._exit(0)
    os.waitpid(child, 0)
    print(q.queues(), flush=True)
"""


def test_a_client_is_refused_in_a_forked_child_and_works_in_the_parent(database_url: str) -> None:
    said = subprocess.check_output([sys.executable, "-c", FORKED, database_url], text=True, timeout=TIMEOUT_SECONDS)

    assert "open one client in each process, after forking" in said
    assert said.splitlines()[-1] == "[]"


@pytest.mark.parametrize("url", ["database"], indirect=True)
def test_a_transaction_joins_a_user_transaction(sync_q: SyncPenstock, database_url: str) -> None:
    for name in ("orders", "shipments"):
        sync_q.queue(name).create()
    sync_q.queue("orders").push(numbered_events(3))
    events = sync_q.queue("orders").batch(3).pop()
    with psycopg.connect(database_url) as conn:
        conn.execute("CREATE TABLE invoices (number integer)")
        with sync_q.transaction(conn) as tx:
            tx.ack(events)
            tx.queue("shipments").push({"data": {"seq": 7}, "id": "seven"})
        with pytest.raises(TransactionRefused):
            sync_q.transaction(conn).ack(events).commit()
        assert sync_q.queue("shipments").pop() == []
        conn.execute("INSERT INTO invoices VALUES (1)")

    assert sequence_numbers(sync_q.queue("shipments").pop()) == [7]
    assert sync_q.queue("orders").lag() == 0
    with psycopg.connect(database_url) as conn:
        assert conn.execute("SELECT number FROM invoices").fetchall() == [(1,)]
