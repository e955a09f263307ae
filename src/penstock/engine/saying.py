"""What went wrong on Spark, in a line that says something."""

from __future__ import annotations

import re

#: What py4j puts before what the JVM said, and the JVM before what it means.
_CALLED = re.compile(r"An error occurred while calling \S+\n: ")
_CLASS = re.compile(r"^(?:[\w$]+\.)+[\w$]+: ")
#: Of a job that failed, what its last task said is worth more than that it failed.
_TASK = re.compile(r"most recent failure: Lost task [^:]*: (.*)")
_LONGEST = 500


def first_line(error: BaseException) -> str:
    """The line of an error that tells what it is about; mostly the first."""
    text = _CALLED.sub("", str(error).strip(), count=1)
    task = _TASK.search(text)
    lines = [task.group(1)] if task is not None else text.splitlines()
    return _CLASS.sub("", lines[0])[:_LONGEST] if lines else type(error).__name__
