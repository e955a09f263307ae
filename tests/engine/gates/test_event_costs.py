"""Costs and keys of released events in their headers."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from penstock.engine.gates.event_costs import COST_HEADER, KEY_HEADER, event_costs, event_gate_key, gate_headers
from penstock.log.event import Delivery, Event
from penstock.log.storage.chunk import ChunkColumns, StoredChunk
from penstock.stream.gates import NANOS_PER_TOKEN as TOKEN


def released(headers: dict[str, str] | None, key: str) -> Event:
    columns = ChunkColumns(b"1", 1, headers=[headers])
    chunk = StoredChunk.of(columns, [b"1"], 0, datetime(2026, 1, 31, tzinfo=UTC))
    return Event(Delivery("allowed", key, 1, True, "hook"), chunk, 0)


def test_an_event_that_costs_one_token_has_no_headers() -> None:
    assert gate_headers([TOKEN, TOKEN], "tenant", "tenant") is None
    assert gate_headers([TOKEN], "Default", None) is None


@pytest.mark.parametrize("costs", [(3 * TOKEN, 0), (1, 12_345_678_901), (TOKEN // 2, TOKEN)])
def test_costs_and_keys_come_back_exactly(costs: tuple[int, int]) -> None:
    event = released(gate_headers(costs, "tenant", "city"), "city")
    assert event_costs(event, 2) == costs
    assert event_gate_key(event) == "tenant"


@pytest.mark.parametrize("text", ["", "much", "-3", "NaN", "Infinity", "1e999999"])
def test_a_header_that_is_no_cost_counts_as_one_token(text: str) -> None:
    assert event_costs(released({COST_HEADER: text}, "k"), 1) == (TOKEN,)


def test_other_events_cost_one_token_and_have_their_own_key() -> None:
    assert (event_costs(released(None, "k"), 2), event_gate_key(released(None, "k"))) == ((TOKEN, TOKEN), "k")
    assert KEY_HEADER not in released(None, "k").headers
