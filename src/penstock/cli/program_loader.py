"""A Python file, run as ``python FILE`` runs it, and the streams that it defines."""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from penstock.core.errors import InvalidRequest, PenstockError

if TYPE_CHECKING:
    from penstock.engine.stream import Stream


class ProgramFailed(Exception):
    """The file raised something that is none of our errors; ``report`` is the traceback, from the file on."""

    def __init__(self, report: str) -> None:
        super().__init__(report)
        self.report = report


class Program:
    """A file as this process's main program."""

    def __init__(self, path: Path, code: Any, module: ModuleType) -> None:
        self._path = path
        self._code = code
        self._module = module

    def run(self) -> None:
        """Run the file, to its end."""
        try:
            exec(self._code, vars(self._module))  # noqa: S102 - running the file is what was asked for
        except PenstockError as error:
            line = _line_of(error, self._path)
            if line is not None and error.args:
                error.args = (f"{self._path.name}:{line}: {error.args[0]}", *error.args[1:])
            raise
        except Exception as error:
            frames = error.__traceback__
            report = traceback.format_exception(type(error), error, frames and frames.tb_next)
            raise ProgramFailed("".join(report)) from error

    def streams(self) -> dict[str, Stream]:
        """The streams at its top level by their names; a name that begins with an underscore is for parts of them."""
        from penstock.engine.stream import Stream

        found: dict[str, Stream] = {}
        for name, value in vars(self._module).items():
            if isinstance(value, Stream) and not name.startswith("_") and not any(value is s for s in found.values()):
                self._check(name, value)
                found[name] = value
        return found

    def _check(self, name: str, stream: Stream) -> None:
        try:
            stream.check()
        except InvalidRequest as error:
            raise InvalidRequest(
                f"{self._path.name}: {name}: {error}. If it is a part of other streams, call it _{name}"
            ) from None


@contextmanager
def main_program(path: Path, arguments: Sequence[str]) -> Iterator[Program]:
    """A file that is this process's main program while the block lasts; it is not run yet."""
    code = _compiled(path)
    module = ModuleType("__main__")
    module.__file__ = str(path)
    directory = str(path.parent.absolute())
    before = sys.modules["__main__"], sys.argv, sys.path[:], os.environ.get("PYTHONPATH")
    sys.modules["__main__"] = module
    sys.argv = [str(path), *arguments]
    sys.path.insert(0, directory)
    # Spark's workers on this machine get it too, so that callables can import what lies beside the file.
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [directory, before[3]]))
    try:
        yield Program(path, code, module)
    finally:
        sys.modules["__main__"], sys.argv, sys.path[:] = before[:3]
        if before[3] is None:
            os.environ.pop("PYTHONPATH", None)
        else:
            os.environ["PYTHONPATH"] = before[3]


def _compiled(path: Path) -> Any:
    try:
        return compile(path.read_bytes(), str(path), "exec")
    except (SyntaxError, ValueError) as error:
        where = f":{error.lineno}" if isinstance(error, SyntaxError) and error.lineno else ""
        said = error.msg if isinstance(error, SyntaxError) else str(error)
        raise InvalidRequest(f"{path}{where}: it is not Python: {said}") from None


def _line_of(error: BaseException, path: Path) -> int | None:
    """Where in the file it went wrong."""
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(path)]
    return lines[-1] if lines else None
