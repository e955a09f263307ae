"""The checks of a run by name, and the problems of failed ones."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager


class Checks:
    """A check that is made several times holds if it held each time."""

    def __init__(self) -> None:
        self.results: dict[str, bool] = {}
        self.failures: list[str] = []

    def expect(self, name: str, holds: bool, otherwise: str = "") -> None:
        self.results[name] = self.results.get(name, True) and holds
        if not holds:
            said = f"{name}: {otherwise}" if otherwise else name
            self.failures.append(said)
            print(f"  CHECK FAILED  {said}", flush=True)

    def expect_none(self, name: str, problems: Iterable[str]) -> None:
        problems = list(problems)
        self.expect(name, not problems, "; ".join(problems))

    @contextmanager
    def catching(self, name: str) -> Iterator[None]:
        """Count an error as a failed check, so that the rest is measured all the same."""
        try:
            yield
        except Exception as error:
            self.expect(f"{name}: it runs", False, f"{type(error).__name__}: {error}")

    @property
    def ok(self) -> bool:
        return all(self.results.values())
