"""Named checks of a run."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager


class Checks:
    """Collects check results. A check that runs several times passes if it passes each time."""

    def __init__(self) -> None:
        self.results: dict[str, bool] = {}
        self.failures: list[str] = []

    def expect(self, name: str, holds: bool, detail: str = "") -> None:
        self.results[name] = self.results.get(name, True) and holds
        if not holds:
            failure = f"{name}: {detail}" if detail else name
            self.failures.append(failure)
            print(f"  CHECK FAILED  {failure}", flush=True)

    def expect_none(self, name: str, problems: Iterable[str]) -> None:
        problems = list(problems)
        self.expect(name, not problems, "; ".join(problems))

    @contextmanager
    def catching(self, name: str) -> Iterator[None]:
        """Record an exception as a failed check and continue."""
        try:
            yield
        except Exception as error:
            self.expect(f"{name}: it runs", False, f"{type(error).__name__}: {error}")

    @property
    def ok(self) -> bool:
        return all(self.results.values())
