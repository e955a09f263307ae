"""Spark's checkpoint is of no account: it may be lost, or be an old one."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from penstock.core.settings import Settings
from tests.engine.crash.orders import QUERY, Orders, committed, eventually, stream

pytestmark = [pytest.mark.timeout(600), pytest.mark.usefixtures("spark")]


class Checkpoints:
    """The directories that the queries of a test were given."""

    def __init__(self) -> None:
        self.made: list[Path] = []
        #: What the next one is to hold already.
        self.stale: Path | None = None
        self._make = tempfile.mkdtemp

    def mkdtemp(self, *arguments: Any, **more: Any) -> str:
        made = Path(self._make(*arguments, **more))
        if self.stale is not None:
            shutil.copytree(self.stale, made, dirs_exist_ok=True)
            self.stale = None
        self.made.append(made)
        return str(made)


@pytest.fixture
def checkpoints(monkeypatch: pytest.MonkeyPatch) -> Checkpoints:
    checkpoints = Checkpoints()
    monkeypatch.setattr("penstock.engine.driver.checkpoint.tempfile.mkdtemp", checkpoints.mkdtemp)
    return checkpoints


@contextmanager
def running(url: str) -> Iterator[Any]:
    query = stream().start(QUERY, settings=Settings(database_url=url), interval_seconds=0)
    try:
        yield query
    finally:
        query.stop()


def wait_for_cycles(url: str, more: int = 2) -> None:
    goal = committed(url) + more
    eventually(lambda: committed(url) >= goal, what=f"{more} more cycles")


def copied(checkpoint: Path, where: Path) -> Path:
    """A copy with at least one batch in it; files come and go while it is made."""

    def copy() -> bool:
        shutil.rmtree(where, ignore_errors=True)
        try:
            shutil.copytree(checkpoint, where)
        except (shutil.Error, OSError):
            return False
        return (where / "commits" / "0").exists()

    eventually(copy)
    return where


def leave_last_batch(checkpoint: Path, *, is_open: bool) -> None:
    """Make it one of which the last batch is done, or begun only."""

    def batches(kind: str) -> dict[int, Path]:
        return {int(path.name): path for path in (checkpoint / kind).glob("[0-9]*")}

    last = max(batches("commits"))
    for batch, path in batches("offsets").items():
        if batch > last:
            path.unlink()
    if is_open:
        batches("commits")[last].unlink()


@pytest.mark.chaos
def test_a_query_goes_on_when_its_checkpoint_is_deleted_or_replaced(
    database_url: str, checkpoints: Checkpoints, tmp_path: Path
) -> None:
    with Orders(database_url) as orders, running(database_url) as query:
        with orders.pushing():
            wait_for_cycles(database_url)
            old = copied(checkpoints.made[-1], tmp_path / "old")
            wait_for_cycles(database_url)
            shutil.rmtree(checkpoints.made[-1], ignore_errors=True)
            wait_for_cycles(database_url)
            # Spark may have noticed, and then it has another; the old one takes the place of whichever it is.
            shutil.rmtree(checkpoints.made[-1], ignore_errors=True)
            shutil.copytree(old, checkpoints.made[-1], dirs_exist_ok=True)
            wait_for_cycles(database_url)
        orders.check()
        assert query.is_running


def test_a_query_that_has_nothing_to_do_when_spark_begins_goes_on(database_url: str, checkpoints: Checkpoints) -> None:
    with Orders(database_url) as orders:
        orders.push(100)
        with running(database_url) as query:
            # All is read before Spark has started its stream, which begins with a batch all the same.
            eventually(lambda: (checkpoints.made[-1] / "commits" / "0").exists())
            orders.check()
            assert query.status.error is None
            assert len(checkpoints.made) == 1, "it was started again"


@pytest.mark.parametrize("with_an_open_batch", [False, True])
def test_a_query_that_finds_a_stale_checkpoint_starts_where_the_database_is(
    database_url: str, checkpoints: Checkpoints, tmp_path: Path, with_an_open_batch: bool
) -> None:
    with Orders(database_url) as orders:
        orders.push(200)
        with orders.pushing(), running(database_url):
            wait_for_cycles(database_url)
            checkpoints.stale = copied(checkpoints.made[0], tmp_path / "stale")
            wait_for_cycles(database_url)
        leave_last_batch(checkpoints.stale, is_open=with_an_open_batch)
        last = max(int(path.name) for path in (checkpoints.stale / "offsets").iterdir() if path.name.isdigit())
        before = len(checkpoints.made)
        orders.push(200)
        with running(database_url):
            orders.check()
        # What Spark would have done again is refused, and it begins anew; its very first batch has nothing to do.
        assert len(checkpoints.made) == before + (2 if with_an_open_batch and last > 0 else 1)
        assert not any(path.exists() for path in checkpoints.made)
