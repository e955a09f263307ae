from __future__ import annotations

from penstock.cli.event_input import PushTarget


def test_fingerprint_is_the_same_in_every_version() -> None:
    fields = PushTarget("orders", None, "tenant", "order_id", None)
    assert fields.fingerprint() == (
        "Shape(queue='orders', key=None, key_field='tenant', id_field='order_id', time_field=None)"
    )
