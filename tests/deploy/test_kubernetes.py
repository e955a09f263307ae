"""The files for containers, as far as they can be checked where no container runs."""

from __future__ import annotations

import os
import re
import subprocess
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pyspark
import pytest
import typer.main
import yaml
from py4j.java_collections import JavaMap
from py4j.java_gateway import GatewayParameters, JavaGateway, launch_gateway
from py4j.protocol import Py4JError

from penstock.cli.app import app
from penstock.console import settings as console
from penstock.engine.spark.java import find_java
from penstock.server import settings as server
from penstock.server.api import health_probes

ROOT = Path(__file__).parents[2]
IMAGE = ROOT / "deploy" / "image"
#: Where Spark keeps the names of its settings.
CONFIG = "org/apache/spark/internal/config/"
_VARIABLES = {
    "SPARK_DRIVER_URL": "spark://CoarseGrainedScheduler@10.1.2.3:7078",
    "SPARK_EXECUTOR_ID": "7",
    "SPARK_EXECUTOR_CORES": "2",
    "SPARK_EXECUTOR_MEMORY": "1g",
    "SPARK_APPLICATION_ID": "spark-app",
    "SPARK_EXECUTOR_POD_IP": "10.1.2.4",
    "SPARK_EXECUTOR_POD_NAME": "exec-7",
    "SPARK_RESOURCE_PROFILE_ID": "0",
}


@pytest.fixture(scope="module")
def models() -> Iterator[Any]:
    """The Kubernetes objects of the client that Spark uses."""
    jars = Path(pyspark.__file__).parent / "jars"
    (bridge,) = jars.glob("py4j-*.jar")
    port = launch_gateway(
        jarpath=str(bridge),
        classpath=os.pathsep.join(
            str(jar)
            for kind in ("kubernetes-", "jackson-", "snakeyaml", "slf4j-api")
            for jar in jars.glob(f"{kind}*.jar")
        ),
        java_path=str(find_java().home / "bin" / "java"),
        die_on_exit=True,
    )
    gateway = JavaGateway(gateway_parameters=GatewayParameters(port=port))
    yield gateway.jvm.io.fabric8.kubernetes.client.utils.KubernetesSerialization()
    gateway.shutdown()


def unknown_fields(given: Any, read: Any, path: str) -> list[str]:
    """Return the paths in a file that are no fields of the object that was read from it."""
    if isinstance(given, list):
        return [name for i, each in enumerate(given) for name in unknown_fields(each, read[i], f"{path}[{i}]")]
    if not isinstance(given, dict) or isinstance(read, JavaMap):
        return []
    found = []
    for name, value in given.items():
        if name in read.getAdditionalProperties():
            found.append(f"{path}.{name}")
        elif name != "apiVersion":
            found += unknown_fields(value, getattr(read, f"get{name[0].upper()}{name[1:]}")(), f"{path}.{name}")
    return found


STREAMS = "Deployment/penstock-streams"
#: The resources that run a process, with the command of each.
PROCESSES = {
    "Job/penstock-upgrade": ["db", "upgrade"],
    "Deployment/penstock-server": ["serve"],
    "Deployment/penstock-console": ["console"],
    STREAMS: ["run"],
}


def resources() -> dict[str, Any]:
    """Return the resources by kind and name."""
    text = (ROOT / "deploy" / "kubernetes" / "penstock.yaml").read_text()
    return {f"{each['kind']}/{each['metadata']['name']}": each for each in yaml.safe_load_all(text)}


def container(resource: str = STREAMS) -> dict[str, Any]:
    (only,) = resources()[resource]["spec"]["template"]["spec"]["containers"]
    return dict(only)


def parse_command(arguments: list[str]) -> dict[str, Any]:
    """Parse the arguments of ``penstock`` without running it."""
    command: Any = typer.main.get_command(app)
    while hasattr(command, "commands"):
        name, *arguments = arguments
        assert name in command.commands
        command = command.commands[name]
    given, rest, _ = command.make_parser(click.Context(command)).parse_args(list(arguments))
    assert rest == []
    return dict(given)


def settings() -> dict[str, str]:
    """Return the settings of Spark."""
    return dict(pair.split("=", 1) for pair in container()["args"] if pair.startswith("spark."))


def run_entrypoint(tmp_path: Path, *arguments: str, **variables: str) -> list[str]:
    """Return the arguments with which the entrypoint runs Java."""
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n')
    java.chmod(0o755)
    environment = {"PATH": os.environ["PATH"], "JAVA_HOME": str(tmp_path), "SPARK_HOME": "/opt/spark", **variables}
    printed = subprocess.check_output(["sh", str(IMAGE / "entrypoint.sh"), *arguments], env=environment, text=True)
    return printed.splitlines()


