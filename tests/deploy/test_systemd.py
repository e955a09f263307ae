"""The units of systemd."""

from __future__ import annotations

import configparser
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import click
import pytest
import typer.main

from penstock.cli.app import app

UNITS = Path(__file__).parents[2] / "deploy" / "systemd"
FILES = sorted(UNITS.glob("*.service"))


def service(unit: Path) -> dict[str, str]:
    parser = configparser.ConfigParser(interpolation=None, strict=False)
    parser.optionxform = str  # type: ignore[method-assign, assignment]
    parser.read(unit)
    return dict(parser["Service"])


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed")
def test_systemd_accepts_the_units(tmp_path: Path) -> None:
    program = tmp_path / "penstock"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    for unit in FILES:
        # An instance of a template has a name after the @.
        copy = tmp_path / unit.name.replace("@", "@app")
        copy.write_text(unit.read_text().replace("/opt/penstock/bin/penstock", str(program)))
    command = ["systemd-analyze", "verify", "--man=no", *map(str, sorted(tmp_path.glob("*.service")))]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    complaints = [line for line in done.stderr.splitlines() if str(tmp_path) in line or "penstock" in line]
    assert complaints == []


@pytest.mark.parametrize("unit", FILES, ids=lambda unit: unit.name)
def test_a_unit_runs_a_command_that_exists(unit: Path) -> None:
    program, *arguments = service(unit)["ExecStart"].split()
    assert program == "/opt/penstock/bin/penstock"
    command: Any = typer.main.get_command(app)
    while hasattr(command, "commands"):
        name, *arguments = arguments
        assert name in command.commands
        command = command.commands[name]
    _, rest, _ = command.make_parser(click.Context(command)).parse_args(arguments)
    assert rest == []


@pytest.mark.parametrize("unit", FILES, ids=lambda unit: unit.name)
def test_a_unit_has_directories_that_its_user_can_write(unit: Path) -> None:
    found = service(unit)
    (user,) = re.findall(r"^u (\S+) ", (UNITS / "penstock.sysusers").read_text(), re.MULTILINE)
    assert found["User"] == user
    assert found["ProtectSystem"] == "strict"
    assert found["WorkingDirectory"] == f"/var/lib/{found['StateDirectory']}"
    variables = dict(pair.split("=", 1) for pair in found["Environment"].split())
    assert variables["HOME"] == found["WorkingDirectory"]
    assert variables["XDG_CACHE_HOME"] == f"/var/cache/{found['CacheDirectory']}"


@pytest.mark.parametrize("unit", [unit for unit in FILES if "upgrade" not in unit.name], ids=lambda unit: unit.name)
def test_a_stop_reaches_the_main_process_only(unit: Path) -> None:
    assert service(unit)["KillMode"] == "mixed"


def test_directories_of_the_units_are_created() -> None:
    created = re.findall(r"^d (\S+)", (UNITS / "penstock.tmpfiles").read_text(), re.MULTILINE)
    named = {service(unit)["EnvironmentFile"] for unit in FILES}
    assert {str(Path(file).parent) for file in named} <= set(created)
    assert "/etc/penstock/streams" in created


def test_the_example_of_the_environment_has_settings_that_exist() -> None:
    names = re.findall(r"^#?(PENSTOCK_\w+)=", (UNITS / "environment").read_text(), re.MULTILINE)
    page = (UNITS.parents[1] / "docs" / "reference" / "settings.md").read_text()
    console = (UNITS.parents[1] / "docs" / "how-to" / "console.md").read_text()
    assert names
    assert [name for name in names if f"`{name}`" not in page + console] == []
