"""``penstock serve``: the queues over HTTP."""

from __future__ import annotations

from typing import Annotated

import typer

from penstock.cli.command import command
from penstock.cli.session import Session


def register(app: typer.Typer) -> None:
    """Add the command."""
    command(app, "serve", examples=["penstock serve", "penstock serve --port 8080"])(serve)


def serve(
    session: Session,
    host: Annotated[str, typer.Option(help="The address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="The port; 0 takes a free one.")] = 6632,
    cors_origin: Annotated[
        list[str] | None,
        typer.Option("--cors-origin", metavar="ORIGIN", help="An origin whose pages may call; may be repeated."),
    ] = None,
) -> None:
    """Serve the queues over HTTP until Ctrl-C."""
    # Not at the top: the other commands need not wait for it.
    from penstock.server.run import serve as run
    from penstock.server.settings import ServerSettings

    run(ServerSettings(session.settings(), host, port, cors_origins=tuple(cors_origin or ())))
