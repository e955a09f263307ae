"""``penstock demo log``: retries, dead letters and a replay on a queue of orders, without Spark."""

from __future__ import annotations

import asyncio
import random
import shutil
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from penstock import Event, Penstock
from penstock.cli.demo.demo_output import Check, Step, check_count, checks_document, print_checks, step
from penstock.cli.output import Output

_QUEUE, _BILLING, _ANALYTICS = "orders", "billing", "analytics"
_TENANTS = ("alder", "birch", "cedar", "hazel", "linden", "maple", "rowan", "willow")
_INVALID_ORDERS = 3
_RETRIES = 2
_BATCH_EVENTS = 500
_PRODUCERS = 4
#: The demo fails if it takes longer than this, apart from its pauses.
_TIMEOUT_SECONDS = 120.0
_PAUSE_SECONDS = 30.0


async def run_log_demo(out: Output, *, events: int, speed: float, keep: bool) -> bool:
    """Run the demo and print its result; return whether all checks hold."""
    # The reader prints the failures that the client would log as warnings.
    out.configure_logging("ERROR")
    started = time.monotonic()
    directory = Path(tempfile.mkdtemp(prefix="penstock-demo-"))
    try:
        with step(out, "A PostgreSQL of its own", "comes with the package, in a directory of its own") as current:
            q = await Penstock(data_dir=directory).open()
            current.result = f"It runs after {time.monotonic() - started:.1f} s, in {directory}."
        try:
            demo = _LogDemo(out, q, events, speed)
            async with asyncio.timeout(_TIMEOUT_SECONDS + _PAUSE_SECONDS / speed):
                checks = await demo.run()
        finally:
            await q.close()
    except TimeoutError:
        out.error("the demo took far longer than it should and was stopped")
        return False
    finally:
        if not keep:
            shutil.rmtree(directory, ignore_errors=True)
    succeeded = all(check.holds for check in checks)
    seconds = time.monotonic() - started
    kept = directory if keep else None
    if out.json:
        out.document(
            {
                "succeeded": succeeded,
                "seconds": round(seconds, 1),
                "pushed_per_second": round(demo.pushed_per_second),
                "data_dir": None if kept is None else str(kept),
                "checks": checks_document(checks),
            }
        )
        return succeeded
    print_checks(out, checks)
    if succeeded:
        out.note(f"All orders add up to the penny after {seconds:.0f} seconds: none lost, none twice.\n")
        _print_next_commands(out, kept)
    return succeeded


def _print_next_commands(out: Output, kept: Path | None) -> None:
    at = "" if kept is None else f" --data-dir {kept}"
    if kept is None:
        out.note("To keep the database and inspect it: penstock demo log --keep")
    else:
        out.note(f"The database is in {kept} until you delete that directory. Inspect it:")
        out.note(f"  penstock queue show {_QUEUE}{at}")
        out.note(f"  penstock group list{at}")
        out.note(f"  penstock group seek {_QUEUE} {_BILLING} --to beginning{at}")
    out.note("To start with a queue of your own:")
    out.note(f"  penstock queue create mine{at}")
    out.note(f"""  penstock queue push mine '{{"hello": "world"}}'{at}""")
    out.note(f"  penstock queue tail mine --follow{at}")


def _make_orders(count: int) -> tuple[list[dict[str, Any]], int]:
    """Return orders of all tenants and their total in cents. A few amounts have a decimal comma."""
    generator = random.Random(20)  # noqa: S311 - the same orders each time
    invalid = frozenset(generator.sample(range(count), _INVALID_ORDERS))
    sequence = dict.fromkeys(_TENANTS, 0)
    orders, total = [], 0
    for number in range(count):
        tenant, cents = generator.choice(_TENANTS), generator.randrange(199, 24_999)
        total += cents
        amount = f"{cents / 100:.2f}".replace(".", "," if number in invalid else ".")
        data = {"order": f"order-{number}", "tenant": tenant, "sequence": sequence[tenant], "amount": amount}
        orders.append({"data": data, "key": tenant, "id": data["order"]})
        sequence[tenant] += 1
    return orders, total


