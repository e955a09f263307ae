"""Pages of queues: list, groups, partitions, events, options and sinks."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from penstock import Stream
from penstock.engine import query_commands
from penstock.engine.query_registry import Registry
from penstock.log.log import Log
from penstock.log.write.encode.batch import Batch
from penstock.sinks import Sinks, Webhook
from tests.console.browser import (
    DESKTOP,
    VARIANTS,
    Variant,
    check_all_variants,
    check_dialog,
    check_pages,
    check_table_fits_a_phone,
    tile_number,
    type_over,
)
from tests.console.conftest import run_with_log
from tests.console.console_process import ConsoleProcess
from tests.console.queue_actions import create_dead_letters, event_numbers, pop
from tests.console.scripted_query import ScriptedQuery


def test_queue_list_search_opens_queue(page: Page, queue: str) -> None:
    page.goto("/queues")
    page.get_by_label("Name").fill(queue[5:15])
    page.get_by_role("button", name="Find").click()
    page.get_by_role("link", name=queue).click()

    expect(tile_number(page, "Events stored")).to_have_text("10")
    expect(page.get_by_role("row", name="billing")).to_contain_text("waiting")
    page.get_by_role("link", name="Partitions", exact=True).click()
    expect(page.get_by_role("table", name="Partitions").get_by_role("row")).to_have_count(3)


def test_push_dialog_stores_event_and_shows_it(page: Page, console: ConsoleProcess, queue: str) -> None:
    page.goto(f"/queues?queue={queue}")
    page.get_by_role("button", name="Push a test event").click()
    dialog = page.get_by_role("dialog")
    type_over(page, "Data of the event", '{"n": }')
    dialog.get_by_role("button", name="Push", exact=True).click()
    expect(page.get_by_text("JSON is malformed")).to_be_visible()
    type_over(page, "Data of the event", '{"n": 4711, "of": "a <b>test</b>"}')
    dialog.get_by_label("Key").fill("zoe")
    dialog.get_by_role("button", name="Push", exact=True).click()

    expect(page.locator(".ps-event[open] .ps-json")).to_contain_text('"of": "a <b>test</b>"')
    assert 4711 in event_numbers(pop(console, queue))


def test_events_are_filtered_by_key_and_offset(page: Page, queue: str) -> None:
    page.goto(f"/queues?queue={queue}&tab=events")
    expect(page.locator(".ps-event")).to_have_count(10)
    page.get_by_label("Key", exact=True).fill("ada")
    page.get_by_role("button", name="Show").click()
    expect(page.locator(".ps-event")).to_have_count(5)
    page.locator(".ps-event summary").first.press("Enter")
    expect(page.locator(".ps-event[open] .ps-json")).to_contain_text('"n": 9')

    page.goto(f"/queues?queue={queue}&tab=events&partition=ada&offset=3")
    expect(page.locator(".ps-event")).to_have_count(2)
    page.goto(f"/queues?queue={queue}&tab=events&key=nobody")
    expect(page.get_by_role("heading", name="No events match")).to_be_visible()


def test_seek_delivers_events_again(page: Page, console: ConsoleProcess, queue: str) -> None:
    create_dead_letters(console, queue, [])
    page.goto(f"/queues?queue={queue}")
    page.get_by_role("link", name="billing").click()
    expect(tile_number(page, "Lag")).to_have_text("0")
    page.get_by_role("button", name="Seek").click()
    page.get_by_role("button", name="Continue").click()
    page.get_by_role("button", name="Confirm").click()

    expect(tile_number(page, "Lag")).to_have_text("10")
    assert event_numbers(pop(console, queue)) == list(range(10))


@contextmanager
def _unreachable_webhook(console: ConsoleProcess, queue: str) -> Iterator[None]:
    """Run a webhook sink, as the group partner, to a port on which no process listens."""
    began: Future[tuple[asyncio.AbstractEventLoop, Sinks]] = Future()

    async def run(url: str) -> None:
        async with Sinks(console.database_url) as sinks:
            sinks.add(queue, Webhook(url, allow=["127.0.0.1"], breaker=1), group="partner")
            began.set_result((asyncio.get_running_loop(), sinks))
            await sinks.run()

    with socket.socket() as unused_socket, ThreadPoolExecutor(1) as threads:
        unused_socket.bind(("127.0.0.1", 0))
        running = threads.submit(lambda: asyncio.run(run(f"http://127.0.0.1:{unused_socket.getsockname()[1]}/")))
        loop, sinks = began.result(30)
        try:
            yield
        finally:
            loop.call_soon_threadsafe(sinks.stop)
            running.result(30)


def test_failing_sink_is_reported_with_link_to_its_error(page: Page, console: ConsoleProcess, queue: str) -> None:
    with _unreachable_webhook(console, queue):
        page.goto("/")
        issue = page.get_by_role("link", name=f"Sink partner of {queue} failed too often and is resting")
        issue.click()
        expect(tile_number(page, "State")).to_have_text("resting")
        expect(page.get_by_text("cannot be reached")).to_be_visible()
        expect(page.get_by_text("a sink, at least once")).to_be_visible()
        check_all_variants(page, variants=(DESKTOP, VARIANTS[-1]))
        page.goto(f"/queues?queue={queue}")
        expect(page.get_by_role("row", name="partner")).to_contain_text("resting")
    expect(page.get_by_role("row", name="partner")).to_contain_text("stopped")


def _option(console: ConsoleProcess, queue: str, name: str) -> Any:
    async def read(log: Log) -> Any:
        return getattr(await log.catalog.refresh(queue), name)

    return run_with_log(console.database_url, read)


def test_group_of_a_failed_query_that_holds_pushes_back_is_named(
    page: Page, console: ConsoleProcess, queue: str
) -> None:
    async def fail_query(log: Log) -> None:
        await log.configure(queue, {"max_depth_events": 10})
        await log.configure(f"{queue}.out")
        query = await ScriptedQuery.start(log, "held", Stream.from_(queue).to(f"{queue}.out"))
        await Registry(log).release_lease(query.id, query.fence, stopped=False)
        await log.configure_group(queue, "billing", counts=False)

    run_with_log(console.database_url, fail_query)
    page.goto(f"/queues?queue={queue}")

    expect(page.get_by_role("row", name="held")).to_contain_text("failed")
    expect(page.get_by_text("The failed query 'held' is 10 events behind")).to_be_visible()
    expect(page.get_by_text("penstock query stop held")).to_be_visible()
    run_with_log(console.database_url, lambda log: query_commands.stop(log.database, "held"))
    expect(page.get_by_role("row", name="held")).to_contain_text("stopped")
    expect(page.get_by_text("Pushes wait")).not_to_be_visible()


def test_a_full_queue_that_no_group_reads_is_named(page: Page, console: ConsoleProcess) -> None:
    async def fill(log: Log) -> None:
        await log.configure("unread", {"max_unread_events": 2})
        await log.push([Batch("unread", [{"data": 1}, {"data": 2}])])

    run_with_log(console.database_url, fill)
    page.goto("/queues?queue=unread")
    full = "The queue is full: no group reads it, it holds 2 events and 2 are allowed"
    expect(page.get_by_text(full)).to_be_visible()


def test_queue_option_is_changed_and_reset(page: Page, console: ConsoleProcess, queue: str) -> None:
    page.goto(f"/queues?queue={queue}&tab=options")
    expect(page.get_by_role("row", name="lease_seconds")).to_contain_text("300 s (5 min)")
    expect(page.get_by_role("row", name="retry_delay_ms")).to_contain_text("1,000 ms (1 s)")
    page.get_by_role("link", name="retry_limit").click()
    field = page.get_by_label("retry_limit, now 0")
    for given, message in (("many", "must be a whole number"), ("-1", "must be at least 0"), ("", "needs a value")):
        field.fill(given)
        page.get_by_role("button", name="Change it").click()
        expect(page.get_by_role("alert").filter(has_text=message)).to_be_visible()
    field.fill("7")
    page.get_by_role("button", name="Change it").click()
    dialog = page.get_by_role("dialog", name=f"Set retry_limit of {queue} to 7?")
    dialog.get_by_role("button", name="Cancel").click()
    expect(dialog).to_be_hidden()
    assert _option(console, queue, "retry_limit") == 0
    page.get_by_role("button", name="Change it").click()
    dialog.get_by_role("button", name="Change it").click()
    expect(page.get_by_role("row", name="retry_limit")).to_contain_text("7")
    assert _option(console, queue, "retry_limit") == 7

    page.goto(f"/queues?queue={queue}&tab=options&option=overflow")
    page.get_by_role("radio", name="shed").click()
    page.get_by_role("button", name="Change it").click()
    page.get_by_role("dialog").get_by_role("button", name="Change it").click()
    expect(page.get_by_text("sheds when full")).to_be_visible()
    page.get_by_role("link", name="overflow").click()
    page.get_by_role("button", name="Reset to refuse, the default").click()
    page.get_by_role("dialog").get_by_role("button", name="Change it").click()
    expect(page.get_by_text("sheds when full")).to_have_count(0)
    assert _option(console, queue, "overflow") == "refuse"


@pytest.mark.parametrize("variant", VARIANTS, ids=lambda variant: variant.name)
def test_pages_are_accessible_and_fit_the_window(page: Page, queue: str, variant: Variant) -> None:
    path = f"/queues?queue={queue}"
    paths = [f"{path}&tab=events"]
    if variant in (DESKTOP, VARIANTS[-1]):
        paths.append("/queues")
    if variant is DESKTOP:
        paths += [path, f"{path}&tab=partitions", f"{path}&tab=options&option=lease_seconds", f"{path}&group=billing"]
    check_pages(page, variant, paths)


def test_tables_fit_a_phone(page: Page, queue: str) -> None:
    page.goto("/queues")
    check_table_fits_a_phone(page, "Queues")
    for parameters, table in (
        ("", "Groups"),
        ("&tab=partitions", "Partitions"),
        ("&tab=options", "Options"),
        ("&group=billing", "Partitions with unread events"),
    ):
        page.goto(f"/queues?queue={queue}{parameters}")
        check_table_fits_a_phone(page, table)


def test_dialogs_are_accessible_and_fit_the_window(page: Page, queue: str) -> None:
    page.goto(f"/queues?queue={queue}")
    check_dialog(page, "Push a test event")
    page.goto(f"/queues?queue={queue}&group=billing")
    check_dialog(page, "Seek")
    page.goto(f"/queues?queue={queue}&tab=options&option=retention_drops_unread")
    page.get_by_role("radio", name="yes").click()
    check_dialog(page, "Change it")
