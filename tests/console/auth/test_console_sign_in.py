"""Sign-in with an API key, permissions, and the end of a session."""

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
from tests.console.browser import check_accessible, open_page
from tests.console.conftest import run_with_log
from tests.console.console_process import ConsoleProcess, start_console
from tests.console.scripted_query import ScriptedQuery
from tests.servers import TEMPLATE, Server


def create_key(database_url: str, name: str, *roles: Role) -> tuple[str, str]:
    """Create a key and return its id and its text."""

    async def create(log: Log) -> tuple[str, str]:
        key, text = await ApiKeyStore(log.database).create(name, roles)
        return key.id, str(text)

    return run_with_log(database_url, create)


@pytest.fixture(scope="module")
def secured(pg18: Server) -> Iterator[ConsoleProcess]:
    async def prepare(log: Log) -> None:
        await log.configure("orders")
        stream = Stream.from_("orders").window_tumbling(seconds=5).aggregate({"events": agg.count()})
        await ScriptedQuery.start(log, "sales", stream)

    with pg18.fresh_database(TEMPLATE) as url:
        run_with_log(url, prepare)
        create_key(url, "first", Role.ADMIN)
        with start_console(url, ["--require-access"]) as running:
            yield running


@pytest.fixture
def visitor(browser: Browser, secured: ConsoleProcess) -> Iterator[Page]:
    with open_page(browser, secured.url) as opened:
        yield opened


def sign_in(page: Page, key: str) -> None:
    page.get_by_label("API key").fill(key)
    page.get_by_role("button", name="Sign in").click()


def test_sign_in_redirects_to_requested_page(visitor: Page, secured: ConsoleProcess) -> None:
    _, key = create_key(secured.database_url, "reader", Role.READ)
    visitor.goto("/queries?query=sales")
    expect(visitor).to_have_title("Sign in · Penstock")
    check_accessible(visitor)
    sign_in(visitor, key)
    visitor.wait_for_url("**/queries?query=sales")
    expect(visitor.get_by_role("heading", level=1)).to_have_text("Queries")


def test_cookie_is_http_only_and_contains_no_key(visitor: Page, secured: ConsoleProcess) -> None:
    _, key = create_key(secured.database_url, "reader", Role.READ)
    visitor.goto("/")
    sign_in(visitor, key)
    expect(visitor.get_by_role("heading", level=1)).to_have_text("Overview")
    (cookie,) = [cookie for cookie in visitor.context.cookies() if cookie["name"] == "penstock_session"]
    assert cookie["httpOnly"]
    assert cookie["sameSite"] == "Lax"
    secret = key.rpartition("_")[2]
    assert secret not in cookie["value"]
    assert secret not in visitor.content()
    assert visitor.evaluate("JSON.stringify(localStorage) + JSON.stringify(sessionStorage)").find(secret) == -1


def test_read_key_sees_disabled_buttons(visitor: Page, secured: ConsoleProcess) -> None:
    _, key = create_key(secured.database_url, "reader", Role.READ)
    visitor.goto("/queries?query=sales")
    sign_in(visitor, key)
    expect(visitor.get_by_role("button", name="Pause")).to_be_disabled()


def test_admin_action_is_audited(visitor: Page, secured: ConsoleProcess) -> None:
    key_id, key = create_key(secured.database_url, "admin", Role.ADMIN)
    visitor.goto("/queries?query=sales")
    sign_in(visitor, key)
    visitor.get_by_role("button", name="Pause").click()
    expect(visitor.get_by_role("button", name="Resume")).to_be_visible()
    expect(visitor.get_by_text("finishes its cycle and pauses")).to_be_visible()
    (line,) = run_with_log(secured.database_url, lambda log: AuditLog(log.database).read(10, who=key_id))
    assert (line.action, line.subject) == ("POST /v1/queries/{query}/pause", "sales")
    visitor.get_by_role("button", name="Resume").click()
    expect(visitor.get_by_role("button", name="Pause")).to_be_visible()


def test_sign_out_ends_session_for_copies_of_cookie(visitor: Page, secured: ConsoleProcess) -> None:
    _, key = create_key(secured.database_url, "reader", Role.READ)
    visitor.goto("/")
    sign_in(visitor, key)
    expect(visitor.get_by_role("heading", level=1)).to_have_text("Overview")
    copy = {cookie["name"]: cookie["value"] for cookie in visitor.context.cookies()}
    assert httpx.get(f"{secured.url}/queries", cookies=copy).status_code == 200
    visitor.get_by_role("button", name="Sign out").click()
    expect(visitor).to_have_title("Sign in · Penstock")
    assert httpx.get(f"{secured.url}/queries", cookies=copy).status_code == 303


def test_revoked_key_closes_open_pages(visitor: Page, secured: ConsoleProcess) -> None:
    key_id, key = create_key(secured.database_url, "revoked", Role.READ)
    visitor.goto("/")
    sign_in(visitor, key)
    expect(visitor.get_by_role("heading", level=1)).to_have_text("Overview")
    run_with_log(secured.database_url, lambda log: ApiKeyStore(log.database).revoke(key_id))
    expect(visitor).to_have_title("Sign in · Penstock", timeout=30_000)


def test_sign_in_refuses_invalid_keys_and_keys_without_read_role(secured: ConsoleProcess) -> None:
    _, producer = create_key(secured.database_url, "producer", Role.PRODUCE)
    for key, status, message in (
        ("hello", 401, "API keys begin with penstock_"),
        ("penstock_abcdefghjkmn_wrong", 401, "wrong, revoked or expired"),
        (producer, 403, "may not read"),
        ("penstock_\x00_ü", 401, "no API key"),
    ):
        response = httpx.post(f"{secured.url}/sign-in", data={"key": key, "next": "//evil.example"})
        assert response.status_code == status
        assert message in response.text
        assert "penstock_session" not in response.cookies


def test_requests_without_session_are_denied(secured: ConsoleProcess) -> None:
    for path in ("/", "/queries?query=sales", "/live", "/no-such-page"):
        response = httpx.get(f"{secured.url}{path}")
        assert response.status_code == 303
        assert response.headers["location"].startswith("/sign-in?next=%2F")
    for path in (
        "/_nicegui_ws/socket.io/?EIO=4&transport=polling",
        "/_nicegui_ws/socket.io/?EIO=4&transport=websocket",
    ):
        assert httpx.get(f"{secured.url}{path}").status_code == 403


@pytest.mark.parametrize("cookie", ["", "x", "a.1.b.c.d", "a.99999999999.b.c." + "0" * 64, "a.x.b.c.d", "é", "." * 5])
def test_forged_cookie_is_ignored(secured: ConsoleProcess, cookie: str) -> None:
    headers = [(b"Cookie", f"penstock_session={cookie}".encode())]
    assert httpx.get(secured.url, headers=headers).status_code == 303


def test_sign_in_does_not_redirect_to_another_site(secured: ConsoleProcess) -> None:
    _, key = create_key(secured.database_url, "reader", Role.READ)
    for target in ("//evil.example", "https://evil.example", "/\\evil.example", "/sign-in", "\r\nX: 1"):
        response = httpx.post(f"{secured.url}/sign-in", data={"key": key, "next": target})
        assert (response.status_code, response.headers["location"]) == (303, "/")
