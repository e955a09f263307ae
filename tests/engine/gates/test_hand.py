"""What is at hand, while more comes to hand."""

from __future__ import annotations

import pyarrow as pa

from penstock.engine.gates.buffer import Hand, LaneAtHand, Line
from penstock.engine.plan import CyclePlan, Lane, Stretch
from penstock.engine.worker.udf import Failure
from penstock.stream.gates import Cost


def lane(offsets: list[int], upto: int) -> LaneAtHand:
    return LaneAtHand(7, "ada", 1, 1, offsets[0] if offsets else 0, upto, offsets, [((None, b"{}"),)] * len(offsets))


def test_what_comes_to_hand_during_a_release_does_not_move_the_position_that_was_written_down() -> None:
    found = lane([90, 91, 92], upto=100)
    stop = found.position_after(3)
    found.offsets.append(105)  # those before it were left out on the way
    found.lines.append(((None, b"{}"),))
    found.upto = 110

    found.drop(3, stop)

    assert (found.position, found.offsets, found.upto) == (100, [105], 110)


def test_events_that_were_left_out_on_the_way_pass_with_nothing_at_hand() -> None:
    assert lane([], upto=5).position_after(0) == 5


def read(cycle: int, *lanes: tuple[int, int, int]) -> tuple[CyclePlan, list[Failure], pa.Table, list[Line]]:
    """What a cycle has read: of lanes, from an offset to another."""
    rows = [(lane, offset) for lane, start, stop in lanes for offset in range(start, stop)]
    plan = [Lane(lane, 1, 1, f"t{lane}", True, [Stretch(1, start, stop)]) for lane, start, stop in lanes]
    table = pa.table({"__partition": [lane for lane, _ in rows], "__offset": [offset for _, offset in rows]})
    return CyclePlan(cycle, True, plan, []), [], table, [("", b"{}")] * len(rows)


def waiting(hand: Hand, **due: int) -> None:
    for name, at in due.items():
        hand.lanes[int(name[1:])].due_us, hand.lanes[int(name[1:])].is_laid_down = at, True


def test_those_that_wait_longest_are_put_back_until_no_more_than_wanted_is_at_hand() -> None:
    hand = Hand([Cost()])
    hand.add(*read(1, (1, 0, 10), (2, 0, 10), (3, 0, 10), (4, 0, 10)))
    waiting(hand, t1=100, t2=300, t3=200)
    assert [lane.partition_id for lane in hand.surplus(40)] == []
    assert [lane.partition_id for lane in hand.surplus(25)] == [2, 3]
    assert [lane.partition_id for lane in hand.surplus(0)] == [2, 3, 1], "those that are not laid down stay"
    hand.put_back(hand.surplus(25))
    assert (hand.size, sorted(hand.lanes)) == (20, [1, 4])
    hand.drop(hand.lanes[1], 10, 10)
    assert (hand.size, sorted(hand.lanes)) == (10, [4])


def test_a_lane_that_others_wait_for_stays_at_hand() -> None:
    hand = Hand([Cost()])
    hand.add(*read(1, (1, 0, 10), (2, 0, 10), (3, 0, 10)))
    waiting(hand, t1=100, t2=300, t3=200)
    assert [lane.partition_id for lane in hand.surplus(0, (2,))] == [3, 1]


def test_the_lanes_of_a_key_are_found_while_they_are_at_hand() -> None:
    hand = Hand([Cost()])
    hand.add(*read(1, (1, 0, 10), (2, 0, 10), (3, 0, 10)))
    assert [lane.partition_id for lane in hand.of("t2")] == [2]
    assert [lane.partition_id for lane in hand.of("")] == [1, 2, 3]
    hand.put_back(hand.of("t2"))
    hand.drop(hand.lanes[3], 10, 10)
    assert (hand.of("t2"), hand.of("t3"), hand.of("t4")) == ([], [], [])
    hand.add(*read(2, (2, 0, 10)))
    assert [lane.partition_id for lane in hand.of("t2")] == [2]


def test_large_events_count_as_several() -> None:
    hand = Hand([Cost()])
    plan, failures, table, _ = read(1, (1, 0, 2), (2, 0, 3))
    hand.add(plan, failures, table, [("", b"x" * 10_240)] * 2 + [("", b"{}")] * 3)
    assert hand.size == 2 * 11 + 3
    waiting(hand, t1=2, t2=1)
    assert [lane.partition_id for lane in hand.surplus(5)] == [1]
    hand.drop(hand.lanes[1], 1, 1)
    assert hand.size == 11 + 3


def test_what_follows_events_that_were_put_back_meanwhile_is_not_taken() -> None:
    hand = Hand([Cost()])
    hand.add(*read(1, (1, 0, 10), (2, 0, 10)))
    waiting(hand, t1=100, t2=50)
    lanes = hand.surplus(15)
    hand.put_back(lanes)

    taken, late = hand.add(*read(2, (1, 10, 12), (2, 10, 12)))
    assert ([lane.partition_id for lane in taken], late, hand.size) == ([2], [1], 12)
    hand.note_put_back(lanes, 1)
    assert hand.add(*read(3, (1, 0, 4)))[1] == [], "when it is read again, it is"
    assert hand.lanes[1].offsets == [0, 1, 2, 3]
    hand.drop(hand.lanes[1], 4, 4)
    assert hand.add(*read(4, (1, 4, 5)))[1] == [], "and it goes on from there"
