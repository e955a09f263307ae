"""``penstock prepare``: what makes Spark start sooner, done once."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from penstock.cli.command import command
from penstock.cli.session import Session

if TYPE_CHECKING:
    from penstock.engine.spark.java import Java


def register(app: typer.Typer) -> None:
    """Add the command."""
    command(app, "prepare", examples=["penstock prepare", "penstock prepare --quiet"])(prepare)


async def prepare(session: Session) -> None:
    """Let Spark start sooner: run a small pipeline, and keep the classes that Java has loaded for it.

    It takes a minute, once for each installation and each user, and about 170 MB in the user's cache. Every Spark
    that Penstock starts on this machine uses it from then on. The pipeline runs on a PostgreSQL of its own, of which
    nothing is left.
    """
    from penstock.cli.commands.run import need_spark

    need_spark()
    from penstock.core.errors import ConfigurationError
    from penstock.engine.spark.class_archive import archive_path, supports_class_archive
    from penstock.engine.spark.home import set_spark_home
    from penstock.engine.spark.java import find_java

    java = find_java()
    if not supports_class_archive(java):
        raise ConfigurationError(
            f"{java.program} comes without an archive of its own classes, which that of Spark's would be laid upon. "
            "Spark starts as before; a Java that has one, such as Debian's openjdk-17, lets it start sooner"
        )
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    set_spark_home(java)
    archive = archive_path(java)
    if archive is None:
        raise ConfigurationError(
            "SPARK_HOME or PYSPARK_PYTHON names a Spark or a Python other than the installed ones, and only for those "
            "an archive of classes is kept. Run it without these variables"
        )
    began = time.monotonic()
    if not archive.exists():
        session.out.note("Running a small pipeline on Spark, to see what it loads…")
        _make(archive, java)
    size = archive.stat().st_size
    if session.out.json:
        session.out.document({"archive": str(archive), "bytes": size, "seconds": round(time.monotonic() - began, 1)})
    else:
        session.out.note(f"Spark starts from {archive} ({size / 1e6:.0f} MB) from now on.")


def _make(archive: Path, java: Java) -> None:
    from penstock.core.errors import ConfigurationError
    from penstock.engine.spark.class_archive import remove_stale_archives, write_options

    directory = Path(tempfile.mkdtemp(prefix="penstock-prepare-"))
    # Whoever starts a Spark meanwhile must not see half an archive.
    draft = archive.with_suffix(f".{os.getpid()}")
    try:
        ran = subprocess.run(  # noqa: S603 - this Python
            [sys.executable, "-m", "penstock.cli.prepare_workload", str(directory), write_options(draft, java)],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
        )
        if ran.returncode or not draft.exists():
            said = (ran.stderr or ran.stdout).strip().splitlines()
            raise ConfigurationError(
                f"Java has left no archive{f': {said[-1]}' if said else ''}. Spark starts as it did before"
            )
        os.replace(draft, archive)
        remove_stale_archives(archive)
    finally:
        draft.unlink(missing_ok=True)
        shutil.rmtree(directory, ignore_errors=True)
