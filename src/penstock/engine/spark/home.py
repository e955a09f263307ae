"""A SPARK_HOME without Spark's archives of Python modules.

Spark puts ``pyspark.zip`` first on the path of every Python process that it starts. Each process compiles the modules
of the archive again, which takes 1.3 seconds of CPU time instead of 0.4. On a busy machine that exceeds the ten seconds
that Spark waits. Without the archives, Python imports the installed modules, which are compiled once.
"""

from __future__ import annotations

import hashlib
import os
import sys
from contextlib import suppress
from pathlib import Path

from pyspark.find_spark_home import _find_spark_home

from penstock.engine.spark.java import Java

_LINKED_DIRECTORIES = ("bin", "conf", "data", "jars", "sbin")


def set_spark_home(java: Java) -> None:
    """Set SPARK_HOME to a directory without the archives, unless the user has chosen a Spark or a Python."""
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
