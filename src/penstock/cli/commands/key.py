"""``penstock key``: API keys of the server and the audit log."""

from __future__ import annotations

import getpass
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import asdict
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli.command import command
from penstock.cli.command_session import CommandSession
from penstock.cli.commands.queue import Yes
from penstock.cli.times import format_time, parse_duration
from penstock.core.errors import DatabaseError

if TYPE_CHECKING:
    from penstock.server.auth.api_keys import ApiKey, ApiKeyStore
    from penstock.server.auth.audit import AuditLog
    from penstock.server.auth.key_format import PlaintextKey

app = typer.Typer(help="API keys of the server: create, list, rotate and revoke them, and read the audit log.")

KeyId = Annotated[str, typer.Argument(metavar="ID", help="The id of the key: the part between its underscores.")]
ROLES = ("produce", "consume", "read", "admin")


@command(
    app,
    "create",
    examples=[
        "penstock key create shop --role produce --queue 'shop.*'",
        "penstock key create dashboard --role read --expires 90d",
        "penstock key create me --role admin",
    ],
)
async def create(
    session: CommandSession,
    name: Annotated[str, typer.Argument(metavar="NAME", help="The name of the owner.")],
    role: Annotated[
        list[str], typer.Option(metavar="ROLE", help=f"A role of the key: {', '.join(ROLES)}; may be repeated.")
    ],
    queue: Annotated[
        list[str] | None,
        typer.Option(
            metavar="PATTERN",
            help="A pattern of queue names (* any text, ? any character); may be repeated.",
            show_default="all",
        ),
    ] = None,
    expires: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="The lifetime of the key, such as 90d or 12h.", show_default="no expiry"),
    ] = None,
) -> None:
    """Create a key and print it. Only its hash is stored, so it cannot be shown again."""
    from penstock.server.auth.identity import ALL_QUEUES, Role

    unknown = [name for name in role if name not in ROLES]
    if unknown:
        raise typer.BadParameter(f"there is no role {unknown[0]!r}: use one of {', '.join(ROLES)}")
    expires_at = None if expires is None else datetime.now(UTC) + parse_duration(expires)
    async with _open_stores(session) as (keys, audit):
        key, text = await keys.create(name, [Role(name) for name in role], queue or ALL_QUEUES, expires_at=expires_at)
        await _write_audit(session, audit, "key create", key)
    _print_new_key(session, key, text)


@command(app, "list", examples=["penstock key list", "penstock key list --json"])
async def list_keys(session: CommandSession) -> None:
    """List the keys, without their secrets."""
    async with _open_stores(session) as (keys, _):
        api_keys = await keys.list_all()
    rows = [
        (
            key.id,
            key.name,
            ", ".join(key.roles),
            ", ".join(key.queues),
            _state(key),
            format_time(key.created_at),
            format_time(key.last_used_at) if key.last_used_at else "never",
        )
        for key in api_keys
    ]
    columns = ("id", "name", "roles", "queues", "state", "created", "last used")
    empty = "There is no key yet. Create one with `penstock key create NAME --role ROLE`."
    session.out.listing([asdict(key) for key in api_keys], columns, rows, empty=empty)


@command(app, "rotate", examples=["penstock key rotate k3m9x2abcdef", "penstock key rotate k3m9x2abcdef --grace 0s"])
async def rotate(
    session: CommandSession,
    key_id: KeyId,
    grace: Annotated[
        str, typer.Option(metavar="TIME", help="How long the old secret stays valid, such as 24h or 0s.")
    ] = "24h",
) -> None:
    """Replace the secret of a key and print the new key."""
    async with _open_stores(session) as (keys, audit):
        key, text = await keys.rotate(key_id, parse_duration(grace))
        await _write_audit(session, audit, "key rotate", key)
    _print_new_key(session, key, text)


@command(app, "revoke", examples=["penstock key revoke k3m9x2abcdef"])
async def revoke(session: CommandSession, key_id: KeyId, yes: Yes = False) -> None:
    """Revoke a key. Every server rejects it within five seconds."""
    async with _open_stores(session) as (keys, audit):
        names = {key.id: key.name for key in await keys.list_all()}
        if not yes and key_id in names:
            session.out.confirm(f"Revoke key {key_id} ({names[key_id]})?")
        key = await keys.revoke(key_id)
        await _write_audit(session, audit, "key revoke", key)
    session.out.result(asdict(key), f"Revoked key {key.id} ({key.name}).")


@command(app, "audit", examples=["penstock key audit", "penstock key audit --limit 500 --json"])
async def audit(
    session: CommandSession,
    limit: Annotated[
        int, typer.Option("--limit", "-n", min=1, max=100_000, help="The maximum number of entries.")
    ] = 50,
    who: Annotated[
        str | None, typer.Option(metavar="ID", help="Show entries of this caller only.", show_default=False)
    ] = None,
) -> None:
    """Show the audit log, newest first: administrative actions, changes to keys, and rejected requests."""
    async with _open_stores(session) as (_, log):
        entries = await log.read(limit, who)
    rows = [
        (format_time(entry.at), entry.who, entry.action, entry.subject, entry.address, entry.outcome, entry.request_id)
        for entry in entries
    ]
    columns = ("at", "who", "action", "subject", "address", "outcome", "request")
    session.out.listing([asdict(entry) for entry in entries], columns, rows, empty="The audit log is empty.")


@asynccontextmanager
async def _open_stores(session: CommandSession) -> AsyncIterator[tuple[ApiKeyStore, AuditLog]]:
    from penstock.server.auth.api_keys import ApiKeyStore
    from penstock.server.auth.audit import AuditLog

    async with session.log() as log:
        yield ApiKeyStore(log.database), AuditLog(log.database)


async def _write_audit(session: CommandSession, audit: AuditLog, action: str, key: ApiKey) -> None:
    import psycopg

    from penstock.server.auth.audit import AuditEntry

    try:
        user = getpass.getuser()
    except (KeyError, OSError):
        user = "unknown"
    try:
        await audit.write([AuditEntry(f"cli:{user}", action, f"{key.id} {key.name}")])
    except (DatabaseError, psycopg.Error) as error:
        # The change is committed, and the new secret must still be printed: it cannot be shown again.
        reason = str(error).partition("\n")[0]
        session.out.warn(f"{action} succeeded, but the audit log could not be written: {reason}")


def _print_new_key(session: CommandSession, key: ApiKey, text: PlaintextKey) -> None:
    if session.out.json:
        session.out.document({**asdict(key), "key": str(text)})
        return
    session.out.hint(f"Key {key.id} ({key.name}): {', '.join(key.roles)} for {', '.join(key.queues)}.")
    if key.previous_until is not None:
        session.out.hint(f"The old secret is valid until {format_time(key.previous_until)}.")
    session.out.hint("Store the key now: it is not shown again.")
    session.out.text(str(text))


def _state(key: ApiKey) -> str:
    if key.revoked_at is not None:
        return f"revoked {format_time(key.revoked_at)}"
    if key.expires_at is None:
        return "valid"
    return f"{'valid until' if key.expires_at > datetime.now(UTC) else 'expired'} {format_time(key.expires_at)}"
