"""Where Spark is, as its JVM is told: the installed one, without its archives of Python modules.

Spark puts ``pyspark.zip`` first on the path of every Python process that it starts, and what comes out of an archive is
compiled anew by each of them: 1.3 seconds of processor time, instead of 0.4 where it was compiled once. On a busy
machine that is longer than the ten seconds for which Spark waits. Without the archives, Python finds the same modules
where they are installed.
"""

from __future__ import annotations

import hashlib
import os
import sys
from contextlib import suppress
from pathlib import Path

from pyspark.find_spark_home import _find_spark_home

from penstock.engine.spark.java import Java

_PARTS = ("bin", "conf", "data", "jars", "sbin")


def use_modules_as_installed(java: Java) -> None:
    """Let the JVM that is started next do without the archives, unless somebody names another Spark or Python."""
    if "SPARK_HOME" in os.environ or os.environ.get("PYSPARK_PYTHON") != sys.executable:
        return
    installed = Path(_find_spark_home())
    name = hashlib.sha256(os.fsencode(installed)).hexdigest()[:16]
    # Beside the launcher, in a directory that is this user's alone.
    home = java.home.parent / f"spark-{name}"
    with suppress(OSError):
        home.mkdir(mode=0o700, exist_ok=True)
        for part in _PARTS:
            if (installed / part).is_dir():
                with suppress(FileExistsError):
                    (home / part).symlink_to(installed / part)
        os.environ["SPARK_HOME"] = str(home)