def test_an_executor_is_started_with_what_spark_says(tmp_path: Path) -> None:
    options = {"SPARK_JAVA_OPT_0": "-Dspark.x=a b", "SPARK_JAVA_OPT_1": "-Xss4m"}
    said = run_entrypoint(tmp_path, "executor", **_VARIABLES, **options)
    assert said[:4] == ["-Dspark.x=a b", "-Xss4m", "-Xms1g", "-Xmx1g"]
    name = said.index("org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend")
    given = dict(zip(said[name + 1 :: 2], said[name + 2 :: 2], strict=True))
    assert given == {
        "--driver-url": _VARIABLES["SPARK_DRIVER_URL"],
        "--executor-id": "7",
        "--cores": "2",
        "--app-id": "spark-app",
        "--hostname": "10.1.2.4",
        "--resourceProfileId": "0",
        "--podName": "exec-7",
    }


def test_any_other_command_is_run_as_it_is(tmp_path: Path) -> None:
    assert run_entrypoint(tmp_path, "printf", "%s", "penstock serve") == ["penstock serve"]


def test_every_field_is_one_that_kubernetes_knows_of_the_type_that_it_has(models: Any) -> None:
    for name, given in resources().items():
        read = models.unmarshal(yaml.safe_dump(given))
        assert read.getClass().getSimpleName() == given["kind"]
        assert unknown_fields(given, read, name) == []


@pytest.mark.parametrize(
    ("path", "value"), [(("spec", "replica"), 2), (("spec", "template", "spec", "containers", 0, "securityContxt"), {})]
)
def test_a_field_that_is_misspelt_is_found(models: Any, path: tuple[Any, ...], value: object) -> None:
    given = place = resources()[STREAMS]
    for step in path[:-1]:
        place = place[step]
    place[path[-1]] = value
    (stray,) = unknown_fields(given, models.unmarshal(yaml.safe_dump(given)), "Deployment")
    assert stray.endswith(f".{path[-1]}")


def test_a_value_of_another_type_is_found(models: Any) -> None:
    given = resources()[STREAMS]
    given["spec"]["replicas"] = "two"
    with pytest.raises(Py4JError, match="replicas"):
        models.unmarshal(yaml.safe_dump(given))


def test_spark_knows_the_arguments_and_sets_the_variables() -> None:
    jars = Path(pyspark.__file__).parent / "jars"
    (jar,) = jars.glob("spark-kubernetes_*.jar")
    with zipfile.ZipFile(jar) as classes:
        backend = classes.read("org/apache/spark/scheduler/cluster/k8s/KubernetesExecutorBackend$.class")
        constants = classes.read("org/apache/spark/deploy/k8s/Constants$.class")
    script = (IMAGE / "entrypoint.sh").read_text()
    for argument in re.findall(r"^    (--\S+) ", script, re.MULTILINE):
        assert argument.encode() in backend
    for variable in {*re.findall(r"SPARK_[A-Z_]+\b", script)} - {"SPARK_HOME"}:
        assert variable.encode() in constants


def test_spark_knows_every_setting() -> None:
    jars = Path(pyspark.__file__).parent / "jars"
    names = b""
    for jar, folder in (("spark-kubernetes_*.jar", "org/apache/spark/deploy/k8s/Config"), ("spark-core_*.jar", CONFIG)):
        (found,) = jars.glob(jar)
        with zipfile.ZipFile(found) as classes:
            names += b"".join(classes.read(name) for name in classes.namelist() if name.startswith(folder))
    keys = settings().keys()
    assert len(keys) > 5
    assert not {key for key in keys if key.encode() not in names}


def test_the_driver_is_a_command_that_exists() -> None:
    given = parse_command(container()["args"][1:])
    assert given["file"] == "/pipeline/app.py"
    assert given["master"] == "k8s://https://kubernetes.default.svc"


def test_everything_that_is_named_is_there() -> None:
    found = resources()
    pod = found[STREAMS]["spec"]["template"]
    assert f"ServiceAccount/{pod['spec']['serviceAccountName']}" in found
    binding = found["RoleBinding/penstock"]
    assert f"Role/{binding['roleRef']['name']}" in found
    assert binding["subjects"] == [{"kind": "ServiceAccount", "name": "penstock"}]
    named = set(re.findall(r"\$\((\w+)\)", " ".join(container()["args"])))
    assert named <= {variable["name"] for variable in container()["env"]}
    mounts = {mount["name"] for mount in container()["volumeMounts"]}
    assert mounts == {volume["name"] for volume in pod["spec"]["volumes"]}
    conf = settings()
    assert conf["spark.kubernetes.container.image"] == container()["image"]


