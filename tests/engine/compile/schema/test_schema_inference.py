"""Types of fields are inferred from a sample of events."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from penstock.engine.compile.schema.schema_inference import infer_types
from penstock.engine.worker.json_columns import DEFAULT_NUMBER, JsonColumnDecoder


@pytest.mark.parametrize(
    ("samples", "kind"),
    [
        (["1", "2.5"], DEFAULT_NUMBER),
        (['"a"', "1", '"b"'], pa.string()),
        (["true"], pa.bool_()),
        (["null", "null"], None),
        (["[]", "[1]"], pa.list_(DEFAULT_NUMBER)),
        (['{"x": 1}', '{"y": "z"}'], pa.struct([("x", DEFAULT_NUMBER), ("y", pa.string())])),
        (['{"x": null}'], pa.struct([])),
        (['{"x": {}}', '{"x": 1}', '{"x": 2}'], pa.struct([("x", DEFAULT_NUMBER)])),
        (['["a"]', "[1, 2]"], pa.list_(DEFAULT_NUMBER)),
    ],
)
def test_a_field_has_the_type_of_most_events(samples: list[str], kind: Any) -> None:
    assert infer_types([f'{{"f": {text}}}'.encode() for text in samples], ["f"]) == {"f": kind}


def test_events_can_be_decoded_with_their_inferred_types() -> None:
    samples = [b'{"f": {"x": [], "y": {"z": null}, "w": []}}', b'{"f": {"x": [{"a": 1}]}}', b'{"f": {}}']
    kind = infer_types(samples, ["f"])["f"]
    assert kind is not None
    decoder = JsonColumnDecoder(pa.schema([("f", kind)]))
    assert decoder.decode(b"\n".join(samples), len(samples)).errors == {}
