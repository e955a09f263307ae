"""A short run of the chaos system: all processes, a few faults, and the checker."""

from __future__ import annotations

from pathlib import Path

import psutil
import pytest

from chaos.plan import KINDS, Fault, Plan, draw
from chaos.run import format_report, run

#: What recovers without a second start of Spark; the tests of the engine kill drivers.
FAULTS = (
    Fault(0.5, "server worker killed", 0, 0.4),
    Fault(1.5, "connections to PostgreSQL cut", 0, 0),
    Fault(2.5, "producer killed", 0.2, 0.3),
    Fault(3.5, "consumer killed", 0.2, 0.7),
    Fault(4.5, "file sink killed", 0.2, 0),
    Fault(5.5, "receiver fails", 1.0, 0.9),
    Fault(7.0, "PostgreSQL killed", 0.2, 0),
    Fault(9.0, "connections to the server cut", 0, 0),
)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_the_whole_system_survives_a_few_faults(tmp_path: Path) -> None:
    before = {child.pid for child in psutil.Process().children(recursive=True)}
    plan = Plan(1, 11, FAULTS, standby=False, pause_seconds=0.2, healthy_seconds=240)
    report = run(plan, tmp_path / "run")
    assert report["ok"], format_report(report)
    assert not [fault for fault in report["faults"] if "not_done" in fault]
    left = [child for child in psutil.Process().children(recursive=True) if child.pid not in before]
    assert not left, "a process was left behind"


def test_a_seed_gives_the_same_faults_each_time() -> None:
    assert draw(7, 3) == draw(7, 3)
    assert draw(7, 3).faults != draw(8, 3).faults


def test_a_seed_without_a_cluster_draws_none_of_its_faults() -> None:
    drawn = {fault.kind for seed in range(300) for fault in draw(seed, 3).faults}
    assert drawn == {kind for kind, (weight, _, _) in KINDS.items() if weight}
    # What a seed was known for stays, whatever faults there are besides.
    assert [str(fault).strip() for fault in draw(7, 3).faults[:4]] == [
        "5.9 s  file sink killed for 0.6 s",
        "6.6 s  server worker killed",
        "13.0 s  driver's JVM paused for 12.4 s",
        "21.2 s  driver's JVM paused for 13.0 s",
    ]


def test_every_fault_can_be_drawn_and_done() -> None:
    from chaos.faults import Faults

    drawn = {fault.kind for seed in range(300) for fault in draw(seed, 3, cluster=True).faults}
    assert drawn == set(KINDS)
    for kind in KINDS:
        assert callable(Faults._done(Faults.__new__(Faults), kind))


def test_a_fault_that_is_not_known_is_refused() -> None:
    with pytest.raises(ValueError, match="there is no fault 'sunshine'"):
        draw(1, 3, kinds=["sunshine"])
