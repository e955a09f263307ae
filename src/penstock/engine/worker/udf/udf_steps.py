"""Runs the user-defined functions of a stream over events. A function that raises fails only its own event."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from penstock.engine.worker.udf.call_timeout import UdfWatchdog
from penstock.engine.worker.udf.concurrent_calls import enrich_items
from penstock.engine.worker.udf.udf_batch import UdfBatch, UdfItem, copy_value
from penstock.stream.expression import takes_context
from penstock.stream.steps import EnrichCall, FilterStep, FlatMapStep, ForeachStep, MapStep, Retries, Step


def run_udf_steps(steps: Sequence[Step], batch: UdfBatch) -> None:
    """Run the steps in order, each over all events of the batch."""
    for step in steps:
        if not batch.items:
            return
        if step is not steps[0]:
            batch.reload_event = None
        match step:
            case MapStep():
                _call_for_each(step.name, step.expression, step.retries, batch, _map_values)
            case FlatMapStep():
                _call_for_each(step.name, step.expression, step.retries, batch, _flat_map_values)
            case FilterStep():
                before = len(batch.items) + len(batch.failures)
                _call_for_each(step.name, step.condition, step.retries, batch, _filter_values)
                batch.dropped[step.name] += before - len(batch.items) - len(batch.failures)
            case ForeachStep():
                _call_for_each(step.name, step.function, step.retries, batch, lambda value, result: [value])
            case EnrichCall():
                enrich_items(step, batch)
            case _:
                raise TypeError(f"{type(step).__name__} does not run in Python")
        batch.drop_failed_events()


def _map_values(value: Any, result: Any) -> list[Any]:
    if result is None:
        return []
    return list(result) if isinstance(result, list | tuple) else [result]


def _flat_map_values(value: Any, result: Any) -> list[Any]:
    if result is None:
        return []
    if isinstance(result, dict | str | bytes):
        raise TypeError(f"the function of flat_map returned a {type(result).__name__}; return a list of events")
    return list(result)


def _filter_values(value: Any, result: Any) -> list[Any]:
    return [value] if result else []


def _call_for_each(
    stage: str, function: Any, retries: Retries, batch: UdfBatch, to_values: Callable[[Any, Any], list[Any]]
) -> None:
    """Call a function for each value. ``to_values`` turns a value and the function's result into the next values."""
    with_context = takes_context(function)
    needs_backups = batch.needs_backups(retries)
    items: list[UdfItem] = []

    def call(item: UdfItem, backup: Any, attempt: int) -> list[Any]:
        if attempt:
            batch.restore_value(item, backup)
        if with_context:
            result = function(item.value, batch.context(stage, item.source, attempt))
        else:
            result = function(item.value)
        # Within the timeout: the body of a generator runs only here.
        return to_values(item.value, result)

    with UdfWatchdog(retries.timeout_seconds) as watchdog:
        for item in batch.items:
            backup = copy_value(item.value) if needs_backups else None
            try:
                values = watchdog.call_with_retries(partial(call, item, backup), retries)
            except Exception as error:
                batch.add_failure(item.source, stage, error, retries.limit + 1)
            else:
                items += [UdfItem(item.source, value) for value in values]
    batch.items = items
