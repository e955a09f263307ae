"""The files for containers, as far as they can be checked where no container runs."""

from __future__ import annotations

import os
import re
import subprocess
import zipfile
from pathlib import Path
from typing import Any

import click
import pyspark
import typer.main
import yaml

from penstock.cli.app import app

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


def resources() -> dict[str, Any]:
    text = (ROOT / "deploy" / "kubernetes" / "penstock.yaml").read_text()
    return {each["kind"]: each for each in yaml.safe_load_all(text)}


def container() -> dict[str, Any]:
    (only,) = resources()["Deployment"]["spec"]["template"]["spec"]["containers"]
    return dict(only)


def run_entrypoint(tmp_path: Path, *arguments: str, **variables: str) -> list[str]:
    """What the entrypoint runs, with a Java that only says how it was called."""
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n')
    java.chmod(0o755)
    environment = {"PATH": os.environ["PATH"], "JAVA_HOME": str(tmp_path), "SPARK_HOME": "/opt/spark", **variables}
    said = subprocess.check_output(["sh", str(IMAGE / "entrypoint.sh"), *arguments], env=environment, text=True)
    return said.splitlines()


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
    keys = {pair.partition("=")[0] for pair in container()["args"] if pair.startswith("spark.")}
    assert len(keys) > 5
    assert not {key for key in keys if key.encode() not in names}


def test_the_driver_is_a_command_that_exists() -> None:
    program, command, *arguments = container()["args"]
    assert program == "penstock"
    parser: Any = typer.main.get_command(app)
    run = parser.commands[command]
    given, _, _ = run.make_parser(click.Context(run)).parse_args(list(arguments))
    assert given["file"] == "/pipeline/app.py"
    assert given["master"] == "k8s://https://kubernetes.default.svc"


def test_everything_that_is_named_is_there() -> None:
    found = resources()
    pod = found["Deployment"]["spec"]["template"]
    assert pod["metadata"]["labels"] == found["Deployment"]["spec"]["selector"]["matchLabels"]
    assert pod["spec"]["serviceAccountName"] == found["ServiceAccount"]["metadata"]["name"]
    assert found["RoleBinding"]["roleRef"]["name"] == found["Role"]["metadata"]["name"]
    assert found["RoleBinding"]["subjects"] == [{"kind": "ServiceAccount", "name": "penstock"}]
    named = set(re.findall(r"\$\((\w+)\)", " ".join(container()["args"])))
    assert named <= {variable["name"] for variable in container()["env"]}
    mounts = {mount["name"] for mount in container()["volumeMounts"]}
    assert mounts == {volume["name"] for volume in pod["spec"]["volumes"]}
    conf = dict(pair.split("=", 1) for pair in container()["args"] if pair.startswith("spark."))
    assert conf["spark.kubernetes.container.image"] == container()["image"]


def test_no_secret_is_written_down_and_nobody_is_root() -> None:
    (url,) = [variable for variable in container()["env"] if variable["name"] == "PENSTOCK_DATABASE_URL"]
    assert "value" not in url
    assert "secretKeyRef" in url["valueFrom"]
    user = resources()["Deployment"]["spec"]["template"]["spec"]["securityContext"]["runAsUser"]
    assert f"USER {user}\n" in (IMAGE / "Dockerfile").read_text()


def test_what_the_image_copies_is_there() -> None:
    text = (IMAGE / "Dockerfile").read_text()
    for source in re.findall(r"^COPY (?:--\S+ )?(\S+) ", text, re.MULTILINE):
        assert source.startswith("dist/penstock-") or (ROOT / source).is_file()
    assert f'ENTRYPOINT ["tini", "--", "{re.findall(r"(/opt/entrypoint.sh)", text)[0]}"]' in text
