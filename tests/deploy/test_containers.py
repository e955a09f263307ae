"""The image and the services for one machine, as far as they can be checked where no container runs."""

from __future__ import annotations

import re
import runpy
from pathlib import Path
from typing import Any

import click
import pytest
import typer.main
import yaml

from penstock import Stream
from penstock.cli.app import app

ROOT = Path(__file__).parents[2]
COMPOSE = ROOT / "deploy" / "compose" / "compose.yaml"
IMAGES = [ROOT / "deploy" / "image" / "Dockerfile"]
SERVICES: dict[str, dict[str, Any]] = yaml.safe_load(COMPOSE.read_text())["services"]


@pytest.mark.parametrize("service", [name for name, given in SERVICES.items() if given["image"] == "penstock:latest"])
def test_what_a_service_runs_is_a_command_that_exists(service: str) -> None:
    command: Any = typer.main.get_command(app)
    program, *arguments = SERVICES[service]["command"]
    assert program == "penstock"
    while hasattr(command, "commands"):
        name, arguments = arguments[0], arguments[1:]
        assert name in command.commands
        command = command.commands[name]
    _, rest, _ = command.make_parser(click.Context(command)).parse_args(arguments)
    assert rest == []


def test_a_service_listens_beyond_its_container_only_on_loopback() -> None:
    ports = [port for service in SERVICES.values() for port in service.get("ports", [])]
    assert ports
    assert all(port.startswith("127.0.0.1:") for port in ports)


def test_a_service_waits_for_services_with_a_health_check_or_an_end() -> None:
    for service in SERVICES.values():
        for other, wanted in service.get("depends_on", {}).items():
            if wanted == {"condition": "service_healthy"}:
                assert "healthcheck" in SERVICES[other]
            else:
                assert wanted == {"condition": "service_completed_successfully"}
                assert SERVICES[other]["restart"] == "no"


def test_the_memory_of_postgresql_is_limited() -> None:
    assert re.fullmatch(r"\d+g", SERVICES["postgres"]["mem_limit"])


def test_files_that_a_service_mounts_exist() -> None:
    mounted = [volume.split(":")[0] for service in SERVICES.values() for volume in service.get("volumes", [])]
    files = [COMPOSE.parent / source for source in mounted if source.startswith(".")]
    assert [file.name for file in files] == ["app.py"]
    assert all(file.is_file() for file in files)


def test_the_streams_of_the_deployment_are_valid() -> None:
    definitions = runpy.run_path(str(ROOT / "deploy" / "app.py"))
    streams = [value for value in definitions.values() if isinstance(value, Stream)]
    assert streams
    for stream in streams:
        stream.check()


@pytest.mark.parametrize("image", IMAGES, ids=lambda image: image.name)
def test_an_image_copies_existing_files_and_does_not_run_as_root(image: Path) -> None:
    text = image.read_text()
    copied = re.findall(r"^COPY (?:--\S+ )?(\S+) ", text, re.MULTILINE)
    assert copied
    for source in copied:
        assert source.startswith("dist/penstock-") or (ROOT / source).is_file()
    users = re.findall(r"^USER (\S+)", text, re.MULTILINE)
    assert users
    assert users[-1] in [*re.findall(r"--uid (\d+)", text), "penstock"]
    assert not re.search(r"^(ENV|ARG) .*(PASSWORD|SECRET|KEY)", text, re.MULTILINE)
