"""What is at hand, while more comes to hand."""

from __future__ import annotations

from penstock.engine.gates.hand import LaneAtHand


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