def test_there_is_a_resource_for_every_process() -> None:
    names = {name for name in resources() if name.startswith(("Job/", "Deployment/"))}
    assert names == set(PROCESSES)


@pytest.mark.parametrize("resource", PROCESSES)
def test_a_process_is_a_command_that_exists(resource: str) -> None:
    program, *arguments = container(resource)["args"]
    assert program == "penstock"
    assert arguments[: len(PROCESSES[resource])] == PROCESSES[resource]
    parse_command(arguments)


@pytest.mark.parametrize("resource", PROCESSES)
def test_a_process_runs_the_image_with_the_secret_and_not_as_root(resource: str) -> None:
    found = container(resource)
    pod = resources()[resource]["spec"]["template"]["spec"]
    environment = {variable["name"]: variable for variable in found["env"]}
    assert found["image"] == "penstock:latest"
    assert "secretKeyRef" in environment["PENSTOCK_DATABASE_URL"]["valueFrom"]
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert f"USER {pod['securityContext']['runAsUser']}\n" in (IMAGE / "Dockerfile").read_text()


@pytest.mark.parametrize(
    ("name", "variable", "port_number"),
    [("server", "PENSTOCK_HOST", server.DEFAULT_PORT), ("console", "PENSTOCK_CONSOLE_HOST", console.DEFAULT_PORT)],
)
def test_a_service_leads_to_the_port_of_its_process(name: str, variable: str, port_number: int) -> None:
    found = container(f"Deployment/penstock-{name}")
    (port,) = found["ports"]
    assert port["containerPort"] == port_number
    environment = {each["name"]: each.get("value") for each in found["env"]}
    service = resources()[f"Service/penstock-{name}"]["spec"]
    assert environment[variable] == "0.0.0.0"  # noqa: S104 - in the pod
    assert service["ports"][0]["targetPort"] == port["name"]
    labels = resources()[f"Deployment/penstock-{name}"]["spec"]["template"]["metadata"]["labels"]
    assert service["selector"] == labels
    for probe in ("livenessProbe", "readinessProbe"):
        action = found[probe].get("httpGet") or found[probe]["tcpSocket"]
        assert action["port"] == port["name"]
        assert action.get("path", "/healthz") in {endpoint.path for endpoint in health_probes.routes}


def test_the_streams_are_probed_on_the_port_of_their_metrics() -> None:
    found = container()
    given = parse_command(found["args"][1:])
    (port,) = found["ports"]
    assert port["containerPort"] == int(given["metrics_port"])
    assert given["metrics_host"] == "0.0.0.0"  # noqa: S104 - in the pod
    for probe in ("livenessProbe", "readinessProbe"):
        action = found[probe]["httpGet"]
        assert action["port"] == port["name"]
        assert action["path"] in {endpoint.path for endpoint in health_probes.routes}


def test_every_selector_matches_the_labels_of_its_pods() -> None:
    for name, found in resources().items():
        if name.startswith("Deployment/"):
            assert found["spec"]["selector"]["matchLabels"] == found["spec"]["template"]["metadata"]["labels"]


def test_a_driver_that_listens_beyond_loopback_authenticates_and_encrypts() -> None:
    conf = settings()
    assert conf["spark.driver.bindAddress"] == "0.0.0.0"  # noqa: S104 - the setting of the file
    assert conf["spark.authenticate"] == conf["spark.network.crypto.enabled"] == "true"
    assert "spark.authenticate.secret" not in conf, "Spark creates one for each driver and passes it to the executors"


def test_the_file_has_no_secret_and_no_container_runs_as_root() -> None:
    (url,) = [variable for variable in container()["env"] if variable["name"] == "PENSTOCK_DATABASE_URL"]
    assert "value" not in url
    assert "secretKeyRef" in url["valueFrom"]
    user = resources()[STREAMS]["spec"]["template"]["spec"]["securityContext"]["runAsUser"]
    assert f"USER {user}\n" in (IMAGE / "Dockerfile").read_text()


def test_what_the_image_copies_is_there() -> None:
    text = (IMAGE / "Dockerfile").read_text()
    for source in re.findall(r"^COPY (?:--\S+ )?(\S+) ", text, re.MULTILINE):
        assert source.startswith("dist/penstock-") or (ROOT / source).is_file()
    assert f'ENTRYPOINT ["tini", "--", "{re.findall(r"(/opt/entrypoint.sh)", text)[0]}"]' in text
