"""Signing in with a key: who is let in, what a reader may press, and how a session ends."""

from __future__ import annotations

from collections.abc import Iterator

import httpx
import pytest
from playwright.sync_api import Browser, Page, expect

from penstock import Stream, agg
from penstock.log.log import Log
from penstock.server.auth.api_keys import ApiKeyStore
from penstock.server.auth.audit import AuditLog
from penstock.server.auth.identity import Role
from tests.console.browsing import check_accessible, open_page
from tests.console.conftest import arrange
from tests.console.driving import Driven
from tests.console.running import Running, console_on
from tests.servers import TEMPLATE, Server


def key_of(database_url: str, name: str, *roles: Role) -> tuple[str, str]:
    """Make a key; returns its id and its text."""

    async def make(log: Log) -> tuple[str, str]:
        key, text = await ApiKeyStore(log.database).create(name, roles)
        return key.id, str(text)

    return arrange(database_url, make)


@pytest.fixture(scope="module")
def guarded(pg18: Server) -> Iterator[Running]:
    async def prepare(log: Log) -> None:
        await log.configure("orders")
        stream = Stream.from_("orders").window_tumbling(seconds=5).aggregate({"events": agg.count()})
        await Driven.start(log, "sales", stream)

    with pg18.fresh_database(TEMPLATE) as url:
        arrange(url, prepare)
        key_of(url, "first", Role.ADMIN)
        with console_on(url, ["--require-access"]) as running:
            yield running


@pytest.fixture
def visitor(browser: Browser, guarded: Running) -> Iterator[Page]:
    with open_page(browser, guarded.url) as opened:
        yield opened


def sign_in(page: Page, key: str) -> None:
    page.get_by_label("API key").fill(key)
    page.get_by_role("button", name="Sign in").click()


def test_who_is_not_signed_in_is_asked_for_a_key_and_goes_on_where_he_wanted(visitor: Page, guarded: Running) -> None:
    _, key = key_of(guarded.database_url, "reader", Role.READ)
    visitor.goto("/queries?query=sales")
    expect(visitor).to_have_title("Sign in · Penstock")
    check_accessible(visitor)
    sign_in(visitor, key)
    visitor.wait_for_url("**/queries?query=sales")
    expect(visitor.get_by_role("heading", level=1)).to_have_text("Queries")


def test_the_cookie_is_for_the_browser_alone_and_holds_no_key(visitor: Page, guarded: Running) -> None:
    _, key = key_of(guarded.database_url, "reader", Role.READ)
    visitor.goto("/")
    sign_in(visitor, key)
    expect(visitor.get_by_role("heading", level=1)).to_have_text("Overview")
    (cookie,) = [each for each in visitor.context.cookies() if each["name"] == "penstock_session"]
    assert cookie["httpOnly"]
    assert cookie["sameSite"] == "Lax"
    secret = key.rpartition("_")[2]
    assert secret not in cookie["value"]
    assert secret not in visitor.content()
    assert visitor.evaluate("JSON.stringify(localStorage) + JSON.stringify(sessionStorage)").find(secret) == -1


def test_a_reader_looks_and_cannot_press(visitor: Page, guarded: Running) -> None:
    _, key = key_of(guarded.database_url, "reader", Role.READ)
    visitor.goto("/queries?query=sales")
    sign_in(visitor, key)
    expect(visitor.get_by_role("button", name="Pause")).to_be_disabled()


def test_what_an_administrator_does_is_written_down(visitor: Page, guarded: Running) -> None:
    key_id, key = key_of(guarded.database_url, "boss", Role.ADMIN)
    visitor.goto("/queries?query=sales")
    sign_in(visitor, key)
    visitor.get_by_role("button", name="Pause").click()
    expect(visitor.get_by_role("button", name="Resume")).to_be_visible()
    expect(visitor.get_by_text("finishes its cycle and pauses")).to_be_visible()
    (line,) = arrange(guarded.database_url, lambda log: AuditLog(log.database).read(10, who=key_id))
    assert (line.action, line.subject) == ("POST /v1/queries/{query}/pause", "sales")
    visitor.get_by_role("button", name="Resume").click()
    expect(visitor.get_by_role("button", name="Pause")).to_be_visible()


def test_signing_out_ends_the_session_for_every_copy_of_the_cookie(visitor: Page, guarded: Running) -> None:
    _, key = key_of(guarded.database_url, "reader", Role.READ)
    visitor.goto("/")
    sign_in(visitor, key)
    expect(visitor.get_by_role("heading", level=1)).to_have_text("Overview")
    copy = {each["name"]: each["value"] for each in visitor.context.cookies()}
    assert httpx.get(f"{guarded.url}/queries", cookies=copy).status_code == 200
    visitor.get_by_role("button", name="Sign out").click()
    expect(visitor).to_have_title("Sign in · Penstock")
    assert httpx.get(f"{guarded.url}/queries", cookies=copy).status_code == 303


def test_a_key_that_is_revoked_takes_its_open_pages_with_it(visitor: Page, guarded: Running) -> None:
    key_id, key = key_of(guarded.database_url, "leaver", Role.READ)
    visitor.goto("/")
    sign_in(visitor, key)
    expect(visitor.get_by_role("heading", level=1)).to_have_text("Overview")
    arrange(guarded.database_url, lambda log: ApiKeyStore(log.database).revoke(key_id))
    expect(visitor).to_have_title("Sign in · Penstock", timeout=30_000)


def test_wrong_keys_are_refused_and_a_key_that_may_not_read_too(guarded: Running) -> None:
    _, producer = key_of(guarded.database_url, "producer", Role.PRODUCE)
    for key, status, said in (
        ("hello", 401, "API keys begin with penstock_"),
        ("penstock_abcdefghjkmn_wrong", 401, "wrong, revoked or expired"),
        (producer, 403, "may not read"),
        ("penstock_\x00_ü", 401, "no API key"),
    ):
        answer = httpx.post(f"{guarded.url}/sign-in", data={"key": key, "next": "//evil.example"})
        assert answer.status_code == status
        assert said in answer.text
        assert "penstock_session" not in answer.cookies


def test_nothing_is_told_to_who_is_not_signed_in(guarded: Running) -> None:
    for path in ("/", "/queries?query=sales", "/live", "/no-such-page"):
        answer = httpx.get(f"{guarded.url}{path}")
        assert answer.status_code == 303
        assert answer.headers["location"].startswith("/sign-in?next=%2F")
    for path in (
        "/_nicegui_ws/socket.io/?EIO=4&transport=polling",
        "/_nicegui_ws/socket.io/?EIO=4&transport=websocket",
    ):
        assert httpx.get(f"{guarded.url}{path}").status_code == 403


@pytest.mark.parametrize("cookie", ["", "x", "a.1.b.c.d", "a.99999999999.b.c." + "0" * 64, "a.x.b.c.d", "é", "." * 5])
def test_a_cookie_that_is_not_ours_is_none(guarded: Running, cookie: str) -> None:
    headers = [(b"Cookie", f"penstock_session={cookie}".encode())]
    assert httpx.get(guarded.url, headers=headers).status_code == 303


def test_after_signing_in_nobody_is_led_to_another_site(guarded: Running) -> None:
    _, key = key_of(guarded.database_url, "reader", Role.READ)
    for onward in ("//evil.example", "https://evil.example", "/\\evil.example", "/sign-in", "\r\nX: 1"):
        answer = httpx.post(f"{guarded.url}/sign-in", data={"key": key, "next": onward})
        assert (answer.status_code, answer.headers["location"]) == (303, "/")
