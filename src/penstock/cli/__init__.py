"""The command line: ``penstock run``, ``queue``, ``group``, ``dlq``, ``query``, ``db`` and ``demo``."""

from __future__ import annotations


def main() -> None:
    """Run the command line with the arguments of this process."""
    # Not at the top: whoever imports the package to look at it need not have what running it takes.
    from penstock.cli.app import app

    app(prog_name="penstock")
