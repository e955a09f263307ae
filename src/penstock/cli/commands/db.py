"""``penstock db``: the schema, database roles, and the embedded PostgreSQL."""

from __future__ import annotations

import os
import signal
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.cli.command import FAILED, command
from penstock.cli.command_session import CommandSession
from penstock.core.errors import ConfigurationError

if TYPE_CHECKING:
    from penstock.core.settings import Settings
    from penstock.db.pool import Connection

#: The schemas that psql searches, so that results need no schema.
_SEARCH_PATH = "penstock_live,penstock_history,penstock,public"

app = typer.Typer(help="The database: its schema, its roles, and the embedded PostgreSQL.")


@command(app, "upgrade", examples=["penstock db upgrade", "penstock db upgrade --database-url postgresql://db/events"])
async def upgrade(session: CommandSession) -> None:
    """Apply the pending migrations of the schema `penstock`."""
    from penstock.db import migrate

    async with _connection(session) as conn:
        applied = await migrate.upgrade(conn)
        status = await migrate.status(conn)
    names = [str(migration) for migration in applied]
    state = f"The schema is at version {status.current}, {'now' if applied else 'already'} up to date."
    text = "\n".join([*(f"Applied {name}." for name in names), state])
    session.out.result({"applied": names, "schema": status.current}, text)


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
        if status_fields["state"] != "running":
            session.out.hint(
                "It starts by itself with the first command or client that uses it. `penstock db start` runs it until "
                "Ctrl-C."
            )
    if check and (
        "pending" not in status_fields
        or status_fields["pending"]
        or status_fields["current"] != status_fields["target"]
    ):
        raise typer.Exit(FAILED)


@command(
    app,
    "psql",
    examples=[
        "penstock db psql",
        "penstock db psql -- -c 'SELECT * FROM orders_5s_current'",
        "penstock db psql -- --csv -c 'TABLE penstock.lag' > lag.csv",
    ],
)
async def psql(
    session: CommandSession,
    arguments: Annotated[
        list[str] | None,
        typer.Argument(metavar="ARGUMENTS", help="Arguments of psql, after `--`.", show_default=False),
    ] = None,
) -> None:
    """Open psql on the database. The results of queries need no schema: `SELECT * FROM orders_5s`.

    Starts the embedded PostgreSQL if that is the database, and keeps it running meanwhile. Without PostgreSQL's client
    programs, it runs the psql of the embedded PostgreSQL.
    """
    import asyncio

    program = _find_psql()
    async with session.log() as log:
        process = await asyncio.create_subprocess_exec(
            program, *(arguments or []), env=_psql_environment(log.database.conninfo)
        )
        with _ignore_interrupts():
            code = await process.wait()
    if code:
        raise typer.Exit(code if code > 0 else FAILED)


@command(app, "compat", examples=["penstock db compat"])
async def compat(session: CommandSession) -> None:
    """Create the views queen_streams.queries and queen_streams.state, for compatibility with Queen."""
    from penstock.engine.gates.gate_admin import GateAdmin

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
    pusher_role: Annotated[
        str,
        typer.Option(
            "--pusher-role", metavar="ROLE", help="A role to grant to applications: pushes from SQL, and nothing else."
        ),
    ] = "penstock_pusher",
) -> None:
    """Print the SQL that creates least-privilege roles for the server, the engine, readers and pushes from SQL.

    The role that owns the schema is needed for upgrades only. Run this command again after an upgrade.
    """
    from penstock.db import roles

    chosen = roles.Roles(server_role, engine_role, reader_role, pusher_role)
    async with _connection(session) as conn:
        if apply:
            await roles.apply(conn, chosen)
        text = await roles.render_statements(conn, chosen)
    if session.out.json:
        session.out.document({"applied": apply, "roles": list(chosen.names), "sql": text})
    elif apply:
        session.out.note(
            f"{chosen.server}, {chosen.engine} and {chosen.reader} have their privileges. Set their passwords. "
            f"Grant {chosen.pusher} to roles that push from SQL."
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


def _find_psql() -> str:
    import shutil

    from penstock.db.embedded.server import bundled_bin_dir

    program = shutil.which("psql")
    if program is not None:
        return program
    try:
        return str(bundled_bin_dir() / "psql")
    except ConfigurationError:
        raise ConfigurationError(
            "psql is not installed: install the client programs of PostgreSQL (postgresql-client, or libpq with "
            "Homebrew). The SQL page of `penstock console` needs none"
        ) from None


def _psql_environment(conninfo: str) -> dict[str, str]:
    """Return the environment in which psql connects to a database. Arguments would show the password to other users."""
    from psycopg import pq

    environment = {name: value for name, value in os.environ.items() if name != "PGSERVICE"}
    for option in pq.Conninfo.parse(conninfo.encode()):
        if option.val is not None and option.envvar is not None:
            environment[option.envvar.decode()] = option.val.decode()
    options = environment.get("PGOPTIONS", "")
    if "search_path" not in options:
        environment["PGOPTIONS"] = f"{options} -c search_path={_SEARCH_PATH}".strip()
    return environment


@contextmanager
def _ignore_interrupts() -> Iterator[None]:
    """Leave Ctrl-C to the child process: in psql it cancels a statement."""
    previous = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, previous)
