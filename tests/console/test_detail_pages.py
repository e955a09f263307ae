"""Queues, gates, dead letters and SQL: what a person sees there, and what becomes of what is pressed."""

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
from tests.console.browsing import DESKTOP, VARIANTS, Variant, check_accessible, check_everywhere, check_fits, open_page
from tests.console.conftest import arrange
from tests.console.running import Running, console_on
from tests.servers import ROLE, TEMPLATE, Server

_READER = "reader_of_console_tests"


@pytest.fixture(scope="module")
def console(pg18: Server) -> Iterator[Running]:
    """A console on a database with a queue, a gated query and the login for SQL."""
    with pg18.fresh_database(TEMPLATE) as url:
        name = str(conninfo_to_dict(url)["dbname"])
        with pg18.superuser(name) as conn:
            conn.execute(render_reader_role(owner=ROLE, database=name, reader=_READER).encode())
        gate_rows.insert_gated_query(url)
        with console_on(url, environ={"PENSTOCK_READER_URL": make_conninfo(url, user=_READER)}) as running:
            yield running
    with pg18.superuser() as conn:
        conn.execute(f"DROP ROLE {_READER}".encode())


@pytest.fixture
def queue(console: Running, request: pytest.FixtureRequest) -> str:
    """A queue of the test's own, which holds ten events of two keys and has a group that has read nothing."""
    name = str(request.node.name).removeprefix("test_")[:60]

    async def make(log: Log) -> None:
        await log.configure(name, {"retry_limit": 0})
        await log.subscribe(name, "billing")
        events = [{"data": {"n": n}, "key": "ada" if n % 2 else "bob", "id": f"e-{n}"} for n in range(10)]
        await log.push([Batch(name, events)])

    arrange(console.database_url, make)
    return name


def _pop(console: Running, queue: str) -> list[Event]:
    async def pop(log: Log) -> list[Event]:
        return await log.pop(PopRequest(queue, "billing", batch=100, partitions=10))

    return arrange(console.database_url, pop)


def _bury(console: Running, queue: str, errors: Sequence[str]) -> list[int]:
    """Make dead letters of as many events, and answer their numbers; all others are done."""

    async def bury(log: Log) -> list[int]:
        events = await log.pop(PopRequest(queue, "billing", batch=100, partitions=10))
        for event, error in zip(events, errors, strict=False):
            await log.ack([event], "dead_letter", error=error, traceback=f"Traceback\n  {error}")
        await log.ack(events[len(errors) :], True)
        return [kind.newest for kind in await log.dead_letter_kinds(queue)]

    return arrange(console.database_url, bury)


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


def test_a_queue_is_found_by_name_and_opened(page: Page, queue: str) -> None:
    page.goto("/queues")
    page.get_by_label("Name").fill(queue[5:15])
    page.get_by_role("button", name="Find").click()
    page.get_by_role("link", name=queue).click()

    _tile(page, "Events kept", "10")
    expect(page.get_by_role("row", name="billing")).to_contain_text("waiting")
    page.get_by_role("link", name="Partitions", exact=True).click()
    expect(page.get_by_role("table", name="Partitions").get_by_role("row")).to_have_count(3)


def test_a_test_event_is_pushed_and_seen(page: Page, console: Running, queue: str) -> None:
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


def test_events_are_looked_at_by_key_and_by_offset(page: Page, queue: str) -> None:
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


def test_a_group_is_moved(page: Page, console: Running, queue: str) -> None:
    _bury(console, queue, [])
    page.goto(f"/queues?queue={queue}")
    page.get_by_role("link", name="billing").click()
    _tile(page, "Behind", "0")
    page.get_by_role("button", name="Move the group").click()
    page.get_by_role("button", name="Go on").click()
    page.get_by_role("button", name="Move it").click()

    _tile(page, "Behind", "10")
    assert _data(_pop(console, queue)) == list(range(10))


@contextmanager
def _unreachable(console: Running, queue: str) -> Iterator[None]:
    """A webhook, as the group partner, to where nobody listens, for as long as the block runs."""
    began: Future[tuple[asyncio.AbstractEventLoop, Sinks]] = Future()

    async def run(url: str) -> None:
        async with Sinks(console.database_url) as sinks:
            sinks.add(queue, Webhook(url, allow=["127.0.0.1"], breaker=1), group="partner")
            began.set_result((asyncio.get_running_loop(), sinks))
            await sinks.run()

    with socket.socket() as nobody, ThreadPoolExecutor(1) as threads:
        nobody.bind(("127.0.0.1", 0))
        running = threads.submit(lambda: asyncio.run(run(f"http://127.0.0.1:{nobody.getsockname()[1]}/")))
        loop, sinks = began.result(30)
        try:
            yield
        finally:
            loop.call_soon_threadsafe(sinks.stop)
            running.result(30)


