"""``penstock serve``: the queues over HTTP."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from typing import Annotated, Any

import typer

from penstock.cli.command import command
from penstock.cli.commands.console import console_beside
from penstock.cli.session import Session

_ACCESS = "Access"


def register(app: typer.Typer) -> None:
    """Add the command."""
    examples = [
        "penstock serve",
        "penstock serve --port 8080 --workers 2",
        "penstock serve --console",
        "penstock serve --host 0.0.0.0 --tls-cert server.pem --tls-key server.key",
    ]
    command(app, "serve", examples=examples)(serve)


def _limit(help: str, default: str, metavar: str) -> Any:
    return typer.Option(help=help, show_default=default, metavar=metavar, rich_help_panel="Limits")


def serve(
    session: Session,
    host: Annotated[str | None, typer.Option(help="The address to listen on.", show_default="127.0.0.1")] = None,
    port: Annotated[
        int | None, typer.Option(min=0, max=65535, help="The port; 0 takes a free one.", show_default="6632")
    ] = None,
    workers: Annotated[
        int | None, typer.Option(min=1, max=64, help="How many processes share the port.", show_default="1")
    ] = None,
    tls_cert: Annotated[Path | None, typer.Option(metavar="FILE", help="A certificate with its chain, as PEM.")] = None,
    tls_key: Annotated[Path | None, typer.Option(metavar="FILE", help="The certificate's key, as PEM.")] = None,
    cors_origin: Annotated[
        list[str] | None, typer.Option(metavar="ORIGIN", help="An origin whose pages may call; may be repeated.")
    ] = None,
    trusted_proxy: Annotated[
        list[str] | None,
        typer.Option(metavar="ADDRESS", help="A proxy whose X-Forwarded-For is believed; may be repeated."),
    ] = None,
    request_log: Annotated[
        str | None,
        typer.Option(metavar="WHICH", help="Requests with a line in the log: all, errors or none.", show_default="all"),
    ] = None,
    console: Annotated[
        bool, typer.Option("--console", help="Show the console beside it, in a process of its own.")
    ] = False,
    console_port: Annotated[
        int | None, typer.Option(min=0, max=65535, help="The console's port.", show_default="6633")
    ] = None,
    require_access: Annotated[
        bool, typer.Option("--require-access", help="Ask for keys on loopback too.", rich_help_panel=_ACCESS)
    ] = False,
    jwt_jwks: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Keys that sign bearer tokens, as JWKS.", rich_help_panel=_ACCESS),
    ] = None,
    jwt_secret_file: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="A secret that signs them, for HS256.", rich_help_panel=_ACCESS),
    ] = None,
    jwt_audience: Annotated[
        str | None, typer.Option(metavar="NAME", help="The audience they must be for.", rich_help_panel=_ACCESS)
    ] = None,
    jwt_issuer: Annotated[
        str | None, typer.Option(metavar="NAME", help="The issuer they must be of.", rich_help_panel=_ACCESS)
    ] = None,
    request_seconds: Annotated[float | None, _limit("How long a request may take to arrive.", "30", "SECONDS")] = None,
    min_bytes_per_second: Annotated[
        float | None, _limit("How fast a body must come after that; who is slower is cut off.", "4096", "N")
    ] = None,
    max_upload_bytes: Annotated[
        int | None, _limit("How large a body of NDJSON may be, undone.", "2 GiB", "BYTES")
    ] = None,
    max_held_bytes: Annotated[
        int | None, _limit("How much of all bodies a process holds in memory.", "128 MiB", "BYTES")
    ] = None,
    producer_events_per_second: Annotated[float | None, _limit("How fast one producer may push.", "any", "N")] = None,
) -> None:
    """Serve the queues over HTTP until Ctrl-C.

    Each option has a variable too, PENSTOCK_ and its name. On loopback nobody is asked for a key; on any other address
    everybody is, so `penstock key create` comes first.
    """
    # Not at the top: the other commands need not wait for it.
    from penstock.server.run import serve as run
    from penstock.server.settings import ServerSettings

    settings = ServerSettings.from_env(
        session.settings(),
        host=host,
        port=port,
        workers=workers,
        tls_cert=tls_cert,
        tls_key=tls_key,
        cors_origins=tuple(cors_origin) if cors_origin else None,
        trusted_proxies=tuple(trusted_proxy) if trusted_proxy else None,
        request_log=request_log,
        require_access=require_access or None,
        jwt_jwks=jwt_jwks,
        jwt_secret_file=jwt_secret_file,
        jwt_audience=jwt_audience,
        jwt_issuer=jwt_issuer,
        request_seconds=request_seconds,
        min_bytes_per_second=min_bytes_per_second,
        max_upload_bytes=max_upload_bytes,
        max_held_bytes=max_held_bytes,
        producer_events_per_second=producer_events_per_second,
    )
    with console_beside(settings, console_port) if console else nullcontext():
        run(settings)
