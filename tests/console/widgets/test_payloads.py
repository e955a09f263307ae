"""Event data as HTML."""

from __future__ import annotations

import json

from penstock.console.widgets.payloads import MAX_CHARACTERS, highlight_json


def test_a_text_that_is_cut_off_is_one_token() -> None:
    shown = highlight_json(json.dumps({"n": 1, "text": '"' * 5_000_000}).encode())
    assert shown.count('<i class="ps-json-text">') == 1
    assert shown.count('<i class="ps-json-key">') == 2
    assert len(shown) < 10 * MAX_CHARACTERS
    assert "more characters" in shown
