"""What a driver that was killed leaves on the disk is removed by the next one."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest

from penstock.engine.driver.checkpoint import Checkpoint


def test_what_nobody_owns_any_more_is_removed_and_what_somebody_owns_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    left = tmp_path / "penstock-checkpoint-left"
    (left / "offsets").mkdir(parents=True)
    (left / "owner.lock").touch()
    being_made = tmp_path / "penstock-checkpoint-new"
    being_made.mkdir()
    another = tmp_path / "penstock-other"
    another.mkdir()
    alive = Checkpoint(in_memory=False)
    assert not left.exists()

    second = Checkpoint(in_memory=False)
    assert sorted(tmp_path.iterdir()) == sorted([alive.path, second.path, being_made, another])
    for checkpoint in (alive, second):
        checkpoint.close()
    assert sorted(tmp_path.iterdir()) == sorted([being_made, another])
