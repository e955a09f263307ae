"""Events of a queue: the newest, or filtered by key, partition, offset and time. Browsing consumes nothing.

A dialog pushes a test event.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from html import escape
from shlex import quote

from nicegui import ui

from penstock.console.page import View, error_message, url_for
from penstock.console.widgets import elements, forms, payloads
from penstock.console.widgets.editor import code_editor
from penstock.core import formatting
from penstock.core.errors import NotFound, PenstockError
from penstock.log.event import Event
from penstock.log.queue import Queue
from penstock.log.write.encode.batch import Batch
from penstock.log.write.encode.json_events import JsonEvents
from penstock.log.write.push_result import PushResult
from penstock.server.auth.identity import Role

PATH = "/queues"
_DEFAULT_LIMIT, _MAX_LIMIT = 50, 500
#: A search by time alone may read the whole queue. A key or a partition narrows it.
_SEARCH_TIMEOUT_SECONDS = 8.0


async def build(view: View, queue: Queue) -> None:
    filters = {name: view.params.get(name, "") for name in ("key", "partition", "offset", "since", "until")}
    limit = min(max(forms.parse_int(view.params, "limit", _DEFAULT_LIMIT), 1), _MAX_LIMIT)
    with forms.filter_form(PATH, "Find events", {"queue": queue.name, "tab": "events"}):
        forms.text_field("key", "Key", filters["key"], hint="Any")
        forms.text_field("partition", "Partition", filters["partition"], hint="Any")
        forms.text_field("offset", "From offset", filters["offset"], hint="Newest first", width="120px")
        forms.text_field("since", f"Since ({view.times.name})", filters["since"], kind="datetime-local")
        forms.text_field("until", "Until", filters["until"], kind="datetime-local")
        forms.submit_button("Show")
        if any(filters.values()):
            elements.link("Clear", url_for(PATH, queue=queue.name, tab="events"), "ps-button")
    try:
        async with asyncio.timeout(_SEARCH_TIMEOUT_SECONDS):
            events = await _read_events(view, queue, filters, limit)
    except TimeoutError:
        elements.empty_state("The search took too long", "Add a key or a partition to the filter.")
        return
    except PenstockError as error:
        elements.empty_state("Invalid filter", error_message(error))
        return
    if not events:
        _empty_state(queue, is_filtered=any(filters.values()))
        return
    by_offset = bool(filters["offset"])
    hint = "by offset" if by_offset else "newest first"
    with elements.card("Events", hint=f"{hint}; browsing does not consume"):
        show_events(view, events, opened=by_offset)
    if by_offset:
        _offset_links(queue, filters["partition"], int(filters["offset"]), events, limit)
    elif len(events) >= limit and limit < _MAX_LIMIT:
        with elements.element("div", "ps-row"):
            given = {name: value or None for name, value in filters.items()}
            href = url_for(PATH, queue=queue.name, tab="events", limit=min(limit * 2, _MAX_LIMIT), **given)
            elements.link("Show more", href, "ps-button")


async def _read_events(view: View, queue: Queue, filters: dict[str, str], limit: int) -> Sequence[Event]:
    since, until = (forms.parse_time(filters[name], view.times.zone) for name in ("since", "until"))
    key, partition = filters["key"] or None, filters["partition"] or None
    if filters["offset"]:
        if partition is None:
            raise NotFound("an offset needs a partition: fill in the partition too")
        if not filters["offset"].isascii() or not filters["offset"].isdigit():
            raise NotFound(f"the offset {filters['offset']!r} is not a whole number: use digits only")
        return await view.log.fetch(queue.name, partition, int(filters["offset"]), limit)
    if (key, partition, since, until) == (None, None, None, None):
        return await view.log.latest(queue.name, limit)
    return await view.log.browse(queue.name, partition=partition, key=key, since=since, until=until, limit=limit)


def _empty_state(queue: Queue, *, is_filtered: bool) -> None:
    if is_filtered:
        elements.empty_state("No events match", "Try another key or a longer time range.", icon="search_off")
    else:
        elements.empty_state(
            "This queue is empty",
            "Push an event with the button above, or from a shell.",
            f"penstock push {quote(queue.name)} '{{\"amount\": 12.5}}'",
            icon="inbox",
        )


def _offset_links(queue: Queue, partition: str, start: int, events: Sequence[Event], limit: int) -> None:
    def link(label: str, offset: int) -> None:
        href = url_for(PATH, queue=queue.name, tab="events", partition=partition, offset=offset)
        elements.link(label, href, "ps-button")

    with elements.element("nav", "ps-row", aria_label="Pages of the events"):
        if start > 0:
            link("Earlier offsets", max(start - limit, 0))
        if len(events) >= limit:
            link("Later offsets", events[-1].offset + 1)


def show_events(view: View, events: Sequence[Event], *, opened: bool = False) -> None:
    """Show a list of events whose data can be expanded. With ``opened``, the first one is."""
    rows = "".join(_render_event(view, event, opened and index == 0) for index, event in enumerate(events))
    # _render_event escapes all values.
    ui.html(f'<div class="ps-events">{rows}</div>', sanitize=False)


def _render_event(view: View, event: Event, is_open: bool) -> str:
    key = "–" if event.key is None else event.key
    partition = "" if event.key == event.partition else f"{event.partition} · "
    facts = [
        ("Appended", view.times.full(event.appended_at)),
        ("Event time", view.times.full(event.event_time)),
        ("Key", key),
        ("Id", event.given_id or "–"),
        ("Partition", event.partition),
        ("Offset", formatting.number(event.offset)),
        ("Size", formatting.size(len(event.raw))),
        *([("Redriven", "for one group only")] if event.is_redriven else []),
        *event.headers.items(),
    ]
    listed = "".join(f'<div><dt class="ps-muted ps-small">{escape(n)}</dt><dd>{escape(v)}</dd></div>' for n, v in facts)
    return (
        f'<details class="ps-event"{" open" if is_open else ""}><summary>'
        f"<span>{escape(view.times.clock(event.appended_at))}</span>"
        f'<span class="ps-strong">{escape(key)}</span>'
        f'<span class="ps-muted">{escape(partition)}{formatting.number(event.offset)}</span>'
        f"<code>{escape(payloads.preview(event.raw))}</code></summary>"
        f'<div class="ps-event-body ps-stack"><dl class="ps-grid ps-properties">{listed}</dl>'
        f"{payloads.highlight_json(event.raw)}</div>"
        "</details>"
    )


def push_button(view: View, queue: str) -> None:
    elements.button(
        "Push a test event",
        lambda: _open_dialog(view, queue),
        icon="add",
        tone="primary",
        disabled_reason=view.missing_permission(Role.PRODUCE, queue=queue),
    )


async def _open_dialog(view: View, queue: str) -> None:
    with view.client.content, elements.dialog(f"Push an event to {queue}") as dialog:
        with elements.element("div", "ps-row"):
            key = ui.input("Key", placeholder="none").props("outlined dense").classes("ps-grow")
            id = ui.input("Id", placeholder="none").props("outlined dense").classes("ps-grow")
        data = code_editor('{\n  "test": true\n}', "JSON", "Data of the event, JSON", height="14rem")
        error = elements.error_text()

        async def push() -> None:
            error.set_text("")
            try:
                events = JsonEvents([(data.value or "").encode()], [key.value or None], [id.value or None])
                async with view.action("push a test event", Role.PRODUCE, subject=queue, queue=queue):
                    (result,) = await view.log.push([Batch(queue, events)])
                    dialog.submit(result)
            except UnicodeEncodeError:
                error.set_text("The text contains an unpaired surrogate: remove it")

        with elements.element("div", "ps-row ps-end"):
            elements.button("Cancel", dialog.close)
            elements.button("Push", push, tone="primary")
    result: PushResult | None = await elements.open_dialog(dialog)
    if result is not None:
        with view.client.content:
            _show_result(queue, result)


def _show_result(queue: str, result: PushResult) -> None:
    """Open the page of the stored event, or notify the user that it was dropped."""
    if result.shed:
        ui.notify(
            "The event was dropped: the queue is full, and its overflow policy is shed",
            type="warning",
            position="bottom",
        )
        return
    (stored,) = result
    if stored.duplicate:
        ui.notify("Duplicate: this is the event that has the same id", type="warning", position="bottom")
    ui.navigate.to(url_for("/queues", queue=queue, tab="events", partition=stored.partition, offset=stored.offset))
