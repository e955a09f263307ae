"""What gates decide, held against ideal limiters: for any arrivals, costs, limits, crashes, take-overs, clock jumps."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import pytest

from penstock.engine.gates.allocate import Decision, Verdict, Waiting, decide
from penstock.engine.gates.fair_queue import Turns
from penstock.engine.gates.limits import meter
from penstock.engine.gates.meters import FINE, Limit, State
from penstock.stream.gates import NANO
from tests.engine.gates import limiter
from tests.engine.gates.limiter import Passed

SECOND = 1_000_000


@dataclass
class Lane:
    """Events that arrive, and those that have passed, as the database remembers them after each commit."""

    arrivals: list[int]
    costs: list[list[int]]
    limits: list[Limit]
    released: list[int] = field(default_factory=list)
    states: list[State | None] = field(default_factory=list)
    next_us: int | None = None

    def __post_init__(self) -> None:
        self.states = [None] * len(self.limits)

    def passed(self, gate: int) -> list[Passed]:
        return list(zip(self.released, self.costs[gate], strict=False))

    def cycle(self, now: int, *, crashes: bool = False) -> Verdict:
        """Decide, at a time that the clock says, and commit unless the driver is killed before."""
        first = len(self.released)
        there = sum(1 for at in self.arrivals if at <= now) - first
        meters = [meter(limit, state, now, 0) for limit, state in zip(self.limits, self.states, strict=True)]
        waiting = Waiting(1, max(0, there), [costs[first:] for costs in self.costs], meters)
        verdict = decide([waiting]).verdicts[1]
        if not crashes:
            stamp = max([now, *self.released[-1:]])
            self.released += [stamp] * verdict.passed
            if verdict.passed:
                self.states = [each.state() for each in meters]
            self.next_us = verdict.next_us
        return verdict

    def ideal(self, place: int) -> int:
        """When the event could have passed at the earliest, after those that did."""
        at = max([self.arrivals[place], *self.released[place - 1 : place]])
        for _ in self.limits:
            for gate, limit in enumerate(self.limits):
                passed, cost = self.passed(gate)[:place], self.costs[gate][place]
                if limit.kind == "token_bucket":
                    at = max(at, limiter.bucket_free_at(passed, limit.amount, limit.rate, cost, at))
                else:
                    at = max(at, limiter.window_free_at(passed, limit.amount, limit.window_us, cost, at))
        return at

    def keeps_its_limits(self) -> bool:
        for gate, limit in enumerate(self.limits):
            if limit.kind == "token_bucket":
                if not limiter.bucket_is_kept(self.passed(gate), limit.amount, limit.rate):
                    return False
            elif not limiter.window_is_kept(self.passed(gate), limit.amount, limit.window_us):
                return False
        return True


def some_limit(chance: random.Random) -> Limit:
    amount = chance.choice([1, 2, 5, 10, 40]) * NANO + chance.choice([0, 0, 1, NANO // 3])
    if chance.random() < 0.5:
        return Limit("token_bucket", amount, rate=chance.choice([NANO // 7, NANO, 3 * NANO, 17 * NANO + 1, 200 * NANO]))
    return Limit("sliding_window", amount, window_us=chance.choice([1, 50_000, SECOND, 5 * SECOND]))


def some_lane(chance: random.Random) -> Lane:
    limits = [some_limit(chance) for _ in range(chance.choice([1, 1, 2, 3]))]
    count = chance.randint(1, 30)
    arrivals, at = [], 0
    for _ in range(count):
        at += chance.choice([0, 0, 0, 1, 1000, SECOND // 3, 4 * SECOND])
        arrivals.append(at)
    costs = []
    for limit in limits:
        same = chance.random() < 0.4
        costs.append([min(NANO, limit.amount) if same else chance.randint(0, limit.amount) for _ in range(count)])
    return Lane(arrivals, costs, limits)


@pytest.mark.parametrize("seed", range(8))
def test_limits_are_kept_in_order_without_loss_and_no_later_than_two_cycles_after_the_ideal(seed: int) -> None:
    chance = random.Random(seed)
    for _ in range(40):
        lane = some_lane(chance)
        period, now, ticks = chance.choice([7_000, 100_000, 400_000]), 0, []
        while len(lane.released) < len(lane.arrivals):
            # Looked at when something may pass, as the engine does: each cycle takes its time, and some are lost.
            waits = (
                lane.next_us if lane.next_us is not None else min([at for at in lane.arrivals if at > now], default=now)
            )
            now = max(now + chance.randint(1, period), waits if len(lane.released) or lane.next_us else 0)
            crashes = chance.random() < 0.1
            before = len(lane.released)
            lane.cycle(now, crashes=crashes)
            if not crashes:
                ticks.append(now)
            for place in range(before, len(lane.released)):
                ideal = lane.ideal(place)
                slack = max([1 + limit.window_us // 1000 for limit in lane.limits])
                lost_or_early = [at for at in ticks if at >= ideal + slack]
                assert len(lost_or_early) <= 2, (seed, place)
            assert len(ticks) < 5_000
        assert lane.released == sorted(lane.released)
        assert lane.keeps_its_limits(), seed


@pytest.mark.parametrize("seed", range(6))
def test_a_clock_that_jumps_never_lets_more_through_than_the_limit(seed: int) -> None:
    chance = random.Random(1000 + seed)
    for _ in range(40):
        lane = some_lane(chance)
        lane.arrivals = [0] * len(lane.arrivals)
        now = 1
        for _ in range(200):
            now = max(1, now + chance.choice([1, 1000, 100_000, SECOND, 30 * SECOND, -SECOND, -20 * SECOND]))
            lane.cycle(now, crashes=chance.random() < 0.2)
        assert lane.released == sorted(lane.released)
        assert lane.keeps_its_limits(), seed


def test_the_time_that_is_told_is_the_first_at_which_the_event_passes() -> None:
    chance = random.Random(7)
    told = 0
    for _ in range(150):
        lane = some_lane(chance)
        lane.arrivals = [0] * len(lane.arrivals)
        verdict, now = lane.cycle(1), 1
        while verdict.next_us is not None:
            told += 1
            assert verdict.next_us > now
            assert lane.cycle(verdict.next_us - 1).passed == 0, "a microsecond before, it does not"
            now, before = verdict.next_us, len(lane.released)
            verdict = lane.cycle(now)
            assert len(lane.released) > before
        assert len(lane.released) == len(lane.arrivals)
    assert told > 200


def test_the_long_run_rate_of_a_bucket_is_exact_whatever_the_cycles() -> None:
    chance = random.Random(3)
    rate = 100 * NANO
    limit, count = Limit("token_bucket", 200 * NANO, rate=rate), 5_000
    lane = Lane([0] * count, [[NANO] * count], [limit])
    now = 0
    while len(lane.released) < count:
        now += chance.randint(1, 400_000)
        lane.cycle(now)
    ideal = (count - 200) * SECOND // 100
    assert ideal <= lane.released[-1] - lane.released[0] <= ideal + 800_000


def test_several_gates_charge_an_event_to_all_of_them_or_to_none() -> None:
    wide, narrow = Limit("token_bucket", 10 * NANO, rate=NANO), Limit("sliding_window", 3 * NANO, window_us=SECOND)
    lane = Lane([0] * 20, [[NANO] * 20, [NANO] * 20], [wide, narrow])
    assert lane.cycle(0).passed == 3
    bucket = meter(wide, lane.states[0], 0, 0)
    assert bucket.budget == 7 * NANO, "what the window denied was not taken from the bucket"


# Lanes that share


def served(weights: list[int], rounds: int, *, costs: list[int] | None = None, budget: int = 1) -> list[int]:
    """How much each lane got of a budget that never suffices, decision after decision."""
    limit = Limit("token_bucket", max(budget, *(costs or [1])) * NANO, rate=budget * NANO)
    state, turn, got, now = State(0), 0, [0] * len(weights), 0
    deficits = [0] * len(weights)
    for _ in range(rounds):
        now += SECOND
        shared = meter(limit, state, now, 0)
        lanes = [
            Waiting(lane + 1, 50, [(costs[lane] if costs else 1) * NANO], [None], weight, deficits[lane])
            for lane, weight in enumerate(weights)
        ]
        decision = decide(lanes, [shared], turn)
        turn, state = decision.turn, shared.state() or state
        for lane, waiting in enumerate(lanes):
            got[lane] += decision.verdicts[lane + 1].passed * (costs[lane] if costs else 1)
            deficits[lane] = waiting.deficit
    return got


def test_lanes_that_share_a_budget_are_served_in_turn() -> None:
    assert served([1, 1, 1, 1], 400) == [100, 100, 100, 100]


def test_a_lane_gets_as_much_as_its_weight() -> None:
    assert served([1, 2, 5], 800) == [100, 200, 500]


def test_lanes_share_what_they_cost_and_not_how_many_events_they_have() -> None:
    dear, cheap = served([1, 1], 1000, costs=[5, 1], budget=2)
    assert abs(dear - cheap) <= 10
    assert dear + cheap >= 1990


def test_lanes_that_need_little_wait_for_the_one_that_needs_much_when_it_is_its_turn() -> None:
    limit = Limit("token_bucket", 10 * NANO, rate=NANO)
    shared = meter(limit, State(0), 3 * SECOND, 0)
    lanes = [Waiting(1, 50, [NANO], [None]), Waiting(2, 1, [10 * NANO], [None]), Waiting(3, 50, [NANO], [None])]
    decision = decide(lanes, [shared], turn=2)
    assert (decision.awaited, decision.turn) == ((2,), 2)
    assert {verdict.next_us for verdict in decision.verdicts.values()} == {10 * SECOND}
    assert [verdict.passed for verdict in decision.verdicts.values()] == [0, 0, 0]
    then = decide(lanes, [meter(limit, State(0), 10 * SECOND, 0)], turn=2)
    assert then.verdicts[2].passed == 1


def test_what_is_kept_for_a_lane_holds_up_nobody_who_does_not_need_it() -> None:
    short = meter(Limit("token_bucket", 10 * NANO, rate=NANO), State(0), 3 * SECOND, 0)
    ample = meter(Limit("token_bucket", 10 * NANO, rate=NANO), None, 3 * SECOND, 0)
    lanes = [
        Waiting(1, 1, [10 * NANO, NANO], [None, None]),
        Waiting(2, 4, [0, NANO], [None, None]),
        Waiting(3, 4, [[0, 0, NANO, 0], 0], [None, None]),
    ]
    decision = decide(lanes, [short, ample])
    assert [verdict.passed for verdict in decision.verdicts.values()] == [0, 4, 2]
    assert decision.awaited == (1,)


def test_a_lane_whose_first_events_cost_nothing_is_decided_at_once() -> None:
    shared = meter(Limit("token_bucket", 10 * NANO, rate=NANO), None, 0, 0)
    assert decide([Waiting(1, 3, [[0, 5 * NANO, 5 * NANO]], [None])], [shared]).verdicts[1].passed == 3


@pytest.mark.parametrize(("tokens", "cheap"), [(3, True), (25, True), (40, True), (7, False)])
def test_lanes_are_served_in_turn_also_where_not_all_are_asked_at_once(tokens: int, cheap: bool) -> None:
    prices = [1 if cheap or lane % 7 else 5 for lane in range(30)]
    limit = Limit("token_bucket", 50 * NANO, rate=tokens * NANO)
    turns, due, state, turn, now = Turns(10), set(range(1, 31)), State(0), 0, 0
    got, deficits = dict.fromkeys(due, 0), dict.fromkeys(due, 0)
    for _ in range(3000):
        lot = turns.lot(due, got, now)
        if not lot:
            now, due = now + SECOND, set(got)
            lot = turns.lot(due, got, now)
        due = set()
        shared = meter(limit, state, now, 0)
        lanes = [Waiting(lane, 50, [prices[lane - 1] * NANO], [None], 1, deficits[lane]) for lane in lot]
        decision = decide(lanes, [shared], turn, once=turns.has_more)
        turn, state = decision.turn, shared.state() or state
        turns.go_on(decision, now)
        for waiting in lanes:
            verdict = decision.verdicts[waiting.lane]
            got[waiting.lane] += verdict.passed * prices[waiting.lane - 1]
            deficits[waiting.lane] = waiting.deficit
            if verdict.next_us is None:
                due.add(waiting.lane)
    assert now > 400 * SECOND
    assert sum(got.values()) >= now // SECOND * tokens - 50
    assert max(got.values()) - min(got.values()) <= 20


def test_lanes_that_need_what_is_kept_for_another_are_not_asked_meanwhile() -> None:
    limit = Limit("token_bucket", 5 * NANO, rate=NANO)
    lanes, turns, state, turn, now = range(1, 201), Turns(10), State(0), 0, 0
    dues, got, asked = dict.fromkeys(lanes, 0), dict.fromkeys(lanes, 0), 0
    while now < 400 * SECOND:
        due = {lane for lane, at in dues.items() if at <= now}
        for lane in due:
            del dues[lane]
        lot = turns.lot(due, got, now)
        if not lot:
            now = min([*dues.values(), *([] if turns.next_us is None else [turns.next_us])])
            continue
        asked += len(lot)
        shared = meter(limit, state, now, 0)
        decision = decide([Waiting(lane, 50, [NANO], [None]) for lane in lot], [shared], turn, once=turns.has_more)
        turn, state = decision.turn, shared.state() or state
        turns.go_on(decision, now)
        for lane, verdict in decision.verdicts.items():
            got[lane] += verdict.passed
            if not verdict.behind:
                dues[lane] = now + 1
    assert sum(got.values()) >= 399
    assert max(got.values()) - min(got.values()) <= 1
    assert asked < 12 * 400 + 400, "a lot for each token, and each lane once to know what it needs"


class Sharing:
    """Lanes that share a gate, asked as a keeper asks them, one event of which costs so much."""

    def __init__(self, prices: dict[int, int], tokens: int, most: int = 10) -> None:
        self.prices = prices
        self.state = State(0, level=tokens * NANO * FINE)
        self.limit = Limit("token_bucket", 100 * NANO, rate=NANO)
        self.turns, self.turn = Turns(most), 0
        self.paused: set[int] = set()
        self.passed = dict.fromkeys(prices, 0)

    def ask(self, due: set[int], now_us: int) -> list[int]:
        lot = self.turns.lot(due, self.prices, now_us)
        if not lot:
            return []
        shared = meter(self.limit, self.state, now_us, 0)
        lanes = [Waiting(n, 50, [self.prices[n] * NANO], [None], paused=n in self.paused) for n in lot]
        decision = decide(lanes, [shared], self.turn, once=self.turns.has_more)
        self.turn, self.state = decision.turn, shared.state() or self.state
        self.turns.go_on(decision, now_us)
        for lane, verdict in decision.verdicts.items():
            self.passed[lane] += verdict.passed
        return lot


def test_lanes_go_on_at_once_when_the_one_that_a_gate_was_kept_for_may_not_pass() -> None:
    lanes = Sharing({1: 90, 2: 1, 3: 1}, tokens=5)
    assert lanes.ask({1, 2, 3}, 0) == [1, 2, 3]
    assert (lanes.turns.next_us, lanes.turns.awaited) == (85 * SECOND, (1,))
    assert lanes.ask(set(), SECOND) == [], "nobody is asked meanwhile"
    lanes.paused.add(1)
    assert lanes.ask({1}, SECOND) == [1]
    assert lanes.ask(set(), SECOND) == [2, 3]
    assert lanes.passed == {1: 0, 2: 3, 3: 3}


@pytest.mark.parametrize("many", [1, 2, 3])
def test_a_shared_limit_that_is_raised_is_used_at_once(many: int) -> None:
    lanes = Sharing(dict.fromkeys(range(1, many + 1), 1), tokens=0)
    for _ in range(5):
        assert len(lanes.ask(set(lanes.prices), 0)) == many
    lanes.state = State(0, level=100 * NANO * FINE)
    lanes.ask(set(lanes.prices), 0)
    assert sum(lanes.passed.values()) == min(100, 50 * many), "all that there is, in one decision"
    assert lanes.turns.has_more == (many == 3)


def test_who_waits_for_one_gate_does_not_wait_for_another_that_is_kept_too() -> None:
    turns = Turns(10)
    turns.lot({1, 2, 3, 4}, range(10), 0)
    behind = {1: (0,), 2: (0,), 3: (1,), 4: (1,)}
    verdicts = {lane: Verdict(0, 9, behind=gates) for lane, gates in behind.items()}
    turns.go_on(Decision(verdicts, 1, (1, 3), {0: 9 * SECOND, 1: 60 * SECOND}), 0)
    assert turns.lot(set(), range(10), SECOND) == []
    assert turns.lot({1}, range(10), SECOND) == [1, 3]
    turns.go_on(Decision({1: Verdict(0), 3: Verdict(0, 9, behind=(1,))}, 1, (3,), {1: 60 * SECOND}), SECOND)
    assert turns.lot(set(), range(10), SECOND) == [2, 3]
    turns.forget([4])
    assert not turns.has_more


def test_a_lane_that_has_nothing_leaves_its_share_to_the_others() -> None:
    shared = meter(Limit("token_bucket", 10 * NANO, rate=NANO), None, 0, 0)
    lanes = [Waiting(1, 0, [NANO], [None]), Waiting(2, 50, [NANO], [None]), Waiting(3, 2, [NANO], [None])]
    verdicts = decide(lanes, [shared]).verdicts
    assert [verdicts[lane].passed for lane in (1, 2, 3)] == [0, 8, 2]


def test_a_lane_that_is_held_back_passes_nothing_before_its_time_and_begins_with_an_empty_bucket() -> None:
    limit = Limit("token_bucket", 10 * NANO, rate=NANO)
    held = 30 * SECOND
    early = Waiting(1, 5, [NANO], [meter(limit, None, SECOND, held)], held_us=held)
    assert decide([early]).verdicts[1] == Verdict(0, 31 * SECOND)
    later = Waiting(1, 5, [NANO], [meter(limit, None, 32 * SECOND, held)])
    assert decide([later]).verdicts[1].passed == 2
