"""The ``penstock`` command line."""

from __future__ import annotations


def main() -> None:
    """Run the command line with the arguments of this process."""
    # Imported here, so that importing this package does not load typer and the commands.
    from penstock.cli.app import app

    app(prog_name="penstock")