def _format_cents(cents: int) -> str:
    return f"{cents / 100:,.2f}"


def _parse_cents(amount: str) -> int:
    """Parse an amount, with the bug that the demo fixes: a decimal comma raises ValueError."""
    whole, _, rest = amount.partition(".")
    return int(whole) * 100 + int(rest)


def _parse_cents_fixed(amount: str) -> int:
    return _parse_cents(amount.replace(",", "."))


@dataclass(slots=True)
class _Reader:
    """Processes the orders of a group, at most ``rate`` a second, and counts them."""

    parse: Callable[[str], int]
    rate: float
    step: Step
    cents: int = 0
    orders: int = 0
    duplicates: int = 0
    out_of_order: int = 0
    _started: float = field(default_factory=time.monotonic)
    _seen: set[str] = field(default_factory=set)
    _next: dict[str, int] = field(default_factory=dict)

    async def handle(self, event: Event) -> None:
        order = event.data
        try:
            self.cents += self.parse(order["amount"])
        except ValueError as error:
            fate = "becomes a dead letter; its tenant continues" if event.attempts >= _RETRIES else "is retried"
            self.step.out.note(
                f"   {order['order']} of {order['tenant']}: {type(error).__name__}, attempt {event.attempts + 1} of "
                f"{_RETRIES + 1}: it {fate}"
            )
            raise
        self.orders += 1
        self.duplicates += order["order"] in self._seen
        self._seen.add(order["order"])
        self.out_of_order += order["sequence"] < self._next.get(order["tenant"], 0)
        self._next[order["tenant"]] = order["sequence"] + 1
        ahead = self._started + self.orders / self.rate - time.monotonic()
        if ahead > 0.05:
            await asyncio.sleep(ahead)


