"""Traces of cycles, sent to a local collector."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from penstock.core.tracing import get_tracer_provider
from penstock.engine.planning import poison_search
from tests.engine.pipelines import T0, Bench, counted, stream
from tests.span_collector import SpanCollector, run_collector

TRACE, PUSH = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"


@pytest.fixture
def traced(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A collector of spans, and a bench whose queries send them."""
    with run_collector() as (collector, endpoint):
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", endpoint)
        monkeypatch.setenv("OTEL_SERVICE_NAME", "shop")
        get_tracer_provider.cache_clear()
        bench.settings = replace(bench.settings, tracing=True)
        yield collector
        get_tracer_provider().shutdown()
        get_tracer_provider.cache_clear()


def attributes(span: Any) -> dict[str, Any]:
    return {each.key: getattr(each.value, each.value.WhichOneof("value")) for each in span.attributes}


def order(customer: str, amount: float, **more: Any) -> dict[str, Any]:
    return {"key": customer, "data": {"ts": T0, "amount": amount, "note": "secret"}, **more}


def test_the_trace_of_a_cycle_has_its_parts_and_links_to_the_pushes(bench: Bench, traced: SpanCollector) -> None:
    bench.queue()
    header = {"traceparent": f"00-{TRACE}-{PUSH}-01"}
    bench.push(
        [order("ada", 5.5, headers=header), order("bob", 1, headers={"traceparent": "nonsense"}), order("cy", 2)]
    )
    bench.run(counted(stream()))
    cycles = [span for span in traced.spans if span.name == "cycle q"]
    (cycle,) = (span for span in cycles if attributes(span)["penstock.planned"] == 3)
    parts = {span.name: span for span in traced.spans if span.parent_span_id == cycle.span_id}
    assert parts.keys() == {"plan", "compute", "commit"}
    assert {part.trace_id for part in parts.values()} == {cycle.trace_id}
    assert [(link.trace_id.hex(), link.span_id.hex()) for link in cycle.links] == [(TRACE, PUSH)]
    assert cycle.start_time_unix_nano == parts["plan"].start_time_unix_nano
    assert parts["plan"].end_time_unix_nano <= parts["compute"].start_time_unix_nano
    assert parts["compute"].end_time_unix_nano <= parts["commit"].start_time_unix_nano
    assert parts["commit"].end_time_unix_nano <= cycle.end_time_unix_nano
    cycle_attributes = attributes(cycle)
    assert (cycle_attributes["penstock.query"], cycle_attributes["penstock.events_in"]) == ("q", 3)
    assert cycle_attributes["penstock.ms.spark"] > 0
    assert sum(attributes(span)["penstock.windows"] for span in cycles) == 3
    assert traced.services == {"shop"}
    assert not any(word in str(traced.spans) for word in ("secret", "ada", "bob"))


def test_the_trace_of_a_failed_cycle_has_an_error_status(
    bench: Bench, traced: SpanCollector, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.queue()
    bench.push([order("ada", 1)])
    monkeypatch.setattr(poison_search, "TRIES", 1)
    bench.run(stream().filter("assert_true(amount > 1) IS NULL").to("fine"))
    failed = [span for span in traced.spans if span.status.code == span.status.STATUS_CODE_ERROR]
    assert {span.name for span in failed} == {"cycle q", "compute"}
    assert all("error.type" in attributes(span) for span in failed)
    assert len(bench.letters()) == 1
    assert "secret" not in str(traced.spans)
