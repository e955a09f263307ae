"""``penstock db``: the schema, and the embedded PostgreSQL."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.cli.command import FAILED, command
from penstock.cli.session import Session

if TYPE_CHECKING:
    from penstock.core.settings import Settings
    from penstock.db.pool import Connection

app = typer.Typer(help="The database: its schema, and the embedded PostgreSQL.")


@command(app, "upgrade", examples=["penstock db upgrade", "penstock db upgrade --database-url postgresql://db/events"])
async def upgrade(session: Session) -> None:
    """Bring the schema `penstock` of the database up to date, one migration after the other."""
    from penstock.db import migrate

    async with _connection(session) as conn:
        applied = await migrate.upgrade(conn)
        status = await migrate.status(conn)
    if session.out.json:
        session.out.document({"applied": [str(migration) for migration in applied], "schema": status.current})
        return
    for migration in applied:
        session.out.note(f"Applied {migration}.")
    session.out.note(f"The schema is at version {status.current}, {'now' if applied else 'already'} up to date.")


@command(app, "status", examples=["penstock db status", "penstock db status --check && ./deploy"])
async def status(
    session: Session,
    check: Annotated[
        bool, typer.Option("--check", help="Exit with 1 unless the schema is the one that this package works with.")
    ] = False,
) -> None:
    """Show which database is used, whether it runs, and where its schema stands. Starts nothing, changes nothing."""
    settings = session.settings()
    facts: dict[str, Any] = {"database": settings.redacted_url, "embedded": settings.database_url is None}
    if settings.database_url is None:
        from penstock.db.embedded import server as embedded

        server = embedded.status(settings.data_dir)
        facts |= {"state": server.state, "data_dir": str(server.data_dir), "pid": server.pid}
        if server.state == "running":
            facts |= {"url": server.url, **await _schema(settings, server.url)}
    else:
        facts |= {"state": "running", **await _schema(settings, settings.database_url)}
    if session.out.json:
        session.out.document(facts)
    else:
        names = {"pid": "process", "data_dir": "directory", "current": "schema", "target": "schema needed"}
        shown = {name: value for name, value in facts.items() if name not in ("embedded", "pending") and value}
        session.out.facts("", [(names.get(name, name), str(value)) for name, value in shown.items()])
        if facts.get("pending"):
            session.out.hint(f"To do: {', '.join(facts['pending'])}. Run `penstock db upgrade`.")
    if check and ("pending" not in facts or facts["pending"] or facts["current"] != facts["target"]):
        raise typer.Exit(FAILED)


@command(app, "compat", examples=["penstock db compat"])
async def compat(session: Session) -> None:
    """Make views under the names that users of Queen know: queen_streams.queries and queen_streams.state."""
    from penstock.engine.gates.admin import GateAdmin

    async with session.log() as log:
        made = await GateAdmin(log.database).create_queen_views()
    if session.out.json:
        session.out.document({"made": made})
    else:
        session.out.note("Made the views." if made else "There is a schema queen_streams already: nothing was done.")


@command(
    app,
    "sql",
    examples=["penstock db sql | psql -v ON_ERROR_STOP=1 mydb", "penstock db sql --from-version 18 > upgrade.sql"],
)
def sql(
    session: Session,
    from_version: Annotated[
        int, typer.Option("--from-version", metavar="N", help="The version that the schema has now; 0: none.")
    ] = 0,
) -> None:
    """Print the SQL of all migrations, to read or to run with psql. Connects to nothing."""
    from penstock.db import migrate

    text = migrate.render_sql(from_version)
    if session.out.json:
        known = [migration for migration in migrate.load_migrations() if migration.version > from_version]
        session.out.document({"migrations": [str(migration) for migration in known], "sql": text})
    else:
        session.out.text(text.rstrip("\n"))


@command(
    app,
    "roles",
    examples=[
        "penstock db roles | psql -v ON_ERROR_STOP=1 mydb",
        "penstock db roles --apply --server-role web --engine-role jobs",
    ],
)
async def roles(
    session: Session,
    apply: Annotated[bool, typer.Option("--apply", help="Run it, as a superuser, and do not print it.")] = False,
    server_role: Annotated[
        str, typer.Option("--server-role", metavar="ROLE", help="Who takes events in and hands them out.")
    ] = "penstock_server",
    engine_role: Annotated[
        str, typer.Option("--engine-role", metavar="ROLE", help="Who runs queries, and owns their results.")
    ] = "penstock_engine",
    reader_role: Annotated[
        str, typer.Option("--reader-role", metavar="ROLE", help="Who may look at results, and nothing else.")
    ] = "penstock_reader",
) -> None:
    """Print the SQL for roles with no more rights than they need: the server's, the engine's and the reader's.

    The role that owns the schema stays the one that upgrades it, and need not be used for anything else. Run it again
    after an upgrade.
    """
    from penstock.db import roles

    wanted = roles.Roles(server_role, engine_role, reader_role)
    async with _connection(session) as conn:
        if apply:
            await roles.apply(conn, wanted)
        text = await roles.render_statements(conn, wanted)
    if session.out.json:
        session.out.document({"applied": apply, "roles": [wanted.server, wanted.engine, wanted.reader], "sql": text})
    elif apply:
        session.out.note(
            f"{wanted.server}, {wanted.engine} and {wanted.reader} have their rights; give them passwords."
        )
    else:
        session.out.text(text.rstrip("\n"))


@command(app, "start", examples=["penstock db start", "penstock db start --data-dir ./data &"])
async def start(session: Session) -> None:
    """Start the embedded PostgreSQL and keep it up until Ctrl-C.

    Every other command starts it for itself, and the last to leave stops it. Keeping it up spares them that.
    """
    import asyncio

    from penstock.db.pool import Database

    settings = _embedded(session)
    database = Database(settings)
    with session.out.busy("Starting PostgreSQL"):
        await database.open()
    try:
        if session.out.json:
            session.out.document({"state": "running", "data_dir": str(settings.data_dir), "url": database.conninfo})
        else:
            session.out.text(database.conninfo)
            session.out.hint("PostgreSQL runs until Ctrl-C, or longer if others use it then.")
        await asyncio.Event().wait()
    finally:
        await database.close()


@command(app, "stop", examples=["penstock db stop", "penstock db stop --data-dir ./data"])
def stop(session: Session) -> None:
    """Stop the embedded PostgreSQL, even under others who use it."""
    from penstock.db.embedded import server as embedded

    settings = _embedded(session)
    before = embedded.status(settings.data_dir).state
    if before in ("running", "starting"):
        with session.out.busy("Stopping PostgreSQL"):
            embedded.EmbeddedPostgres(settings.data_dir).stop()
    if session.out.json:
        session.out.document({"stopped": before in ("running", "starting"), "data_dir": str(settings.data_dir)})
    else:
        ran = before in ("running", "starting")
        session.out.note(f"The PostgreSQL in {settings.data_dir} {'was stopped' if ran else 'does not run'}.")


def _embedded(session: Session) -> Settings:
    from penstock.core.errors import ConfigurationError

    settings = session.settings()
    if settings.database_url is not None:
        raise ConfigurationError(
            f"the database is {settings.redacted_url}, which Penstock neither starts nor stops: "
            "name the directory of an embedded one with --data-dir"
        )
    return settings


@asynccontextmanager
async def _connection(session: Session) -> AsyncIterator[Connection]:
    """A connection to the database whatever its schema, with the embedded server started if it is that."""
    import asyncio

    from penstock.db.embedded.server import EmbeddedPostgres
    from penstock.db.pool import open_pool

    settings = session.settings()
    server = EmbeddedPostgres(settings.data_dir) if settings.database_url is None else None
    try:
        with session.out.busy("Opening the database"):
            url = settings.database_url if server is None else await asyncio.to_thread(server.start)
            pool = await open_pool(settings, conninfo=url)
        async with pool, pool.connection() as conn:
            yield conn
    finally:
        if server is not None:
            await asyncio.to_thread(server.release)


async def _schema(settings: Settings, url: str | None) -> dict[str, Any]:
    from penstock.db import migrate
    from penstock.db.pool import open_pool

    pool = await open_pool(settings, conninfo=url)
    async with pool, pool.connection() as conn:
        found = await migrate.status(conn)
        major, minor = divmod(conn.info.server_version, 10_000)
    return {
        "postgresql": f"{major}.{minor}",
        "current": found.current,
        "target": found.target,
        "pending": [str(migration) for migration in found.pending],
    }
