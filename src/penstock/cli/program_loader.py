"""Runs a Python file as the main program and collects the streams it defines."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, cast

from penstock.core.errors import InvalidRequest, PenstockError

if TYPE_CHECKING:
    from penstock.engine.stream import Stream


class ProgramFailed(Exception):
    """The file raised an error that is no PenstockError. ``report`` is the traceback, without our own frames."""

    def __init__(self, report: str) -> None:
        super().__init__(report)
        self.report = report


class Program:
    """A Python file that replaces the main program of this process."""

    def __init__(self, path: Path, code: Any, module: ModuleType) -> None:
        self._path = path
        self._code = code
        self._module = module

    def run(self) -> None:
        try:
            exec(self._code, vars(self._module))  # noqa: S102 - the user asked to run the file
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
        """Return the top-level streams by variable name. Names with a leading underscore are parts of other streams."""
        from penstock.engine.stream import Stream

        streams: dict[str, Stream] = {}
        for name, value in vars(self._module).items():
            if isinstance(value, Stream) and not name.startswith("_") and not any(value is s for s in streams.values()):
                self._check(name, value)
                streams[name] = value
        return streams

    def _check(self, name: str, stream: Stream) -> None:
        try:
            stream.check()
        except InvalidRequest as error:
            raise InvalidRequest(
                f"{self._path.name}: {name}: {error}. If it is a part of other streams, rename it to _{name}"
            ) from None


@contextmanager
def main_program(path: Path, arguments: Sequence[str]) -> Iterator[Program]:
    """Make a file the main program of this process inside the block, without running it."""
    code = _compile(path)
    module = ModuleType("__main__")
    module.__file__ = str(path)
    previous_main, previous_argv = sys.modules["__main__"], sys.argv
    sys.modules["__main__"] = module
    sys.argv = [str(path), *arguments]
    try:
        with modules_next_to(path):
            yield Program(path, code, module)
    finally:
        sys.modules["__main__"], sys.argv = previous_main, previous_argv


@contextmanager
def modules_next_to(path: Path) -> Iterator[None]:
    """Make the modules in the directory of a file importable inside the block."""
    previous_path = sys.path[:]
    sys.path.insert(0, str(path.parent.absolute()))
    try:
        yield
    finally:
        sys.path[:] = previous_path


def load_function(text: str) -> Callable[[Any], Any]:
    """Return the function that ``FILE:FUNCTION`` names. The file is imported, not run as the main program."""
    file, _, name = text.rpartition(":")
    if not file or not name.isidentifier():
        raise InvalidRequest(f"{text!r} does not name a function: write it like correct.py:correct")
    path = Path(file)
    if not path.is_file():
        raise InvalidRequest(f"there is no file {file}")
    module = ModuleType(path.stem)
    module.__file__ = str(path)
    sys.path.insert(0, str(path.parent.absolute()))
    Program(path, _compile(path), module).run()
    function = getattr(module, name, None)
    if not callable(function):
        raise InvalidRequest(f"{file} has no function {name}")
    return cast("Callable[[Any], Any]", function)


def _compile(path: Path) -> Any:
    try:
        return compile(path.read_bytes(), str(path), "exec")
    except (SyntaxError, ValueError) as error:
        line = f":{error.lineno}" if isinstance(error, SyntaxError) and error.lineno else ""
        reason = error.msg if isinstance(error, SyntaxError) else str(error)
        raise InvalidRequest(f"{path}{line}: not valid Python: {reason}") from None


def _line_of(error: BaseException, path: Path) -> int | None:
    """Return the line of the file at which the error was raised."""
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(path)]
    return lines[-1] if lines else None
