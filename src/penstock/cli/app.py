"""The root command and its subcommands."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from inspect import Parameter
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from penstock.cli.command import (
    EXIT_CODES,
    FAILED,
    command,
    hide_flag_values,
    set_options,
)
from penstock.cli.command_session import CommandSession, SharedOptions
from penstock.cli.commands import (
    console,
    db,
    demo,
    dlq,
    gate,
    group,
    key,
    prepare,
    query,
    queue,
    rule,
    run,
    serve,
    sink,
    source,
    sql,
)
from penstock.cli.output import Output


class PenstockGroup(TyperGroup):
    """Prints usage errors in the format of all other errors, and flags without a value."""

    def get_params(self, ctx: Any) -> list[Any]:
        return hide_flag_values(super().get_params(ctx))

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        windows_expand_args: bool = True,
        **extra: Any,
    ) -> Any:
        """Run a command, and exit in standalone mode."""
        try:
            code = super().main(args, prog_name, complete_var, False, windows_expand_args, **extra)
            if not standalone_mode:
                return code
        except typer.TyperException as error:
            if not standalone_mode:
                raise
            Output().error(_format_usage_error(error))
            code = error.exit_code
        except typer.Abort:
            if not standalone_mode:
                raise
            Output().error("not confirmed: nothing was changed")
            code = FAILED
        sys.exit(code if isinstance(code, int) else 0)


def _format_usage_error(error: typer.TyperException) -> str:
    message = error.format_message().removeprefix("Invalid value: ").replace(": Value error, ", ": ").rstrip(".")
    context = getattr(error, "ctx", None)
    return message if context is None else f"{message} (see `{context.command_path} --help`)"


def _print_help_without_command(ctx: typer.Context) -> None:
    if ctx.invoked_subcommand is None:
        typer.echo(ctx.get_help())


app = typer.Typer(
    cls=PenstockGroup,
    name="penstock",
    help="Live aggregates and durable event queues on the PostgreSQL you already run.",
    epilog=EXIT_CODES,
    invoke_without_command=True,
    context_settings={"help_option_names": ["--help", "-h"]},
    # Rich tracebacks print local variables, which may hold passwords of connection strings.
    pretty_exceptions_enable=False,
)
for module in (queue, group, dlq, query, source, sink, rule, gate, key, db):
    module.app.callback(invoke_without_command=True)(_print_help_without_command)
    app.add_typer(module.app, cls=PenstockGroup, name=module.__name__.rpartition(".")[2])
for module in (run, sql, serve, console, source, demo, prepare):
    app.registered_commands += module.root.registered_commands


def root(ctx: typer.Context, version: bool, **shared: Any) -> None:
    """Live aggregates and durable event queues on the PostgreSQL you already run."""
    ctx.obj = SharedOptions(**shared)
    if version:
        _print_version(Output(json=ctx.obj.json))
        raise typer.Exit()
    _print_help_without_command(ctx)


_version = Annotated[bool, typer.Option("--version", help="Print the version.")]
set_options(root, [Parameter("version", Parameter.KEYWORD_ONLY, default=False, annotation=_version)])
app.callback()(root)


command(
    app,
    "push",
    examples=[
        "penstock push orders --file orders.ndjson",
        "penstock push orders --file orders.ndjson.gz --once --wait 300 --server https://queues.example:6632",
        """penstock push orders '{"amount": 12.5}' --key tenant-1""",
    ],
)(queue.push)


@command(app, "version", examples=["penstock version", "penstock version --json"])
def version(session: CommandSession) -> None:
    """Print the version."""
    _print_version(session.out)


def _print_version(out: Output) -> None:
    from importlib.metadata import version

    if out.json:
        out.document({"version": version("penstock")})
    else:
        out.text(f"penstock {version('penstock')}")