def test_a_sink_in_trouble_is_told_of_and_leads_to_the_reason(page: Page, console: Running, queue: str) -> None:
    with _unreachable(console, queue):
        page.goto("/")
        finding = page.get_by_role("link", name=f"The sink partner of {queue} has failed too often and rests")
        finding.click()
        _tile(page, "State", "resting")
        expect(page.get_by_text("cannot be reached")).to_be_visible()
        expect(page.get_by_text("a sink, at least once")).to_be_visible()
        check_everywhere(page, variants=(DESKTOP, VARIANTS[-1]))
        page.goto(f"/queues?queue={queue}")
        expect(page.get_by_role("row", name="partner")).to_contain_text("resting")
    expect(page.get_by_role("row", name="partner")).to_contain_text("stopped")


def _option(console: Running, queue: str, name: str) -> Any:
    async def look(log: Log) -> Any:
        return getattr(await log.catalog.refresh(queue), name)

    return arrange(console.database_url, look)


def test_an_option_is_changed_and_changed_back(page: Page, console: Running, queue: str) -> None:
    page.goto(f"/queues?queue={queue}&tab=options")
    page.get_by_role("link", name="retry_limit").click()
    field = page.get_by_label("retry_limit, now 0")
    for given, said in (("many", "must be a whole number"), ("-1", "must be at least 0"), ("", "needs a value")):
        field.fill(given)
        page.get_by_role("button", name="Change it").click()
        expect(page.get_by_role("alert").filter(has_text=said)).to_be_visible()
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
    page.get_by_role("button", name="Back to refuse, the default").click()
    page.get_by_role("dialog").get_by_role("button", name="Change it").click()
    expect(page.get_by_text("sheds when full")).to_have_count(0)
    assert _option(console, queue, "overflow") == "refuse"


def test_a_dead_letter_is_sent_back_and_comes_again(page: Page, console: Running, queue: str) -> None:
    (id,) = _bury(console, queue, ["KeyError: 'total'"])
    page.goto(f"/dead-letters?queue={queue}")
    page.get_by_role("link", name="KeyError: 'total'").click()
    page.get_by_role("link", name=f"#{id}").click()
    expect(page.get_by_label("Traceback")).to_contain_text("KeyError")
    page.get_by_role("button", name="Redrive").click()

    expect(page.get_by_role("heading", name="Group billing")).to_be_visible()
    (event,) = _pop(console, queue)
    assert event.is_redriven


def test_a_dead_letter_is_corrected_before_it_is_sent_back(page: Page, console: Running, queue: str) -> None:
    (id,) = _bury(console, queue, ["no"])
    page.goto(f"/dead-letters?id={id}")
    _type_over(page, "Data of the event", '{"n": }')
    page.get_by_role("button", name="Redrive").click()
    expect(page.get_by_text("JSON is malformed")).to_be_visible()
    _type_over(page, "Data of the event", '{"n": 42}')
    page.get_by_role("button", name="Redrive").click()

    expect(page.get_by_role("heading", name="Group billing")).to_be_visible()
    assert _data(_pop(console, queue)) == [42]


def test_all_of_a_kind_are_sent_back_or_thrown_away(page: Page, console: Running, queue: str) -> None:
    _bury(console, queue, ["order 10001 is too old", "order 10002 is too old", "HTTP 404", "HTTP 404", "HTTP 404"])
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


def _gate(console: Running, key: str) -> GateInfo:
    async def look(log: Log) -> GateInfo:
        (found,) = await GateAdmin(log.database).list(gate_rows.QUERY, key)
        return found

    return arrange(console.database_url, look)


def test_a_limit_is_changed_and_a_tenant_is_paused_and_resumed(page: Page, console: Running) -> None:
    page.goto("/gates?waiting=1")
    row = page.get_by_role("row", name="tenant-7")
    expect(row).to_contain_text("waits")
    expect(page.get_by_role("row", name="tenant-1")).to_have_count(0)
    row.get_by_role("link").click()
    _number(page, "At once", "350")
    page.get_by_role("button", name="Change the limit").click()
    expect(page.get_by_role("cell", name="350 at once")).to_be_visible()
    page.get_by_role("button", name="Pause").click()
    page.get_by_role("dialog").get_by_role("button", name="Pause").click()
    expect(page.get_by_role("cell", name="paused")).to_be_visible()
    gate = _gate(console, "tenant-7")
    assert (gate.limit, gate.rate, gate.paused) == (350, 0.001, True)

    page.get_by_role("button", name="Resume").click()
    expect(page.get_by_role("cell", name="paused")).to_have_count(0)
    page.get_by_role("button", name="Hold", exact=True).click()
    expect(page.get_by_role("cell", name="held back")).to_be_visible()
    assert _gate(console, "tenant-1").limit == 200


def test_a_statement_gives_a_table_a_chart_and_a_file(page: Page, queue: str) -> None:
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


