"""``penstock key``: who may call the server."""

from __future__ import annotations

import getpass
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import asdict
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli.command import command
from penstock.cli.commands.queue import Yes
from penstock.cli.session import Session
from penstock.cli.times import parse_duration, show_time

if TYPE_CHECKING:
    from penstock.server.auth.api_keys import ApiKey, ApiKeyStore
    from penstock.server.auth.audit import AuditLog
    from penstock.server.auth.key_format import PlaintextKey

app = typer.Typer(help="API keys of the server: who may do what with which queues.")

KeyId = Annotated[str, typer.Argument(metavar="ID", help="The key's id: the part between its underscores.")]
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
    session: Session,
    name: Annotated[str, typer.Argument(metavar="NAME", help="Whose key it is.")],
    role: Annotated[
        list[str], typer.Option(metavar="ROLE", help=f"What it may do: {', '.join(ROLES)}; may be repeated.")
    ],
    queue: Annotated[
        list[str] | None,
        typer.Option(
            metavar="PATTERN",
            help="The queues it is for: * is any text, ? any character; may be repeated.",
            show_default="all",
        ),
    ] = None,
    expires: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="Good for this long, such as 90d or 12h.", show_default="for ever"),
    ] = None,
) -> None:
    """Make a key, and print it: it is stored as a hash only, so this is the one time to see it."""
    from penstock.server.auth.identity import ALL_QUEUES, Role

    unknown = [each for each in role if each not in ROLES]
    if unknown:
        raise typer.BadParameter(f"there is no role {unknown[0]!r}: it is one of {', '.join(ROLES)}")
    until = None if expires is None else datetime.now(UTC) + parse_duration(expires)
    async with _opened(session) as (keys, audit):
        key, text = await keys.create(name, [Role(each) for each in role], queue or ALL_QUEUES, expires_at=until)
        await _note(session, audit, "key create", key)
    _show_new(session, key, text)


@command(app, "list", examples=["penstock key list", "penstock key list --json"])
async def list_keys(session: Session) -> None:
    """List the keys, without their secrets."""
    async with _opened(session) as (keys, _):
        found = await keys.list_all()
    if session.out.json:
        session.out.document([asdict(key) for key in found])
        return
    if not found:
        session.out.hint("There is no key yet: `penstock key create NAME --role ROLE` makes one.")
        return
    rows = [
        (
            key.id,
            key.name,
            ", ".join(key.roles),
            ", ".join(key.queues),
            _state(key),
            show_time(key.created_at),
            show_time(key.last_used_at) if key.last_used_at else "never",
        )
        for key in found
    ]
    session.out.table(("id", "name", "roles", "queues", "state", "created", "last used"), rows)


@command(app, "rotate", examples=["penstock key rotate k3m9x2abcdef", "penstock key rotate k3m9x2abcdef --grace 0s"])
async def rotate(
    session: Session,
    key_id: KeyId,
    grace: Annotated[
        str, typer.Option(metavar="TIME", help="How long the secret that it has is still good, such as 24h or 0s.")
    ] = "24h",
) -> None:
    """Give a key a new secret, and print it."""
    async with _opened(session) as (keys, audit):
        key, text = await keys.rotate(key_id, parse_duration(grace))
        await _note(session, audit, "key rotate", key)
    _show_new(session, key, text)


@command(app, "revoke", examples=["penstock key revoke k3m9x2abcdef"])
async def revoke(session: Session, key_id: KeyId, yes: Yes = False) -> None:
    """End a key: every server refuses it within five seconds."""
    if not yes:
        session.out.confirm(f"Refuse whoever uses the key {key_id} from now on?")
    async with _opened(session) as (keys, audit):
        key = await keys.revoke(key_id)
        await _note(session, audit, "key revoke", key)
    if session.out.json:
        session.out.document(asdict(key))
    else:
        session.out.note(f"Revoked key {key.id} ({key.name}).")


@command(app, "audit", examples=["penstock key audit", "penstock key audit --limit 500 --json"])
async def audit(
    session: Session,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, max=100_000, help="So many lines.")] = 50,
    who: Annotated[str | None, typer.Option(metavar="ID", help="Of this caller only.", show_default=False)] = None,
) -> None:
    """Show what administrators did, what was done to keys, and what was tried in vain; the latest first."""
    async with _opened(session) as (_, log):
        lines = await log.read(limit, who)
    if session.out.json:
        session.out.document([asdict(line) for line in lines])
        return
    if not lines:
        session.out.hint("Nothing was written down yet.")
        return
    rows = [
        (show_time(line.at), line.who, line.action, line.subject, line.address, line.outcome, line.request_id)
        for line in lines
    ]
    session.out.table(("at", "who", "action", "subject", "address", "outcome", "request"), rows)


@asynccontextmanager
async def _opened(session: Session) -> AsyncIterator[tuple[ApiKeyStore, AuditLog]]:
    from penstock.server.auth.api_keys import ApiKeyStore
    from penstock.server.auth.audit import AuditLog

    async with session.opened() as opened:
        yield ApiKeyStore(opened.database), AuditLog(opened.database)


async def _note(session: Session, audit: AuditLog, action: str, key: ApiKey) -> None:
    import psycopg

    from penstock.core.errors import DatabaseError
    from penstock.server.auth.audit import AuditEntry

    try:
        user = getpass.getuser()
    except (KeyError, OSError):
        user = "unknown"
    try:
        await audit.write([AuditEntry(f"cli:{user}", action, f"{key.id} {key.name}")])
    except (DatabaseError, psycopg.Error) as error:
        # It is done, and what follows shows a secret that nobody could be shown again.
        reason = str(error).partition("\n")[0]
        session.out.warn(f"it is done, but could not be written into the audit log: {reason}")


def _show_new(session: Session, key: ApiKey, text: PlaintextKey) -> None:
    if session.out.json:
        session.out.document({**asdict(key), "key": str(text)})
        return
    session.out.hint(f"Key {key.id} ({key.name}): {', '.join(key.roles)} for {', '.join(key.queues)}.")
    if key.previous_until is not None:
        session.out.hint(f"The secret it had is good until {show_time(key.previous_until)}.")
    session.out.hint("Keep it now: it is not shown again.")
    session.out.text(str(text))


def _state(key: ApiKey) -> str:
    if key.revoked_at is not None:
        return f"revoked {show_time(key.revoked_at)}"
    if key.expires_at is None:
        return "good"
    return f"{'good until' if key.expires_at > datetime.now(UTC) else 'over since'} {show_time(key.expires_at)}"
