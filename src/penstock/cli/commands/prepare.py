"""``penstock prepare``: create the class archive that makes Spark start faster."""

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
from penstock.cli.command_session import CommandSession
from penstock.core.errors import ConfigurationError

if TYPE_CHECKING:
    from penstock.engine.spark.java import Java


root = typer.Typer()


@command(root, "prepare", examples=["penstock prepare", "penstock prepare --quiet"])
async def prepare(session: CommandSession) -> None:
    """Make Spark start faster: run a small pipeline and archive the Java classes that it loads.

    This takes about a minute, once per installation and user, and about 170 MB in the user's cache. Every Spark that
    Penstock starts on this machine then uses the archive. The pipeline runs on a temporary PostgreSQL.
    """
    from penstock.cli.commands.run import require_spark

    require_spark()
    from penstock.engine.spark.class_archive import archive_path, supports_class_archive
    from penstock.engine.spark.java import find_java, set_spark_home

    java = find_java()
    if not supports_class_archive(java):
        raise ConfigurationError(
            f"{java.program} has no class data archive of its own, which the archive of Spark's classes needs: use a "
            "Java that has one, such as Debian's openjdk-17"
        )
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    set_spark_home(java)
    archive = archive_path(java)
    if archive is None:
        raise ConfigurationError(
            "SPARK_HOME or PYSPARK_PYTHON names another Spark or Python than the installed one, and the archive works "
            "with the installed one only: unset these variables"
        )
    started = time.monotonic()
    if not archive.exists():
        session.out.note("Running a small pipeline on Spark to find the classes it loads…")
        _write_archive(archive, java)
    size = archive.stat().st_size
    session.out.result(
        {"archive": str(archive), "bytes": size, "seconds": round(time.monotonic() - started, 1)},
        f"Spark now starts from {archive} ({size / 1e6:.0f} MB).",
    )


def _write_archive(archive: Path, java: Java) -> None:
    from penstock.engine.spark.class_archive import remove_stale_archives, write_options

    directory = Path(tempfile.mkdtemp(prefix="penstock-prepare-"))
    # Renamed when complete: a Spark that starts meanwhile must not read a partial archive.
    partial = archive.with_suffix(f".{os.getpid()}")
    try:
        process = subprocess.run(  # noqa: S603 - this Python
            [sys.executable, "-m", "penstock.cli.prepare_workload", str(directory), write_options(partial, java)],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
        )
        if process.returncode or not partial.exists():
            output = (process.stderr or process.stdout).strip().splitlines()
            raise ConfigurationError(
                f"Java wrote no class archive{f': {output[-1]}' if output else ''}. Spark still works, without it"
            )
        os.replace(partial, archive)
        remove_stale_archives(archive)
    finally:
        partial.unlink(missing_ok=True)
        shutil.rmtree(directory, ignore_errors=True)
