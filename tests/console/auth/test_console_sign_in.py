"""Sign-in with an API key or a token, permissions, and the end of a session."""

from __future__ import annotations

import time
from collections.abc import Iterator

import httpx
import jwt
import pytest
from playwright.sync_api import Browser, Page, expect

from penstock import Stream, agg
from penstock.console.auth.sessions import SESSION_SECONDS, SessionCookies
from penstock.log.log import Log
from penstock.server.auth.api_keys import ApiKeyStore
from penstock.server.auth.audit import AuditLog
from penstock.server.auth.identity import Identity, Role
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


TOKEN_SECRET = "a secret of the issuer, of thirty-two bytes and more"  # noqa: S105 - for a test


@pytest.fixture(scope="module")
def secured_by_tokens(pg18: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ConsoleProcess]:
    secret_file = tmp_path_factory.mktemp("tokens") / "secret"
    secret_file.write_text(TOKEN_SECRET)
    environment = {"PENSTOCK_JWT_SECRET_FILE": str(secret_file)}
    with (
        pg18.fresh_database(TEMPLATE) as url,
        start_console(url, ["--require-access"], environment) as running,
    ):
        yield running


def sign_token(seconds: float = 600, **claims: object) -> str:
    return jwt.encode({"sub": "ada", "exp": time.time() + seconds, **claims}, TOKEN_SECRET, "HS256")


def test_sign_in_with_a_token(browser: Browser, secured_by_tokens: ConsoleProcess) -> None:
    token = sign_token(role="read-only")
    with open_page(browser, secured_by_tokens.url) as page:
        page.goto("/queues")
        expect(page.get_by_text("an API key or a bearer token (JWT)")).to_be_visible()
        check_accessible(page)
        page.get_by_label("API key or token").fill(token)
        page.get_by_role("button", name="Sign in").click()
        page.wait_for_url("**/queues")
        expect(page.get_by_role("heading", level=1)).to_have_text("Queues")
        (cookie,) = [cookie for cookie in page.context.cookies() if cookie["name"] == "penstock_session"]
        assert token.rpartition(".")[2] not in cookie["value"]
        page.get_by_role("button", name="Sign out").click()
        expect(page).to_have_title("Sign in · Penstock")
    copy = {"penstock_session": cookie["value"]}
    assert httpx.get(f"{secured_by_tokens.url}/queues", cookies=copy).status_code == 303


def test_the_session_of_a_token_ends_with_the_token() -> None:
    now = [1_000.0]
    sessions = SessionCookies("secret", clock=lambda: now[0])
    ada = Identity("token:ada", frozenset({Role.READ, Role.CONSUME}), ("shop.*",))
    cookie = sessions.create_for_token(ada, now[0] + 60)
    session = sessions.parse(cookie)
    assert session is not None
    assert session.identity == ada
    now[0] += 61
    assert sessions.parse(cookie) is None
    long_lived = sessions.create_for_token(ada, now[0] + 1e9)
    now[0] += SESSION_SECONDS + 1
    assert sessions.parse(long_lived) is None


def test_sign_in_refuses_invalid_tokens(secured_by_tokens: ConsoleProcess) -> None:
    for token, status, message in (
        (sign_token(-60, role="read"), 401, "the token is expired"),
        (sign_token(role="read")[:-4] + "AAAA", 401, "not signed with a known key"),
        (sign_token(role="produce"), 403, "This token may not read"),
        (sign_token(role="read", queues=["q" * 40] * 100), 403, "too many queues"),
        ("hello", 401, "neither a key nor a token"),
        ("é", 401, "neither a key nor a token"),
    ):
        response = httpx.post(f"{secured_by_tokens.url}/sign-in", data={"key": token})
        assert (response.status_code, message in response.text) == (status, True), response.text
        assert "penstock_session" not in response.cookies
