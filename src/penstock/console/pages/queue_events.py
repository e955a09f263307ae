"""The events of a queue, looked at without consuming them: the newest, or by key, partition, offset and time."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from html import escape
from shlex import quote

from nicegui import ui

from penstock.console.page import View, link, sentence
from penstock.console.widgets import forms, parts, payloads
from penstock.core import formatting
from penstock.core.errors import NotFound, PenstockError
from penstock.log.event import Event
from penstock.log.queue import Queue

PATH = "/queues"
_FIRST, _MOST = 50, 500
#: What takes longer to find is not worth the waiting: a key or a partition finds it at once.
_PATIENCE = 8.0


async def build(view: View, queue: Queue) -> None:
    """Make the part of the page."""
    asked = {name: view.params.get(name, "") for name in ("key", "partition", "offset", "since", "until")}
    limit = min(max(forms.whole(view.params, "limit", _FIRST), 1), _MOST)
    with forms.filters(PATH, "Find events", {"queue": queue.name, "tab": "events"}):
        forms.field("key", "Key", asked["key"], hint="Any")
        forms.field("partition", "Partition", asked["partition"], hint="Any")
        forms.field("offset", "From offset", asked["offset"], hint="Newest first", width="120px")
        forms.field("since", f"Since ({view.times.name})", asked["since"], kind="datetime-local")
        forms.field("until", "Until", asked["until"], kind="datetime-local")
        forms.submit("Show")
        if any(asked.values()):
            with parts.element("a", "ps-step", href=link(PATH, queue=queue.name, tab="events")):
                parts.text("Clear")
    try:
        async with asyncio.timeout(_PATIENCE):
            events = await _find(view, queue, asked, limit)
    except TimeoutError:
        parts.nothing(
            "That takes too long to find", "Name a key or a partition, which is where events are looked up by."
        )
        return
    except PenstockError as error:
        parts.nothing("Nothing can be shown for that", sentence(error))
        return
    if not events:
        _nothing(queue, is_filtered=any(asked.values()))
        return
    by_offset = bool(asked["offset"])
    hint = "In order, from the offset on" if by_offset else "Newest first"
    with parts.card("Events", hint=f"{hint}; looking consumes nothing"):
        # Every part of it is escaped where it is made.
        ui.html(_lines(view, events, opened=by_offset), sanitize=False)
    if by_offset:
        _offsets(queue, asked["partition"], int(asked["offset"]), events, limit)
    elif len(events) >= limit and limit < _MOST:
        with parts.element("div", "ps-row"):
            more = {**asked, "limit": str(min(limit * 2, _MOST))}
            given = {name: value or None for name, value in more.items()}
            with parts.element("a", "ps-step", href=link(PATH, queue=queue.name, tab="events", **given)):
                parts.text("Show more")


async def _find(view: View, queue: Queue, asked: dict[str, str], limit: int) -> Sequence[Event]:
    since, until = forms.moment(asked["since"], view.times.zone), forms.moment(asked["until"], view.times.zone)
    key, partition = asked["key"] or None, asked["partition"] or None
    if asked["offset"]:
        if partition is None:
            raise NotFound("an offset is a place in one partition: name the partition too")
        if not asked["offset"].isascii() or not asked["offset"].isdigit():
            raise NotFound("an offset is a whole number")
        return await view.log.fetch(queue.name, partition, int(asked["offset"]), limit)
    if (key, partition, since, until) == (None, None, None, None):
        return await view.log.latest(queue.name, limit)
    return await view.log.browse(queue.name, partition=partition, key=key, since=since, until=until, limit=limit)


def _nothing(queue: Queue, *, is_filtered: bool) -> None:
    if is_filtered:
        parts.nothing("No events match", "Another key or a longer time may find some.", icon="search_off")
    else:
        parts.nothing(
            "This queue holds no events",
            "Push one here, or from a shell.",
            f"penstock push {quote(queue.name)} '{{\"amount\": 12.5}}'",
            icon="inbox",
        )


def _offsets(queue: Queue, partition: str, start: int, events: Sequence[Event], limit: int) -> None:
    with parts.element("nav", "ps-row", aria_label="Pages of the events"):
        if start > 0:
            _turn(queue, partition, max(start - limit, 0), "Earlier offsets")
        if len(events) >= limit:
            _turn(queue, partition, events[-1].offset + 1, "Later offsets")


def _turn(queue: Queue, partition: str, offset: int, label: str) -> None:
    href = link(PATH, queue=queue.name, tab="events", partition=partition, offset=offset)
    with parts.element("a", "ps-step", href=href):
        parts.text(label)


def _lines(view: View, events: Sequence[Event], *, opened: bool) -> str:
    return f'<div class="ps-events">{"".join(_line(view, e, opened and i == 0) for i, e in enumerate(events))}</div>'


def _line(view: View, event: Event, is_open: bool) -> str:
    key = "–" if event.key is None else event.key
    where = (
        f"{event.partition} · {formatting.number(event.offset)}"
        if event.key != event.partition
        else f"{event.offset:,}"
    )
    facts = [
        ("Appended", view.times.full(event.appended_at)),
        ("Event time", view.times.full(event.event_time)),
        ("Key", key),
        ("Id", event.given_id or "–"),
        ("Partition", event.partition),
        ("Offset", formatting.number(event.offset)),
        ("Size", formatting.size(len(event.raw))),
        *([("Redriven", "for one group alone")] if event.is_redriven else []),
        *((name, value) for name, value in event.headers.items()),
    ]
    listed = "".join(f'<div><dt class="ps-muted">{escape(n)}</dt><dd>{escape(v)}</dd></div>' for n, v in facts)
    return (
        f'<details class="ps-event"{" open" if is_open else ""}><summary>'
        f"<span>{escape(view.times.clock(event.appended_at))}</span>"
        f'<span class="ps-strong">{escape(key)}</span>'
        f'<span class="ps-muted">{escape(where)}</span>'
        f"<code>{escape(payloads.preview(event.raw))}</code></summary>"
        f'<div class="ps-event-body"><dl class="ps-about">{listed}</dl>{payloads.coloured(event.raw)}</div></details>'
    )
