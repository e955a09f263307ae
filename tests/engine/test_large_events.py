"""An event of ten megabytes, and a push without events."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from penstock.sinks import File
from tests.engine.failing_events.events import good
from tests.engine.pipelines import T0, Bench, counted, stream

#: Text that JSON escapes, and text that it does not.
LARGE = {"ts": T0, "amount": 1, "note": '"\u00e9' * 2_500_000}


def test_a_large_event_fails_is_redriven_counted_and_delivered(bench: Bench, tmp_path: Path) -> None:
    fixed = tmp_path / "fixed"

    def shaky(event: dict[str, Any]) -> dict[str, Any]:
        if "note" in event and not fixed.exists():
            raise ValueError("too much")
        return event

    orders = bench.penstock.queue("orders").config(max_event_bytes=16 << 20)
    orders.create("hash", 1)
    orders.push([])
    bench.push([*good(2), ("k", LARGE), *good(2)])
    orders.push([])
    windows = counted(stream(schema={"ts": "bigint", "amount": "bigint"}).map(shaky, retry_pause_seconds=0))
    copies = stream().to("copies", File(str(tmp_path / "copies.jsonl")))
    bench.run(windows.to("totals"), flush=False)
    (letter,) = bench.letters()
    is_whole = letter.data == LARGE  # pytest would compare the texts character by character
    assert (is_whole, letter.error) == (True, "ValueError: too much")

    fixed.touch()
    assert bench.redrive() == 1
    bench.run(windows.to("totals"))
    bench.run(copies, "copies")
    assert bench.by_key("n") == {"k": 5}
    written = [json.loads(line) for line in (tmp_path / "copies.jsonl").read_text().splitlines()]
    assert [event == LARGE for event in written] == [False, False, True, False, False]
