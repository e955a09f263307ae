"""Rules on past results: the alerts of a trial are those of the rule."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from penstock.core.errors import InvalidOption
from penstock.engine.alerts.trial import try_rule
from penstock.log.log import Log
from penstock.stream.rules import Rule, above, absent, below, change, rule, zscore
from tests.log.logs import QUEUE, push

BEGIN = datetime(2026, 1, 31, 12, 0, tzinfo=UTC)
VALUES = [100, 104, 98, 101, 97, 940, 1000, 99, 102]


def window(n: int, value: float) -> dict[str, Any]:
    return {"views": value, "window_end": (BEGIN + timedelta(minutes=n)).isoformat()}


def minutes(at: datetime) -> float:
    return (at - BEGIN) / timedelta(minutes=1)


@pytest.mark.parametrize(
    ("made", "alerts"),
    [
        (rule("r", on=QUEUE, value="views", when=above(500)), [(5, "firing"), (7, "cleared")]),
        (rule("r", on=QUEUE, value="views", when=below(98, clear=99)), [(4, "firing"), (5, "cleared")]),
        (rule("r", on=QUEUE, value="views", when=zscore(3, over=5)), [(5, "firing"), (7, "cleared")]),
        (rule("r", on=QUEUE, value="views", when=change(0.5, over=3)), [(5, "firing"), (7, "cleared")]),
        (rule("r", on=QUEUE, value="views", when=absent(120)), [(10, "firing"), (20, "cleared")]),
    ],
)
async def test_a_trial_raises_the_alerts_of_the_rule(log: Log, made: Rule, alerts: list[tuple[int, str]]) -> None:
    results = [window(n, value) for n, value in enumerate(VALUES)]
    await push(log, results, key="shop")
    if made.condition.kind == "absent":
        await push(log, [window(20, 100)], key="shop")
    trial = await try_rule(log, made)
    assert [(minutes(each.at), each.state) for each in trial.alerts] == alerts
    assert [point.value for point in trial.points][: len(VALUES)] == VALUES


async def test_thresholds_are_those_of_the_baseline_and_do_not_move_while_the_rule_fires(log: Log) -> None:
    await push(log, [window(n, value) for n, value in enumerate([100, 100, 100, 900, 900, 100])], key="shop")
    trial = await try_rule(log, rule("r", on=QUEUE, value="views", when=change(0.5, over=3, clear=0.2)))
    bounds = [(point.lower, point.upper) for point in trial.points]
    assert bounds == [(None, None)] * 3 + [(50, 150), (80, 120), (80, 120)]
    assert [point.firing for point in trial.points] == [False, False, False, True, True, False]


async def test_keys_do_not_mix(log: Log) -> None:
    for key in ("a", "b"):
        await push(log, [window(n, value) for n, value in enumerate([1, 9 if key == "a" else 1])], key=key)
    trial = await try_rule(log, rule("r", on=QUEUE, value="views", when=above(5)))
    assert [each.key for each in trial.alerts] == ["a"]


async def test_a_field_that_no_result_has_is_refused(log: Log) -> None:
    misspelt = rule("r", on=QUEUE, value="veiws", when=above(5))
    assert (await try_rule(log, misspelt)).points == []
    await push(log, [window(n, n) for n in range(3)], key="a")
    with pytest.raises(InvalidOption, match=r"has the field 'veiws'; did you mean 'views'\?"):
        await try_rule(log, misspelt)
    await push(log, [{"veiws": None}], key="a")
    assert len((await try_rule(log, misspelt)).points) == 4
