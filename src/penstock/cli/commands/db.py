"""``penstock db``: the schema, database roles, and the embedded PostgreSQL."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.cli.command import FAILED, command
from penstock.cli.session import CommandSession

if TYPE_CHECKING:
    from penstock.core.settings import Settings
    from penstock.db.pool import Connection

app = typer.Typer(help="The database: its schema, its roles, and the embedded PostgreSQL.")


@command(app, "upgrade", examples=["penstock db upgrade", "penstock db upgrade --database-url postgresql://db/events"])
async def upgrade(session: CommandSession) -> None:
    """Apply the pending migrations of the schema `penstock`."""
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
    session: CommandSession,
    check: Annotated[
        bool, typer.Option("--check", help="Exit with 1 unless the schema has the version that this package needs.")
    ] = False,
) -> None:
    """Show the database, its state and its schema version. Neither starts nor changes anything."""
    settings = session.settings()
    status_fields: dict[str, Any] = {"database": settings.redacted_url, "embedded": settings.database_url is None}
    if settings.database_url is None:
        from penstock.db.embedded import server as embedded

        server = embedded.status(settings.data_dir)
        status_fields |= {"state": server.state, "data_dir": str(server.data_dir), "pid": server.pid}
        if server.state == "running":
            status_fields |= {"url": server.url, **await _read_schema(settings, server.url)}
    else:
        status_fields |= {"state": "running", **await _read_schema(settings, settings.database_url)}
    if session.out.json:
        session.out.document(status_fields)
    else:
        names = {"pid": "process", "data_dir": "directory", "current": "schema", "target": "schema needed"}
        shown = {name: value for name, value in status_fields.items() if name not in ("embedded", "pending") and value}
        session.out.fields("", [(names.get(name, name), str(value)) for name, value in shown.items()])
        if status_fields.get("pending"):
            session.out.hint(f"Pending: {', '.join(status_fields['pending'])}. Run `penstock db upgrade`.")
    if check and (
        "pending" not in status_fields
        or status_fields["pending"]
        or status_fields["current"] != status_fields["target"]
    ):
        raise typer.Exit(FAILED)


@command(app, "compat", examples=["penstock db compat"])
async def compat(session: CommandSession) -> None:
    """Create the views queen_streams.queries and queen_streams.state, for compatibility with Queen."""
    from penstock.engine.gates.admin import GateAdmin

    async with session.log() as log:
        created = await GateAdmin(log.database).create_queen_views()
    session.out.result(
        {"made": created},
        "Created the views." if created else "The schema queen_streams exists already: nothing changed.",
    )


@command(
    app,
    "sql",
    examples=["penstock db sql | psql -v ON_ERROR_STOP=1 mydb", "penstock db sql --from-version 18 > upgrade.sql"],
)
def sql(
    session: CommandSession,
    from_version: Annotated[
        int, typer.Option("--from-version", metavar="N", help="The current version of the schema; 0: no schema.")
    ] = 0,
) -> None:
    """Print the SQL of all migrations, to review or to run with psql. Needs no database."""
    from penstock.db import migrate

    text = migrate.render_sql(from_version)
    if session.out.json:
        migrations = [migration for migration in migrate.load_migrations() if migration.version > from_version]
        session.out.document({"migrations": [str(migration) for migration in migrations], "sql": text})
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
    session: CommandSession,
    apply: Annotated[bool, typer.Option("--apply", help="Run the SQL as a superuser instead of printing it.")] = False,
    server_role: Annotated[
        str, typer.Option("--server-role", metavar="ROLE", help="The role of the server: pushes and pops events.")
    ] = "penstock_server",
    engine_role: Annotated[
        str,
        typer.Option(
            "--engine-role", metavar="ROLE", help="The role of the engine: runs queries and owns their results."
        ),
    ] = "penstock_engine",
    reader_role: Annotated[
        str, typer.Option("--reader-role", metavar="ROLE", help="The role of readers: reads results only.")
    ] = "penstock_reader",
) -> None:
    """Print the SQL that creates least-privilege roles for the server, the engine and readers.

    The role that owns the schema is needed for upgrades only. Run this command again after an upgrade.
    """
    from penstock.db import roles

    chosen = roles.Roles(server_role, engine_role, reader_role)
    async with _connection(session) as conn:
        if apply:
            await roles.apply(conn, chosen)
        text = await roles.render_statements(conn, chosen)
    if session.out.json:
        session.out.document({"applied": apply, "roles": [chosen.server, chosen.engine, chosen.reader], "sql": text})
    elif apply:
        session.out.note(
            f"{chosen.server}, {chosen.engine} and {chosen.reader} have their privileges. Set their passwords."
        )
    else:
        session.out.text(text.rstrip("\n"))


@command(app, "start", examples=["penstock db start", "penstock db start --data-dir ./data &"])
async def start(session: CommandSession) -> None:
    """Start the embedded PostgreSQL and keep it running until Ctrl-C.

    Other commands start it when needed, and the last one stops it. While this command runs, they find it started.
    """
    import asyncio

    from penstock.db.pool import Database

    settings = _embedded_settings(session)
    database = Database(settings)
    with session.out.spinner("Starting PostgreSQL"):
        await database.open()
    try:
        if session.out.json:
            session.out.document({"state": "running", "data_dir": str(settings.data_dir), "url": database.conninfo})
        else:
            session.out.text(database.conninfo)
            session.out.hint("PostgreSQL runs until Ctrl-C, or until the last process that uses it ends.")
        await asyncio.Event().wait()
    finally:
        await database.close()


@command(app, "stop", examples=["penstock db stop", "penstock db stop --data-dir ./data"])
def stop(session: CommandSession) -> None:
    """Stop the embedded PostgreSQL, even if other processes use it."""
    from penstock.db.embedded import server as embedded

    settings = _embedded_settings(session)
    was_running = embedded.status(settings.data_dir).state in ("running", "starting")
    if was_running:
        with session.out.spinner("Stopping PostgreSQL"):
            embedded.EmbeddedPostgres(settings.data_dir).stop()
    session.out.result(
        {"stopped": was_running, "data_dir": str(settings.data_dir)},
        f"The PostgreSQL in {settings.data_dir} {'was stopped' if was_running else 'is not running'}.",
    )


def _embedded_settings(session: CommandSession) -> Settings:
    from penstock.core.errors import ConfigurationError

    settings = session.settings()
    if settings.database_url is not None:
        raise ConfigurationError(
            f"the database is {settings.redacted_url}, which Penstock neither starts nor stops: "
            "name the directory of an embedded PostgreSQL with --data-dir"
        )
    return settings


@asynccontextmanager
async def _connection(session: CommandSession) -> AsyncIterator[Connection]:
    """Connect to the database without checking its schema. Starts the embedded PostgreSQL if needed."""
    import asyncio

    from penstock.db.embedded.server import EmbeddedPostgres
    from penstock.db.pool import open_pool

    settings = session.settings()
    server = EmbeddedPostgres(settings.data_dir) if settings.database_url is None else None
    try:
        with session.out.spinner("Opening the database"):
            url = settings.database_url if server is None else await asyncio.to_thread(server.start)
            pool = await open_pool(settings, conninfo=url)
        async with pool, pool.connection() as conn:
            yield conn
    finally:
        if server is not None:
            await asyncio.to_thread(server.release)


async def _read_schema(settings: Settings, url: str | None) -> dict[str, Any]:
    from penstock.db import migrate
    from penstock.db.pool import open_pool

    pool = await open_pool(settings, conninfo=url)
    async with pool, pool.connection() as conn:
        schema = await migrate.status(conn)
        major, minor = divmod(conn.info.server_version, 10_000)
    return {
        "postgresql": f"{major}.{minor}",
        "current": schema.current,
        "target": schema.target,
        "pending": [str(migration) for migration in schema.pending],
    }
