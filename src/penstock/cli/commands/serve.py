"""``penstock serve``: the HTTP server."""

from __future__ import annotations

from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from penstock.cli.command import command
from penstock.cli.command_session import CommandSession
from penstock.cli.commands.console import run_console_process

root = typer.Typer()
_auth_option: Any = partial(typer.Option, rich_help_panel="Authentication")


def _limit(help: str, default: str, metavar: str) -> Any:
    return typer.Option(help=help, show_default=default, metavar=metavar, rich_help_panel="Limits")


def server_options(
    host: Annotated[str | None, typer.Option(help="The address to listen on.", show_default="127.0.0.1")] = None,
    port: Annotated[
        int | None, typer.Option(min=0, max=65535, help="The port; 0 selects a free port.", show_default="6632")
    ] = None,
    workers: Annotated[
        int | None, typer.Option(min=1, max=64, help="The number of processes that share the port.", show_default="1")
    ] = None,
    tls_cert: Annotated[
        Path | None, typer.Option(metavar="FILE", help="The TLS certificate with its chain, as PEM.")
    ] = None,
    tls_key: Annotated[
        Path | None, typer.Option(metavar="FILE", help="The private key of the certificate, as PEM.")
    ] = None,
    cors_origin: Annotated[
        list[str] | None, typer.Option(metavar="ORIGIN", help="An origin allowed by CORS; may be repeated.")
    ] = None,
    trusted_proxy: Annotated[
        list[str] | None,
        typer.Option(metavar="ADDRESS", help="A proxy whose X-Forwarded-For is trusted; may be repeated."),
    ] = None,
    request_log: Annotated[
        str | None,
        typer.Option(metavar="WHICH", help="The requests to log: all, errors or none.", show_default="all"),
    ] = None,
    require_access: Annotated[bool, _auth_option("--require-access", help="Require API keys on loopback too.")] = False,
    jwt_jwks: Annotated[
        Path | None, _auth_option(metavar="FILE", help="The public keys of bearer tokens, as JWKS.")
    ] = None,
    jwt_secret_file: Annotated[
        Path | None, _auth_option(metavar="FILE", help="The secret of bearer tokens signed with HS256.")
    ] = None,
    jwt_audience: Annotated[
        str | None, _auth_option(metavar="NAME", help="The required audience of bearer tokens.")
    ] = None,
    jwt_issuer: Annotated[
        str | None, _auth_option(metavar="NAME", help="The required issuer of bearer tokens.")
    ] = None,
    request_seconds: Annotated[
        float | None, _limit("How long the client may take to send a request.", "30", "SECONDS")
    ] = None,
    min_bytes_per_second: Annotated[
        float | None, _limit("The minimum transfer rate after that; slower connections are closed.", "4096", "N")
    ] = None,
    max_upload_bytes: Annotated[
        int | None, _limit("The maximum size of an NDJSON body, decompressed.", "2 GiB", "BYTES")
    ] = None,
    max_held_bytes: Annotated[
        int | None, _limit("The memory of a process for request bodies.", "128 MiB", "BYTES")
    ] = None,
    producer_events_per_second: Annotated[
        float | None, _limit("The maximum push rate of one producer.", "no limit", "N")
    ] = None,
    queen_push_wait_seconds: Annotated[
        float | None,
        _limit("How long a push of Queen's clients waits for room in a full queue.", "10", "SECONDS"),
    ] = None,
) -> None:
    """The options of the server. Each is a field of ServerSettings, apart from the plural of repeated options."""


@command(
    root,
    "serve",
    examples=[
        "penstock serve",
        "penstock serve --port 8080 --workers 2",
        "penstock serve --console",
        "penstock serve --host 0.0.0.0 --tls-cert server.pem --tls-key server.key",
    ],
    options=server_options,
)
def serve(
    session: CommandSession,
    console: Annotated[bool, typer.Option("--console", help="Also run the console, in its own process.")] = False,
    console_port: Annotated[
        int | None, typer.Option(min=0, max=65535, help="The port of the console.", show_default="6633")
    ] = None,
    **options: Any,
) -> None:
    """Serve the queues over HTTP until Ctrl-C.

    Each option can also be set with an environment variable: PENSTOCK_ and its name. Addresses other than loopback
    require API keys: create one with `penstock key create` first.
    """
    # Imported here, so that other commands do not load the server.
    from penstock.server.run import serve as run
    from penstock.server.settings import ServerSettings

    options["cors_origins"] = tuple(options.pop("cors_origin") or ()) or None
    options["trusted_proxies"] = tuple(options.pop("trusted_proxy") or ()) or None
    options["require_access"] = options["require_access"] or None
    settings = ServerSettings.from_env(session.settings(), **options)
    with run_console_process(settings, console_port) if console else nullcontext():
        run(settings)