class _LogDemo:
    def __init__(self, out: Output, q: Penstock, count: int, speed: float) -> None:
        self._out = out
        self._q = q
        self._queue = q.queue(_QUEUE)
        self._orders, self._cents = _make_orders(count)
        self._count = count
        self._speed = speed
        self.pushed_per_second = 0.0

    async def run(self) -> list[Check]:
        await self._create()
        before = datetime.now(UTC)
        await self._push()
        billing, analytics = await self._read()
        dead = await self._print_dead_letters()
        fixed = await self._redrive()
        replayed = await self._replay(before)
        info = await self._queue.describe()
        total = _format_cents(self._cents)
        readers = (billing, fixed, analytics, replayed)
        return [
            check_count("orders billed", self._count, billing.orders + fixed.orders),
            Check("amount billed", total, _format_cents(billing.cents + fixed.cents)),
            check_count("orders analysed", self._count, analytics.orders),
            Check("amount analysed", total, _format_cents(analytics.cents)),
            check_count("orders replayed", self._count, replayed.orders),
            Check("amount replayed", total, _format_cents(replayed.cents)),
            check_count("orders read twice", 0, sum(reader.duplicates for reader in readers)),
            check_count("orders out of order", 0, sum(reader.out_of_order for reader in readers)),
            check_count("dead letters, redriven", _INVALID_ORDERS, dead),
            check_count("dead letters left", 0, info.dead_letters),
            check_count("events left to read", 0, sum(group.lag for group in info.groups)),
        ]

    async def _pause(self, seconds: float = 1.0) -> None:
        await asyncio.sleep(seconds / self._speed)

    async def _create(self) -> None:
        with step(self._out, "A queue", "with a partition per tenant: each in order, all independent") as current:
            await self._queue.config(retry_limit=_RETRIES, retry_delay_ms=300).create()
            await self._pause()
            current.result = f"Queue {_QUEUE}: a failed order is retried {_RETRIES} times, then a dead letter."

    async def _push(self) -> None:
        with step(
            self._out, "A burst of orders", f"of {len(_TENANTS)} tenants, durable when the push returns"
        ) as current:
            pushed = 0
            started = time.monotonic()

            async def push(tenants: Sequence[str]) -> None:
                # One producer pushes all orders of a tenant, so that they stay in order.
                nonlocal pushed
                own = [order for order in self._orders if order["key"] in tenants]
                for n in range(0, len(own), _BATCH_EVENTS):
                    result = await self._queue.push(own[n : n + _BATCH_EVENTS])
                    pushed += result.accepted
                    self.pushed_per_second = pushed / (time.monotonic() - started)
                    current.show(("pushed", f"{pushed:,}, {self.pushed_per_second:,.0f} a second"))

            await asyncio.gather(*(push(_TENANTS[n::_PRODUCERS]) for n in range(_PRODUCERS)))
            current.result = (
                f"{pushed:,} orders, {self.pushed_per_second:,.0f} a second, worth {_format_cents(self._cents)}."
            )
        await self._pause()

    async def _read(self) -> tuple[_Reader, _Reader]:
        with step(
            self._out, "Two groups read", f"at their own rates; billing fails on {_INVALID_ORDERS} orders"
        ) as current:
            billing = self._reader(current, _parse_cents, 5.0)
            analytics = self._reader(current, _parse_cents_fixed, 7.5)
            await self._consume(current, {_BILLING: billing, _ANALYTICS: analytics})
            current.result = (
                f"{_BILLING} {_format_cents(billing.cents)}, {_ANALYTICS} {_format_cents(analytics.cents)}."
            )
        await self._pause()
        return billing, analytics

    async def _print_dead_letters(self) -> int:
        letters = await self._queue.dlq(_BILLING).list()
        if not (self._out.json or self._out.quiet):
            rows = [
                (str(letter.id), letter.key or "", letter.data["order"], letter.data["amount"], letter.error)
                for letter in reversed(letters)
            ]
            columns = ("id", "tenant", "order", "amount", "error")
            self._out.table(columns, rows, title=f"Dead letters of {_BILLING}")
        await self._pause(2.5)
        return len(letters)

    async def _redrive(self) -> _Reader:
        with step(self._out, "The bug is fixed", "and the dead letters are redriven, to billing alone") as current:
            redriven = await self._queue.dlq(_BILLING).redrive()
            self._out.note(f"   {redriven.replayed} redriven, {redriven.failed} failed.")
            await self._pause()
            fixed = self._reader(current, _parse_cents_fixed, 1.0)
            await self._consume(current, {_BILLING: fixed})
            current.result = f"{fixed.orders} more orders, {_format_cents(fixed.cents)}."
        await self._pause()
        return fixed

    async def _replay(self, before: datetime) -> _Reader:
        with step(
            self._out, "A replay", f"{_ANALYTICS} seeks to {before:%H:%M:%S} UTC and reads everything again"
        ) as current:
            moved = await self._queue.group(_ANALYTICS).seek(before)
            self._out.note(f"   Moved in {moved} partitions. Other groups are not affected.")
            replayed = self._reader(current, _parse_cents_fixed, 3.0)
            await self._consume(current, {_ANALYTICS: replayed})
            current.result = f"The same {replayed.orders:,} orders, worth {_format_cents(replayed.cents)}."
        return replayed

    def _reader(self, current: Step, parse: Callable[[str], int], seconds: float) -> _Reader:
        """Return a reader that takes about this many seconds for all orders."""
        return _Reader(parse, self._count * self._speed / seconds, current)

    async def _consume(self, current: Step, readers: dict[str, _Reader]) -> None:
        """Run one consumer per group until no group has a lag."""
        stop = asyncio.Event()
        async with asyncio.TaskGroup() as tasks:
            for group, reader in readers.items():
                handle = self._queue.group(group).batch(max(self._count // 100, 1)).partitions(8).each()
                tasks.create_task(handle.consume(reader.handle, stop=stop))
            while not stop.is_set():
                await asyncio.sleep(0.1)
                lags = {group.group: group.lag for group in await self._q.groups(_QUEUE)}
                current.show(
                    *((name, f"{reader.orders:,} read, {lags.get(name, 0):,} left") for name, reader in readers.items())
                )
                if all(lags.get(name, 1) == 0 for name in readers):
                    stop.set()
