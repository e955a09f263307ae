"""Pages of queues, gates, dead letters and SQL."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from penstock.db.readonly_login import render_reader_role
from penstock.engine.gates.admin import GateAdmin, GateInfo
from penstock.log.event import Event
from penstock.log.log import Log
from penstock.log.read.pop_request import PopRequest
from penstock.log.write.batch import Batch
from penstock.server.auth.api_keys import ApiKeyStore
from penstock.server.auth.identity import Role
from penstock.sinks import Sinks, Webhook
from tests import gate_rows
from tests.console.browser import (
    DESKTOP,
    VARIANTS,
    Variant,
    check_accessible,
    check_all_variants,
    check_fits,
    open_page,
)
from tests.console.conftest import run_with_log
from tests.console.console_process import ConsoleProcess, start_console
from tests.servers import ROLE, TEMPLATE, Server

_READER = "reader_of_console_tests"


@pytest.fixture(scope="module")
def console(pg18: Server) -> Iterator[ConsoleProcess]:
    """A console on a database with a queue, a gated query and the login for SQL."""
    with pg18.fresh_database(TEMPLATE) as url:
        name = str(conninfo_to_dict(url)["dbname"])
        with pg18.superuser(name) as conn:
            conn.execute(render_reader_role(owner=ROLE, database=name, reader=_READER).encode())
        gate_rows.insert_gated_query(url)
        with start_console(url, environ={"PENSTOCK_READER_URL": make_conninfo(url, user=_READER)}) as running:
            yield running
    with pg18.superuser() as conn:
        conn.execute(f"DROP ROLE {_READER}".encode())


@pytest.fixture
def queue(console: ConsoleProcess, request: pytest.FixtureRequest) -> str:
    """A queue with ten events of two keys, and a group that has read none of them."""
    name = str(request.node.name).removeprefix("test_")[:60]

    async def make(log: Log) -> None:
        await log.configure(name, {"retry_limit": 0})
        await log.subscribe(name, "billing")
        events = [{"data": {"n": n}, "key": "ada" if n % 2 else "bob", "id": f"e-{n}"} for n in range(10)]
        await log.push([Batch(name, events)])

    run_with_log(console.database_url, make)
    return name


def _pop(console: ConsoleProcess, queue: str) -> list[Event]:
    async def pop(log: Log) -> list[Event]:
        return await log.pop(PopRequest(queue, "billing", batch=100, partitions=10))

    return run_with_log(console.database_url, pop)


def _create_dead_letters(console: ConsoleProcess, queue: str, errors: Sequence[str]) -> list[int]:
    """Dead-letter one event per error, acknowledge all others, and return the newest id of each kind."""

    async def create(log: Log) -> list[int]:
        events = await log.pop(PopRequest(queue, "billing", batch=100, partitions=10))
        for event, error in zip(events, errors, strict=False):
            await log.ack([event], "dead_letter", error=error, traceback=f"Traceback\n  {error}")
        await log.ack(events[len(errors) :], True)
        return [kind.newest for kind in await log.dead_letter_kinds(queue)]

    return run_with_log(console.database_url, create)


def _data(events: Sequence[Event]) -> list[Any]:
    return sorted(event.data["n"] for event in events)


def _type_over(page: Page, label: str, text: str) -> None:
    field = page.get_by_role("textbox", name=label)
    field.click()
    page.keyboard.press("Control+A")
    page.keyboard.insert_text(text)


def _number(page: Page, label: str, value: str) -> None:
    field = page.get_by_label(label)
    field.fill(value)
    field.press("Tab")


def _tile(page: Page, title: str, value: str) -> None:
    tile = page.locator(".ps-tile", has=page.get_by_text(title, exact=True))
    expect(tile.locator(".ps-figure")).to_have_text(value)


def test_queue_list_search_opens_queue(page: Page, queue: str) -> None:
    page.goto("/queues")
    page.get_by_label("Name").fill(queue[5:15])
    page.get_by_role("button", name="Find").click()
    page.get_by_role("link", name=queue).click()

    _tile(page, "Events", "10")
    expect(page.get_by_role("row", name="billing")).to_contain_text("waiting")
    page.get_by_role("link", name="Partitions", exact=True).click()
    expect(page.get_by_role("table", name="Partitions").get_by_role("row")).to_have_count(3)


def test_push_dialog_stores_event_and_shows_it(page: Page, console: ConsoleProcess, queue: str) -> None:
    page.goto(f"/queues?queue={queue}")
    page.get_by_role("button", name="Push a test event").click()
    dialog = page.get_by_role("dialog")
    _type_over(page, "Data of the event", '{"n": }')
    dialog.get_by_role("button", name="Push", exact=True).click()
    expect(page.get_by_text("JSON is malformed")).to_be_visible()
    _type_over(page, "Data of the event", '{"n": 4711, "of": "a <b>test</b>"}')
    dialog.get_by_label("Key").fill("zoe")
    dialog.get_by_role("button", name="Push", exact=True).click()

    expect(page.locator(".ps-event[open] .ps-json")).to_contain_text('"of": "a <b>test</b>"')
    assert 4711 in _data(_pop(console, queue))


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
    _create_dead_letters(console, queue, [])
    page.goto(f"/queues?queue={queue}")
    page.get_by_role("link", name="billing").click()
    _tile(page, "Lag", "0")
    page.get_by_role("button", name="Seek").click()
    page.get_by_role("button", name="Continue").click()
    page.get_by_role("button", name="Confirm").click()

    _tile(page, "Lag", "10")
    assert _data(_pop(console, queue)) == list(range(10))


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
        _tile(page, "State", "resting")
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


def test_queue_option_is_changed_and_reset(page: Page, console: ConsoleProcess, queue: str) -> None:
    page.goto(f"/queues?queue={queue}&tab=options")
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


def test_redrive_delivers_dead_letter_again(page: Page, console: ConsoleProcess, queue: str) -> None:
    (id,) = _create_dead_letters(console, queue, ["KeyError: 'total'"])
    page.goto(f"/dead-letters?queue={queue}")
    page.get_by_role("link", name="KeyError: 'total'").click()
    page.get_by_role("link", name=f"#{id}").click()
    expect(page.get_by_label("Traceback")).to_contain_text("KeyError")
    page.get_by_role("button", name="Redrive").click()

    expect(page.get_by_role("heading", name="Group billing")).to_be_visible()
    (event,) = _pop(console, queue)
    assert event.is_redriven


def test_dead_letter_is_edited_before_redrive(page: Page, console: ConsoleProcess, queue: str) -> None:
    (id,) = _create_dead_letters(console, queue, ["no"])
    page.goto(f"/dead-letters?id={id}")
    _type_over(page, "Data of the event", '{"n": }')
    page.get_by_role("button", name="Redrive").click()
    expect(page.get_by_text("JSON is malformed")).to_be_visible()
    _type_over(page, "Data of the event", '{"n": 42}')
    page.get_by_role("button", name="Redrive").click()

    expect(page.get_by_role("heading", name="Group billing")).to_be_visible()
    assert _data(_pop(console, queue)) == [42]


def test_dead_letters_of_one_kind_are_redriven_or_purged(page: Page, console: ConsoleProcess, queue: str) -> None:
    _create_dead_letters(
        console, queue, ["order 10001 is too old", "order 10002 is too old", "HTTP 404", "HTTP 404", "HTTP 404"]
    )
    page.goto(f"/dead-letters?queue={queue}")
    _tile(page, "Dead letters", "5")
    page.get_by_role("link", name="order # is too old").click()
    page.get_by_role("button", name="Redrive all").click()
    page.get_by_role("dialog").get_by_role("button", name="Redrive all").click()
    page.wait_for_url("**/dead-letters")
    page.goto(f"/dead-letters?queue={queue}")
    _tile(page, "Dead letters", "3")
    page.get_by_role("link", name="HTTP 404").click()
    page.get_by_role("button", name="Purge all").click()
    page.get_by_role("dialog").get_by_role("button", name="Cancel").click()
    expect(page.get_by_role("dialog")).to_be_hidden()
    page.get_by_role("button", name="Purge all").click()
    page.get_by_role("dialog").get_by_role("button", name="Purge all").click()
    page.wait_for_url("**/dead-letters")
    page.goto(f"/dead-letters?queue={queue}")

    expect(page.get_by_role("heading", name="No dead letters")).to_be_visible()
    assert len(_pop(console, queue)) == 2


def _gate(console: ConsoleProcess, key: str) -> GateInfo:
    async def read(log: Log) -> GateInfo:
        (found,) = await GateAdmin(log.database).list(gate_rows.QUERY, key)
        return found

    return run_with_log(console.database_url, read)


def test_gate_limit_is_changed_and_key_is_paused_and_resumed(page: Page, console: ConsoleProcess) -> None:
    page.goto("/gates?waiting=1")
    row = page.get_by_role("row", name="tenant-7")
    expect(row).to_contain_text("waiting")
    expect(page.get_by_role("row", name="tenant-1")).to_have_count(0)
    row.get_by_role("link").click()
    _number(page, "Burst", "350")
    page.get_by_role("button", name="Change the limit").click()
    expect(page.get_by_role("cell", name="burst 350")).to_be_visible()
    page.get_by_role("button", name="Pause").click()
    page.get_by_role("dialog").get_by_role("button", name="Pause").click()
    expect(page.get_by_role("cell", name="paused")).to_be_visible()
    gate = _gate(console, "tenant-7")
    assert (gate.limit, gate.rate, gate.paused) == (350, 0.001, True)

    page.get_by_role("button", name="Resume").click()
    expect(page.get_by_role("cell", name="paused")).to_have_count(0)
    page.get_by_role("button", name="Hold", exact=True).click()
    expect(page.get_by_role("cell", name="on hold")).to_be_visible()
    assert _gate(console, "tenant-1").limit == 200


def test_statement_shows_table_chart_and_csv(page: Page, queue: str) -> None:
    page.goto("/sql")
    _type_over(page, "SQL statement", "SELECT queue, events FROM depth UNION ALL VALUES ('x', 7)")
    page.keyboard.press("Control+Enter")

    table = page.get_by_role("table", name="Result")
    expect(table.get_by_role("cell", name=queue)).to_be_visible()
    expect(page.get_by_text("rows in")).to_be_visible()
    expect(page.get_by_role("img", name="events by queue").locator("path").first).to_be_attached()
    with page.expect_download() as download:
        page.get_by_role("button", name="Download CSV").click()
    assert f"{queue},10" in download.value.path().read_text()

    _type_over(page, "SQL statement", "SELECT '2026-01-15 12:00:00+00'::timestamptz AS noon")
    page.get_by_role("button", name="Run").click()
    expect(page.get_by_role("cell", name="2026-01-15 13:00:00")).to_be_visible()


def test_statement_that_writes_or_is_invalid_shows_error(page: Page, console: ConsoleProcess, queue: str) -> None:
    page.goto("/sql")
    for statement, message in (
        ("DELETE FROM penstock.queues", "syntax error"),
        ("SELECT * FROM penstock.api_keys", "permission denied"),
        ("SELECT nonsense FROM lag", "Line 1, column 8"),
    ):
        _type_over(page, "SQL statement", statement)
        page.get_by_role("button", name="Run").click()
        expect(page.get_by_role("alert").filter(has_text=message)).to_be_visible()
    assert len(_pop(console, queue)) == 10


def test_running_statement_is_stopped(page: Page) -> None:
    page.goto("/sql")
    _type_over(page, "SQL statement", "SELECT pg_sleep(9)")
    page.get_by_role("button", name="Run").click()
    page.get_by_role("button", name="Stop").click()
    expect(page.get_by_role("alert").filter(has_text="the statement was stopped")).to_be_visible()
    expect(page.get_by_role("button", name="Run")).to_be_enabled()


def test_example_statement_is_inserted_and_run(page: Page) -> None:
    page.goto("/sql")
    page.get_by_label("Examples").click()
    page.get_by_role("option", name="Keys that wait at a gate").click()
    expect(page.get_by_role("textbox", name="SQL statement")).to_contain_text("penstock.gates")
    page.get_by_role("button", name="Run").click()
    expect(page.get_by_role("cell", name="tenant-7")).to_be_visible()


def _keys(console: ConsoleProcess) -> tuple[str, str]:
    """Create two keys with the role read: one for all queues, one for queues that do not exist."""

    async def make(log: Log) -> tuple[str, str]:
        keys = ApiKeyStore(log.database)
        _, read_key = await keys.create("all", [Role.READ])
        _, limited_key = await keys.create("some", [Role.READ], ["another.*"])
        return str(read_key), str(limited_key)

    return run_with_log(console.database_url, make)


def test_read_key_sees_disabled_buttons(browser: Browser, console: ConsoleProcess, queue: str) -> None:
    (id,) = _create_dead_letters(console, queue, ["no"])
    read_key, limited_key = _keys(console)
    with start_console(console.database_url, ["--require-access"]) as secured:
        with open_page(browser, secured.url) as page:
            page.goto(f"/dead-letters?id={id}")
            page.get_by_label("API key").fill(read_key)
            page.get_by_role("button", name="Sign in").click()
            expect(page.get_by_role("button", name="Redrive")).to_be_disabled()
            expect(page.get_by_role("button", name="Purge")).to_be_disabled()
            page.goto(f"/queues?queue={queue}")
            expect(page.get_by_role("button", name="Push a test event")).to_be_disabled()
            page.goto(f"/queues?queue={queue}&tab=options&option=retry_limit")
            expect(page.get_by_role("button", name="Change it")).to_be_disabled()
            page.goto(f"/gates?query={gate_rows.QUERY}&key=tenant-1")
            expect(page.get_by_role("button", name="Change the limit")).to_be_disabled()
            # This process has no PENSTOCK_READER_URL.
            page.goto("/sql")
            expect(page.get_by_label("Statements that create the login")).to_contain_text("CREATE ROLE")
            expect(page.get_by_role("button", name="Create the login")).to_have_count(0)
        with open_page(browser, secured.url) as page:
            page.goto(f"/queues?queue={queue}")
            page.get_by_label("API key").fill(limited_key)
            page.get_by_role("button", name="Sign in").click()
            expect(page.get_by_role("heading", name="There is no such queue")).to_be_visible()
            expect(page.get_by_role("link", name="SQL")).to_have_count(0)
            page.goto(f"/dead-letters?id={id}")
            expect(page.get_by_role("heading", name="There is no such dead letter")).to_be_visible()
            for path in ("/sql", "/gates", f"/gates?query={gate_rows.QUERY}&key=tenant-1"):
                page.goto(path)
                expect(page.get_by_role("heading", name="Not for your key")).to_be_visible()


@pytest.mark.parametrize("variant", VARIANTS, ids=lambda variant: variant.name)
def test_pages_are_accessible_and_fit_the_window(
    browser: Browser, console: ConsoleProcess, queue: str, variant: Variant
) -> None:
    (id,) = _create_dead_letters(console, queue, ["KeyError: 'total'"])
    paths = [f"/queues?queue={queue}&tab=events", f"/dead-letters?id={id}", "/sql"]
    if variant in (DESKTOP, VARIANTS[-1]):
        paths += ["/queues", "/dead-letters", f"/gates?query={gate_rows.QUERY}&key=tenant-7"]
    if variant is DESKTOP:
        paths += [
            f"/queues?queue={queue}{more}"
            for more in ("", "&tab=partitions", "&tab=options&option=lease_seconds", "&group=billing")
        ]
        paths.append("/gates")
    with open_page(browser, console.url, variant) as page:
        for path in paths:
            page.goto(path)
            expect(page.locator(".ps-card, .ps-empty").first).to_be_visible()
            if page.locator(".cm-content").count():
                expect(page.locator(".cm-content")).to_have_attribute(
                    "aria-label", "SQL statement" if path == "/sql" else "Data of the event, JSON"
                )
            check_accessible(page)
            check_fits(page)


def test_dialogs_are_accessible_and_fit_the_window(browser: Browser, console: ConsoleProcess, queue: str) -> None:
    _create_dead_letters(console, queue, ["KeyError: 'total'"])
    options = f"/queues?queue={queue}&tab=options&option=retention_drops_unread"
    with open_page(browser, console.url) as page:
        for path, button in (
            (f"/queues?queue={queue}", "Push a test event"),
            (f"/queues?queue={queue}&group=billing", "Seek"),
            (options, "Change it"),
            (f"/gates?query={gate_rows.QUERY}&key=tenant-1", "Pause"),
        ):
            page.goto(path)
            if path == options:
                page.get_by_role("radio", name="yes").click()
            page.get_by_role("button", name=button).click()
            expect(page.get_by_role("dialog")).to_be_visible()
            if page.locator(".cm-content").count():
                expect(page.locator(".cm-content")).to_have_attribute("aria-label", "Data of the event, JSON")
            check_all_variants(page, ".q-dialog", (DESKTOP, VARIANTS[-1]))
            page.keyboard.press("Escape")
            expect(page.get_by_role("dialog")).to_be_hidden()
