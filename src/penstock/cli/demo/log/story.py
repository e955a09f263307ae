"""The demonstration: what happens, in which order, and whether it added up."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.cli.demo.checks import Check
from penstock.cli.demo.log.reader import Failed, Reader, Worth, ignore
from penstock.cli.demo.log.shop import TENANTS, Ledger, Orders, cents_of, cents_of_any, make_orders, money

if TYPE_CHECKING:
    from penstock import Penstock
    from penstock.cli.demo.screen import Act, Screen

QUEUE = "orders"
BILLING = "billing"
ANALYTICS = "analytics"

_RETRIES = 2
_PUSH = 500
_PRODUCERS = 4
#: Longer than this no act takes, unless something is wrong.
_PATIENCE_SECONDS = 120.0


@dataclass(frozen=True, slots=True)
class LogDemoResult:
    """How the demonstration ended."""

    checks: Sequence[Check]
    seconds: float
    pushed_per_second: float
    data_dir: Path | None

    @property
    def succeeded(self) -> bool:
        """Whether everything added up."""
        return all(check.holds for check in self.checks)


async def play(screen: Screen, *, events: int, speed: float, keep: bool) -> LogDemoResult:
    """Play it in a directory of its own, which is removed at the end unless it is to be kept."""
    started = time.monotonic()
    directory = Path(tempfile.mkdtemp(prefix="penstock-demo-"))
    try:
        story = _Story(screen, directory, make_orders(events), speed)
        checks = await story.play()
    finally:
        if not keep:
            shutil.rmtree(directory, ignore_errors=True)
    return LogDemoResult(checks, time.monotonic() - started, story.pushed_per_second, directory if keep else None)


class _Story:
    def __init__(self, screen: Screen, directory: Path, orders: Orders, speed: float) -> None:
        self._screen = screen
        self._directory = directory
        self._orders = orders
        self._count = len(orders.events)
        self._speed = speed
        self.pushed_per_second = 0.0

    async def play(self) -> list[Check]:
        from penstock import Penstock

        q = Penstock(data_dir=self._directory)
        with self._screen.act("A PostgreSQL of its own", "comes with the package, in a directory of its own") as act:
            started = time.monotonic()
            await q.open()
            act.result = f"It runs after {time.monotonic() - started:.1f} s, in {self._directory}."
        try:
            return await self._acts(q)
        finally:
            await q.close()

    async def _acts(self, q: Penstock) -> list[Check]:
        async with asyncio.timeout(_PATIENCE_SECONDS + self._seconds(30)):
            await self._create(q)
            before = datetime.now(UTC)
            await self._push(q)
            billing, analytics = await self._read(q)
            await self._show_dead_letters(q)
            dead = await q.queue(QUEUE).dlq(BILLING).count()
            fixed = await self._redrive(q)
            replayed = await self._replay(q, before)
            return await self._check(q, dead, billing, fixed, analytics, replayed)

    def _seconds(self, seconds: float) -> float:
        return seconds / self._speed

    async def _pause(self, seconds: float = 1.0) -> None:
        await asyncio.sleep(self._seconds(seconds))

    async def _create(self, q: Penstock) -> None:
        with self._screen.act("A queue", "with a lane for each tenant: in order within, independent without") as act:
            await q.queue(QUEUE).config(retry_limit=_RETRIES, retry_delay_ms=300).create()
            await self._pause()
            act.result = f"Queue {QUEUE}: a failed order is tried {_RETRIES} times more, then set aside."

    async def _push(self, q: Penstock) -> None:
        with self._screen.act("A burst of orders", f"of {len(TENANTS)} tenants, durable when the push returns") as act:
            pushed = 0
            started = time.monotonic()

            async def push(tenants: Sequence[str]) -> None:
                # Each producer has tenants of its own, whose orders it pushes one batch after the other.
                nonlocal pushed
                own = [event for event in self._orders.events if event["key"] in tenants]
                for n in range(0, len(own), _PUSH):
                    result = await q.queue(QUEUE).push(own[n : n + _PUSH])
                    pushed += result.accepted
                    rate = pushed / (time.monotonic() - started)
                    self._screen.progress(act, "pushed", pushed, self._count, f"{rate:,.0f} events/s")

            await asyncio.gather(*(push(TENANTS[n::_PRODUCERS]) for n in range(_PRODUCERS)))
            self.pushed_per_second = pushed / (time.monotonic() - started)
            act.result = (
                f"{pushed:,} orders, {self.pushed_per_second:,.0f} a second, worth {money(self._orders.cents)}."
            )
        await self._pause()

    async def _read(self, q: Penstock) -> tuple[Ledger, Ledger]:
        why = f"at their own pace; {len(self._orders.poisoned)} orders are more than billing can take"
        with self._screen.act("Two groups read", why) as act:

            def failed(data: dict[str, Any], attempt: int, error: Exception, dead: bool) -> None:
                fate = "set aside as a dead letter; its tenant goes on" if dead else "it comes again"
                what = f"{data['order']} of {data['tenant']}: {type(error).__name__}"
                self._screen.say(act, f"{what}, attempt {attempt} of {_RETRIES + 1}: {fate}")

            billing = self._reader(q, BILLING, cents_of, 5.0, failed)
            analytics = self._reader(q, ANALYTICS, cents_of_any, 7.5)
            await self._until_read(q, act, {BILLING: billing, ANALYTICS: analytics})
            act.result = f"{BILLING} {money(billing.ledger.cents)}, {ANALYTICS} {money(analytics.ledger.cents)}."
        await self._pause()
        return billing.ledger, analytics.ledger

    async def _show_dead_letters(self, q: Penstock) -> None:
        letters = await q.queue(QUEUE).dlq(BILLING).list()
        rows = [
            (
                str(letter.id),
                letter.key or "",
                letter.data["order"],
                letter.data["amount"],
                str(letter.attempts),
                letter.error,
            )
            for letter in reversed(letters)
        ]
        columns = ("id", "tenant", "order", "amount", "attempts", "error")
        self._screen.table(f"Dead letters of {BILLING}: with what went wrong, and with a way back", columns, rows)
        await self._pause(2.5)

    async def _redrive(self, q: Penstock) -> Ledger:
        with self._screen.act("The bug is fixed", "and the dead letters are sent back, to billing alone") as act:
            outcome = await q.queue(QUEUE).dlq(BILLING).redrive()
            self._screen.say(act, f"{outcome.replayed} sent back, {outcome.failed} could not be.")
            await self._pause()
            fixed = self._reader(q, BILLING, cents_of_any, 1.0)
            await self._until_read(q, act, {BILLING: fixed})
            left = await q.queue(QUEUE).dlq(BILLING).count()
            act.result = f"{fixed.ledger.orders} orders more, {money(fixed.ledger.cents)}; {left} dead letters left."
        await self._pause()
        return fixed.ledger

    async def _replay(self, q: Penstock, before: datetime) -> Ledger:
        with self._screen.act(
            "A replay", f"{ANALYTICS} goes back to {before:%H:%M:%S} UTC and reads it all again"
        ) as act:
            moved = await q.queue(QUEUE).group(ANALYTICS).seek(before)
            self._screen.say(act, f"Moved in {moved} partitions; nobody else notices.")
            again = self._reader(q, ANALYTICS, cents_of_any, 3.0)
            await self._until_read(q, act, {ANALYTICS: again})
            act.result = f"The same {again.ledger.orders:,} orders, worth {money(again.ledger.cents)}."
        await self._pause()
        return again.ledger

    def _reader(self, q: Penstock, group: str, worth: Worth, seconds: float, failed: Failed = ignore) -> Reader:
        """A reader that takes about so many seconds for everything."""
        pace = self._count / self._seconds(seconds)
        return Reader(q, QUEUE, group, worth, pace=pace, batch=max(self._count // 100, 1), failed=failed)

    async def _until_read(self, q: Penstock, act: Act, readers: dict[str, Reader]) -> None:
        """Let them read, and show how far behind each is, until none is."""
        stop = asyncio.Event()
        async with asyncio.TaskGroup() as tasks:
            for reader in readers.values():
                tasks.create_task(reader.run(stop))
            behind = dict.fromkeys(readers, 1)
            while any(behind.values()):
                lags = {group.group: group.lag for group in await q.groups(QUEUE)}
                for name, reader in readers.items():
                    behind[name] = lags.get(name, self._count)
                    done = reader.ledger.orders
                    self._screen.progress(act, name, done, done + behind[name], f"lag {behind[name]:,}")
                await asyncio.sleep(0.1)
            stop.set()

    async def _check(
        self, q: Penstock, dead: int, billing: Ledger, fixed: Ledger, analytics: Ledger, replayed: Ledger
    ) -> list[Check]:
        info = await q.queue(QUEUE).describe()
        lag = sum(group.lag for group in info.groups)
        readings = (billing, fixed, analytics, replayed)
        number = "{:,}".format
        return [
            Check("orders billed", number(self._count), number(billing.orders + fixed.orders)),
            Check("amount billed", money(self._orders.cents), money(billing.cents + fixed.cents)),
            Check("orders analysed", number(self._count), number(analytics.orders)),
            Check("amount analysed", money(self._orders.cents), money(analytics.cents)),
            Check("amount replayed", money(self._orders.cents), money(replayed.cents)),
            Check("orders lost on the way", "0", number(self._count - replayed.orders)),
            Check("orders taken twice", "0", number(sum(ledger.twice for ledger in readings))),
            Check("orders out of order", "0", number(sum(ledger.out_of_order for ledger in readings))),
            Check("set aside, and sent back", number(len(self._orders.poisoned)), number(dead)),
            Check("dead letters left", "0", number(info.dead_letters)),
            Check("events left to read", "0", number(lag)),
        ]
