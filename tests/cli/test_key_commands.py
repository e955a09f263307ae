from __future__ import annotations

import json

import psycopg
import pytest

from penstock.server.auth.key_format import parse_key
from tests.cli.command_line import CommandLine
from tests.server.keys import audit_rejecting_writes


def test_key_is_printed_once_and_stored_as_a_hash(cli: CommandLine) -> None:
    key = cli.ok("key", "create", "shop", "--role", "produce", "--queue", "shop.*").splitlines()[-1]
    parsed = parse_key(key)
    assert parsed is not None
    assert len(parsed.secret) >= 43
    (listed,) = cli.json("key", "list")
    assert (listed["id"], listed["roles"], listed["queues"]) == (parsed.id, ["produce"], ["shop.*"])
    assert parsed.secret not in cli.ok("key", "list") + cli.ok("key", "list", "--json") + cli.ok("key", "audit")
    with psycopg.connect(cli.database_url or "") as conn:
        stored = str(conn.execute("SELECT * FROM penstock.api_keys").fetchall())
    assert parsed.secret not in stored
    assert parsed.hash.hex() in stored.replace("\\x", "") or repr(parsed.hash) in stored


def test_key_is_printed_if_the_audit_log_cannot_be_written(cli: CommandLine) -> None:
    with audit_rejecting_writes(cli.database_url or ""):
        created = cli("key", "create", "shop", "--role", "read", "--json")
    assert created.exit_code == 0, created.output
    assert "audit log" in created.stderr
    assert parse_key(json.loads(created.stdout)["key"]) is not None


def test_rotate_and_revoke(cli: CommandLine) -> None:
    created = cli.json("key", "create", "shop", "--role", "read")
    rotated = cli.json("key", "rotate", created["id"], "--grace", "1h")
    assert rotated["id"] == created["id"]
    assert rotated["key"] != created["key"]
    assert rotated["previous_until"] is not None
    cli.ok("key", "revoke", created["id"], "--yes")
    assert cli.json("key", "list")[0]["revoked_at"] is not None
    assert cli("key", "rotate", created["id"]).exit_code == 3
    assert [line["action"] for line in cli.json("key", "audit")] == ["key revoke", "key rotate", "key create"]
    assert all(line["who"].startswith("cli:") for line in cli.json("key", "audit"))


def test_revoke_asks_only_if_the_key_exists(cli: CommandLine) -> None:
    created = cli.json("key", "create", "shop", "--role", "read")
    asked = cli("key", "revoke", created["id"], input="n\n")
    assert asked.exit_code == 1
    assert f"Revoke key {created['id']} (shop)?" in asked.stderr
    code, line = cli.error("key", "revoke", "nobody")
    assert code == 3
    assert "there is no active key 'nobody'" in line


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["create", "a", "--role", "root"], 2, "there is no role 'root'"),
        (["create", "a", "--role", "read", "--expires", "soon"], 2, "is not a duration"),
        (["create", " a", "--role", "read"], 2, "must be printable"),
        (["create", "a", "--role", "read", "--queue", ""], 2, "must not be empty"),
        (["revoke", "nobody", "--yes"], 3, "there is no active key 'nobody'"),
        (["rotate", "nobody"], 3, "there is no active key 'nobody'"),
    ],
)
def test_invalid_arguments_are_rejected(cli: CommandLine, arguments: list[str], code: int, message: str) -> None:
    result = cli("key", *arguments)
    assert result.exit_code == code
    assert message in " ".join(result.stderr.split())
