"""Model-based test of the log.

A state machine pushes, pops, acks, seeks, rolls, redrives and repartitions at random, through two logs on one database
(a third one only reads), and compares the results with a model. PENSTOCK_TEST_MODEL_EXAMPLES sets the number of
examples. PENSTOCK_TEST_MODEL_SHRINK=1 minimizes a failing example, which takes minutes.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections import Counter
from collections.abc import Coroutine
from contextlib import AsyncExitStack
from copy import deepcopy
from datetime import datetime, timedelta
from functools import partial
from itertools import count, groupby
from typing import Any, TypeVar

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from penstock.core.clock import Clock
from penstock.core.errors import TransactionRefused
from penstock.log.dead_letters.dead_letter import DeadLetterFilter
from penstock.log.event import Event
from penstock.log.log import Log
from penstock.log.read.ack import EventStatus
from penstock.log.read.pop_request import PopRequest
from penstock.log.write.encode.batch import Batch
from tests.log.logs import ask, opened, roll
from tests.log.model import LEASE, RETRY_DELAY, Model, Outcome, PartitionModel, Status

EXAMPLES = int(os.environ.get("PENSTOCK_TEST_MODEL_EXAMPLES", "30"))
SHRINK = os.environ.get("PENSTOCK_TEST_MODEL_SHRINK") == "1"
PHASES = [Phase.explicit, Phase.reuse, Phase.generate, *([Phase.shrink] if SHRINK else [])]
STEPS = 40

KEYS = ("ada", "bob", "cyd")
GROUPS = ("workers", "audit")
HASHED = (1, 3)

_names = count()
_T = TypeVar("_T")

keys = st.sampled_from(KEYS)
groups = st.sampled_from(GROUPS)
logs = st.integers(0, 1)
ids = st.one_of(st.none(), st.sampled_from(["a", "b", "c"]))
statuses: st.SearchStrategy[Status] = st.sampled_from(["completed", "completed", "failed", "retry", "dead_letter"])
partitionings = st.one_of(st.none(), st.sampled_from(HASHED))

ERRORS: dict[Outcome, str] = {"committed": "committed", "late": "late", "held back": "held back"}


class World:
    """Two logs on one database and one that only reads, with a clock and an event loop, for all examples."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._runner = asyncio.Runner()
        self._stack = AsyncExitStack()
        self.clock = Clock()
        self.logs: list[Log] = []
        for _ in range(3):
            self.logs.append(self.run(self._stack.enter_async_context(opened(url, clock=self.clock))))
        self.observer = self.logs[2]

    def run(self, what: Coroutine[Any, Any, _T]) -> _T:
        return self._runner.run(what)

    def now(self) -> datetime:
        now: datetime = ask(self._url, "SELECT clock_timestamp()")
        return now + self.clock.skew

    def close(self) -> None:
        self.run(self._stack.aclose())
        self._runner.close()


