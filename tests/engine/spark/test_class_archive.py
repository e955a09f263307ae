from __future__ import annotations

import os
from pathlib import Path

import pytest

from penstock.engine.spark.class_archive import archive_path, read_options, remove_stale_archives
from penstock.engine.spark.java import Java


@pytest.fixture
def java(tmp_path: Path) -> Java:
    (tmp_path / "java").mkdir()
    return Java(tmp_path / "java", 17, Path("/usr/bin/java"))


@pytest.fixture
def jars(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The jars of a Spark in the launcher's directory."""
    path = tmp_path / "spark-1" / "jars"
    path.mkdir(parents=True)
    (path / "spark-core.jar").write_bytes(b"core")
    monkeypatch.setenv("SPARK_HOME", str(path.parent))
    return path


def test_the_same_jars_have_the_same_archive(java: Java, jars: Path) -> None:
    archive = archive_path(java)
    assert archive is not None
    assert (archive, archive.parent) == (archive_path(java), java.home)


@pytest.mark.parametrize("change", ["content", "modified", "added"])
def test_changed_jars_have_another_archive(java: Java, jars: Path, change: str) -> None:
    before = archive_path(java)
    if change == "content":
        (jars / "spark-core.jar").write_bytes(b"core, later")
    elif change == "modified":
        os.utime(jars / "spark-core.jar", (1, 1))
    else:
        (jars / "mine.jar").write_bytes(b"mine")
    assert archive_path(java) != before


@pytest.mark.parametrize("home", ["/opt/spark", None])
def test_a_spark_outside_our_directory_has_no_archive(java: Java, monkeypatch: pytest.MonkeyPatch, home: str) -> None:
    monkeypatch.delenv("SPARK_HOME", raising=False)
    if home is not None:
        monkeypatch.setenv("SPARK_HOME", home)
    assert archive_path(java) is None


def test_archives_of_replaced_jars_are_removed(java: Java, jars: Path) -> None:
    old, unrelated = archive_path(java), java.home / "spark-2-aa.jsa"
    (jars / "spark-core.jar").write_bytes(b"core, later")
    new = archive_path(java)
    assert old is not None
    assert new is not None
    for path in (old, unrelated, new):
        path.touch()
    remove_stale_archives(new)
    assert [path.exists() for path in (old, unrelated, new)] == [False, True, True]


@pytest.mark.parametrize("version", [17, 21, 25])
def test_a_path_with_a_space_is_one_java_option(java: Java, version: int) -> None:
    options = read_options(Path("/home/a b/spark.jsa"), Java(java.home, version, java.program))
    assert options.startswith('"-XX:SharedArchiveFile=/home/a b/spark.jsa" -Xlog:cds*=off')