def test_a_statement_that_is_no_query_is_refused(page: Page, console: Running, queue: str) -> None:
    page.goto("/sql")
    for statement, said in (
        ("DELETE FROM penstock.queues", "syntax error"),
        ("SELECT * FROM penstock.api_keys", "permission denied"),
        ("SELECT nonsense FROM lag", "Line 1, column 8"),
    ):
        _type_over(page, "SQL statement", statement)
        page.get_by_role("button", name="Run").click()
        expect(page.get_by_role("alert").filter(has_text=said)).to_be_visible()
    assert len(_pop(console, queue)) == 10


def test_a_statement_is_stopped(page: Page) -> None:
    page.goto("/sql")
    _type_over(page, "SQL statement", "SELECT pg_sleep(9)")
    page.get_by_role("button", name="Run").click()
    page.get_by_role("button", name="Stop").click()
    expect(page.get_by_role("alert").filter(has_text="it was stopped")).to_be_visible()
    expect(page.get_by_role("button", name="Run")).to_be_enabled()


def test_a_ready_question_is_written_and_answered(page: Page) -> None:
    page.goto("/sql")
    page.get_by_label("Ready questions").click()
    page.get_by_role("option", name="Who waits at a gate").click()
    expect(page.get_by_role("textbox", name="SQL statement")).to_contain_text("penstock.gates")
    page.get_by_role("button", name="Run").click()
    expect(page.get_by_role("cell", name="tenant-7")).to_be_visible()


def _keys(console: Running) -> tuple[str, str]:
    """The keys of two who may read: one everything, the other some queues that are not there."""

    async def make(log: Log) -> tuple[str, str]:
        keys = ApiKeyStore(log.database)
        _, everything = await keys.create("all", [Role.READ])
        _, something = await keys.create("some", [Role.READ], ["another.*"])
        return str(everything), str(something)

    return arrange(console.database_url, make)


def test_a_reader_may_look_and_not_press(browser: Browser, console: Running, queue: str) -> None:
    (id,) = _bury(console, queue, ["no"])
    everything, something = _keys(console)
    with console_on(console.database_url, ["--require-access"]) as guarded:
        with open_page(browser, guarded.url) as page:
            page.goto(f"/dead-letters?id={id}")
            page.get_by_label("API key").fill(everything)
            page.get_by_role("button", name="Sign in").click()
            expect(page.get_by_role("button", name="Redrive")).to_be_disabled()
            expect(page.get_by_role("button", name="Purge")).to_be_disabled()
            page.goto(f"/queues?queue={queue}")
            expect(page.get_by_role("button", name="Push a test event")).to_be_disabled()
            page.goto(f"/queues?queue={queue}&tab=options&option=retry_limit")
            expect(page.get_by_role("button", name="Change it")).to_be_disabled()
            page.goto(f"/gates?query={gate_rows.QUERY}&key=tenant-1")
            expect(page.get_by_role("button", name="Change the limit")).to_be_disabled()
            # This one was told of no login for SQL.
            page.goto("/sql")
            expect(page.get_by_label("Statements that make the login")).to_contain_text("CREATE ROLE")
            expect(page.get_by_role("button", name="Make the login")).to_have_count(0)
        with open_page(browser, guarded.url) as page:
            page.goto(f"/queues?queue={queue}")
            page.get_by_label("API key").fill(something)
            page.get_by_role("button", name="Sign in").click()
            expect(page.get_by_role("heading", name="There is no such queue")).to_be_visible()
            expect(page.get_by_role("link", name="SQL")).to_have_count(0)
            page.goto(f"/dead-letters?id={id}")
            expect(page.get_by_role("heading", name="There is no such dead letter")).to_be_visible()
            for path in ("/sql", "/gates", f"/gates?query={gate_rows.QUERY}&key=tenant-1"):
                page.goto(path)
                expect(page.get_by_role("heading", name="Not for your key")).to_be_visible()


@pytest.mark.parametrize("variant", VARIANTS, ids=lambda variant: variant.name)
def test_every_page_is_accessible_and_fits_everywhere(
    browser: Browser, console: Running, queue: str, variant: Variant
) -> None:
    (id,) = _bury(console, queue, ["KeyError: 'total'"])
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


def test_every_dialog_is_accessible_and_fits(browser: Browser, console: Running, queue: str) -> None:
    _bury(console, queue, ["KeyError: 'total'"])
    options = f"/queues?queue={queue}&tab=options&option=retention_drops_unread"
    with open_page(browser, console.url) as page:
        for path, button in (
            (f"/queues?queue={queue}", "Push a test event"),
            (f"/queues?queue={queue}&group=billing", "Move the group"),
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
            check_everywhere(page, ".q-dialog", (DESKTOP, VARIANTS[-1]))
            page.keyboard.press("Escape")
            expect(page.get_by_role("dialog")).to_be_hidden()