class LogMachine(RuleBasedStateMachine):
    """The operations on a queue."""

    def __init__(self, world: World) -> None:
        super().__init__()
        self.world = world
        self.run = world.run
        self.name = f"queue-{next(_names)}"
        self.numbers = count()
        self.deliveries: list[list[Event]] = []
        self.places: dict[int, tuple[int, str]] = {}

    @initialize(
        partitions=partitionings,
        retry_limit=st.integers(0, 2),
        delay=st.sampled_from([0, 0, 350]),
        window=st.sampled_from([0, 450]),
        max_redrives=st.integers(1, 2),
    )
    def configure(self, partitions: int | None, retry_limit: int, delay: int, window: int, max_redrives: int) -> None:
        self.world.clock.skew = timedelta(0)
        options = {
            "lease_seconds": LEASE,
            "retry_delay_ms": RETRY_DELAY * 1000,
            "retry_limit": retry_limit,
            "delay_seconds": delay,
            "dedup_window_seconds": window,
            "max_redrives": max_redrives,
        }
        queue = self.run(
            self.world.logs[0].configure(
                self.name, options, partitioning="key" if partitions is None else "hash", partitions=partitions
            )
        )
        self.model = Model(queue.partition_for_key, retry_limit, delay, window, max_redrives)
        self._create_partitions(partitions)
        self.began = self.world.now()

    def _create_partitions(self, partitions: int | None) -> None:
        for i in range(partitions or 0):
            self.model.partition(str(i))

    # Producers

    @rule(log=logs, asked=st.lists(st.tuples(keys, ids), min_size=1, max_size=5), as_text=st.booleans())
    def push(self, log: int, asked: list[tuple[str, str | None]], as_text: bool) -> None:
        batch, events = self._batch(asked, as_text)
        (result,) = self.run(self.world.logs[log].push([batch]))
        self.model.push(events, [(pushed.partition, pushed.offset, pushed.duplicate) for pushed in result])

    def _batch(
        self, asked: list[tuple[str, str | None]], as_text: bool = False
    ) -> tuple[Batch, list[tuple[int, str, str | None]]]:
        events = [(next(self.numbers), key, id) for key, id in asked]
        datas = [{"n": n, "key": key, "id": id} for n, key, id in events]
        if as_text:
            return Batch(self.name, "\n".join(map(json.dumps, datas)).encode(), key_field="key", id_field="id"), events
        rows = [
            {"data": data, "key": key} if id is None else {"data": data, "key": key, "id": id}
            for data, (_, key, id) in zip(datas, events, strict=True)
        ]
        return Batch(self.name, rows), events

    # Consumers

    @rule(
        log=logs,
        group=groups,
        batch=st.integers(1, 8),
        partitions=st.integers(1, 4),
        only=st.one_of(st.none(), st.none(), keys),
        auto_ack=st.sampled_from([False, False, False, True]),
        from_end=st.booleans(),
    )
    def pop(
        self, log: int, group: str, batch: int, partitions: int, only: str | None, auto_ack: bool, from_end: bool
    ) -> None:
        if group not in self.model.groups:
            self.model.subscribe(group, from_end)
        partition = None if only is None else self.model.place(only)
        request = PopRequest(
            self.name,
            group,
            batch=batch,
            partitions=partitions,
            partition=partition,
            auto_ack=auto_ack,
            subscribe_from="end" if from_end else "beginning",
        )
        events = self.run(self.world.logs[log].pop(request))
        assert len(events) <= batch
        self._check_delivery(group, events, partition)
        assert len({event.partition_id for event in events}) <= partitions
        if auto_ack:
            for event in events:
                self._ack_model(self.model, [(event, "completed")])
        elif events:
            self.deliveries.append(events)

    def _check_delivery(self, group: str, events: list[Event], partition: str | None) -> None:
        model = self.model
        due = {
            where: model.deliverable(group, key_partition)
            for where, key_partition in model.partitions.items()
            if partition in (None, key_partition.name)
        }
        if not events:
            assert not any(due.values()), "events were due, but none were delivered"
        for _, run in groupby(events, key=lambda event: event.partition_id):
            some = list(run)
            key_partition = self._partition(some[0])
            offsets = due.pop((key_partition.epoch, key_partition.name))[: len(some)]
            assert [event.offset for event in some] == offsets
            for event in some:
                stored = key_partition.events[event.offset]
                assert (event.data["n"], event.key) == (stored.data, stored.key)
                assert stored.letter is not None or event.given_id == stored.id
                assert event.attempts == model.position(group, key_partition).failures[event.offset]
            model.delivered(group, key_partition, offsets, some[0].lease_id)

    def _partition(self, event: Event) -> PartitionModel:
        # A later epoch may reuse the name of a partition, but not its id.
        if event.partition_id not in self.places:
            positions = self.run(self.world.observer.group_positions(self.name, event.group or ""))
            self.places |= {each.partition_id: (each.epoch, each.partition) for each in positions}
        return self.model.partitions[self.places[event.partition_id]]

    @precondition(lambda self: self.deliveries)
    @rule(log=logs, data=st.data(), status=statuses)
    def ack_alike(self, log: int, data: st.DataObject, status: Status) -> None:
        events = self._choose(data)
        expected = self._ack_model(self.model, [(event, status) for event in events])
        results = self.run(self.world.logs[log].ack(events, status, error="no"))
        self._check_outcomes(results, expected, all_alike=True)

    @precondition(lambda self: self.deliveries)
    @rule(log=logs, data=st.data())
    def ack_each(self, log: int, data: st.DataObject) -> None:
        events = self._choose(data)
        said = [(event, data.draw(statuses)) for event in events]
        expected = self._ack_model(self.model, said)
        results = self.run(self.world.logs[log].ack_each([EventStatus(event, status, "no") for event, status in said]))
        self._check_outcomes(results, expected)

    @precondition(lambda self: self.deliveries)
    @rule(log=logs, data=st.data(), asked=st.lists(st.tuples(keys, ids), max_size=3))
    def transact(self, log: int, data: st.DataObject, asked: list[tuple[str, str | None]]) -> None:
        said = [(event, data.draw(statuses)) for event in self._choose(data)]
        attempt = deepcopy(self.model)
        outcomes = self._ack_model(attempt, said)
        batch, events = self._batch(asked)
        acks = [EventStatus(event, status, "no") for event, status in said]
        if set(outcomes) <= {"taken", "dead"}:
            done = self.run(self.world.logs[log].transact(acks, [batch]))
            attempt.push(events, [(pushed.partition, pushed.offset, pushed.duplicate) for pushed in done.pushes[0]])
            self.model = attempt
        else:
            with pytest.raises(TransactionRefused):
                self.run(self.world.logs[log].transact(acks, [batch]))

    def _choose(self, data: st.DataObject) -> list[Event]:
        """Return some events of one delivery, mostly a late one, in any order."""
        events = data.draw(st.sampled_from(self.deliveries[-3:]))
        return data.draw(st.permutations(data.draw(st.lists(st.sampled_from(events), min_size=1, unique_by=id))))

    def _ack_model(self, model: Model, said: list[tuple[Event, Status]]) -> list[Outcome]:
        by_partition: dict[int, list[tuple[Event, Status]]] = {}
        for event, status in said:
            by_partition.setdefault(event.partition_id, []).append((event, status))
        outcomes: dict[tuple[int, int], Outcome] = {}
        for partition_id, some in by_partition.items():
            event = some[0][0]
            key_partition, group = self._partition(event), event.group
            assert group is not None
            key_partition = model.partitions[key_partition.epoch, key_partition.name]
            of_partition = model.ack(group, key_partition, event.lease_id, [(e.offset, status) for e, status in some])
            outcomes.update({(partition_id, offset): outcome for offset, outcome in of_partition.items()})
        return [outcomes[event.partition_id, event.offset] for event, _ in said]

    def _check_outcomes(self, results: Any, expected: list[Outcome], *, all_alike: bool = False) -> None:
        for result, outcome in zip(results, expected, strict=True):
            assert result.success == (outcome in ("taken", "dead", "noop")), outcome
            assert result.dead_letter == (outcome == "dead")
            # An ack that completes several events does not report which were completed before.
            assert all_alike or result.noop == (outcome == "noop")
            assert ERRORS.get(outcome, "") in (result.error or "")

    @precondition(lambda self: self.deliveries)
    @rule(log=logs, data=st.data(), seconds=st.sampled_from([50, 450]))
    def extend(self, log: int, data: st.DataObject, seconds: int) -> None:
        events = data.draw(st.sampled_from(self.deliveries[-3:]))
        still = [
            self.model.extend(event.group or "", self._partition(event), event.lease_id, seconds)
            for event in {event.partition_id: event for event in events}.values()
        ]
        assert (self.run(self.world.logs[log].extend(events, seconds)) is not None) == any(still)

    # Operators

    @rule(
        log=logs,
        group=groups,
        place=st.sampled_from(["beginning", "end", "time", "offset"]),
        at=st.integers(0, 6),
        only=st.one_of(st.none(), keys),
    )
    def seek(self, log: int, group: str, place: str, at: int, only: str | None) -> None:
        partition = None if only is None else self.model.place(only)
        if place == "offset" and partition is None:
            partition = self.model.place(KEYS[0])
        if group not in self.model.groups or not any(
            key_partition.name == partition for key_partition in self.model.partitions.values()
        ):
            return
        moment = at * 100 - 50
        to = {
            "beginning": lambda key_partition: 0,
            "end": lambda key_partition: len(key_partition.events),
            "time": lambda key_partition: sum(event.at < moment for event in key_partition.events),
            "offset": lambda key_partition: at,
        }[place]
        moved = self.model.seek(group, to, partition)
        where: Any = {"time": self.began + timedelta(seconds=moment), "offset": at}.get(place, place)
        # Refused pushes may have created further, empty partitions.
        assert self.run(self.world.logs[log].seek(self.name, group, where, partition=partition)) >= moved

    @rule(log=logs, group=st.one_of(st.none(), groups), limit=st.integers(1, 3))
    def redrive(self, log: int, group: str | None, limit: int) -> None:
        expected = self.model.redrive(group, limit)
        done = self.run(self.world.logs[log].redrive(DeadLetterFilter(queue=self.name, group=group), limit=limit))
        assert (done.replayed, done.failed) == expected

    @rule(log=logs)
    def roll(self, log: int) -> None:
        self.run(roll(self.world.logs[log], self.name))

    @rule(log=logs)
    def upkeep(self, log: int) -> None:
        self.run(self.world.logs[log].upkeep())

    @rule(log=logs, partitions=partitionings)
    def repartition(self, log: int, partitions: int | None) -> None:
        before = self.run(self.world.logs[log].catalog.refresh(self.name))
        kind = "key" if partitions is None else "hash"
        queue = self.run(self.world.logs[log].repartition(self.name, kind, partitions))
        if before.partition_count != partitions:
            self.model.epoch += 1
            self.model.place = queue.partition_for_key
            self._create_partitions(partitions)

    @rule(seconds=st.sampled_from([100, 200, 300, 500]))
    def pass_time(self, seconds: int) -> None:
        self.world.clock.advance(seconds)
        self.model.now += seconds

    # Invariants

    @invariant()
    def nothing_is_lost_or_made_up(self) -> None:
        info = self.run(self.world.observer.describe(self.name))
        assert info.size.events == info.size.appended == self.model.appended()
        assert {lag.group for lag in info.groups} == set(self.model.groups)
        for lag in info.groups:
            least, most = self.model.lag(lag.group)
            assert least <= lag.lag <= most

    @invariant()
    def dead_letters_are_those_of_the_model(self) -> None:
        letters = self.run(self.world.observer.dead_letters(DeadLetterFilter(queue=self.name), limit=1000))
        found = Counter((x.group, x.data["n"], x.key or "", x.redrives, len(x.history) + 1) for x in letters)
        assert found == self.model.waiting_letters()

    def teardown(self) -> None:
        if hasattr(self, "model"):
            self._drain()
            self.run(self.world.logs[0].delete_queue(self.name))

    def _drain(self) -> None:
        """Check that all unread events are delivered once every lease, retry and delay has ended."""
        self.pass_time(2000)
        for group in self.model.groups:
            while any(self.model.unread(group, key_partition) for key_partition in self.model.partitions.values()):
                events = self.run(self.world.logs[0].pop(PopRequest(self.name, group, batch=100, partitions=100)))
                assert events, "events are left that are never delivered"
                self._check_delivery(group, events, None)
                expected = self._ack_model(self.model, [(event, "completed") for event in events])
                assert set(expected) == {"taken"}
                assert all(self.run(self.world.logs[0].ack(events)))
            assert self.run(self.world.logs[0].pop(PopRequest(self.name, group, batch=100, partitions=100))) == []
        lags = self.run(self.world.observer.describe(self.name)).groups
        assert [lag.lag for lag in lags] == [0] * len(lags)


@pytest.mark.slow
@pytest.mark.timeout(120 + 10 * EXAMPLES + 600 * SHRINK)
def test_the_log_agrees_with_the_model(database_url_any: str) -> None:
    world = World(database_url_any)
    try:
        run_state_machine_as_test(
            partial(LogMachine, world),  # type: ignore[arg-type]  # it takes what makes a machine, too
            settings=settings(
                max_examples=EXAMPLES,
                stateful_step_count=STEPS,
                deadline=None,
                print_blob=True,
                report_multiple_bugs=False,
                phases=PHASES,
                suppress_health_check=list(HealthCheck),
            ),
        )
    finally:
        world.close()
