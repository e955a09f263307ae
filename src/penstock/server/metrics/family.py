"""What a metric is: its name, its kind, what it means and what it is told apart by."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

Kind: TypeAlias = Literal["counter", "gauge", "histogram"]

#: Seconds from half a millisecond to a minute.
SECONDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
#: The same for what takes a cycle or more; penstock.cycle_bounds() says the same in the database.
CYCLE_SECONDS = (0.05, 0.1, 0.2, 0.3, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0, 5.0, 10.0, 30.0, 60.0, 300.0)


@dataclass(frozen=True, slots=True)
class Family:
    """A metric.

    Labels are names of queues, groups, queries, routes and the like, of which there are few; never a key.
    A counter's name is written with ``_total`` at its end, as Prometheus wants it.
    """

    name: str
    kind: Kind
    help: str
    labels: tuple[str, ...] = ()
    bounds: tuple[float, ...] = ()

    @property
    def exposed(self) -> str:
        """The name that a scrape shows."""
        return f"{self.name}_total" if self.kind == "counter" else self.name


@dataclass(frozen=True, slots=True)
class Distribution:
    """A histogram's value: how many were in each bucket, the last of which has no bound, and their sum."""

    counts: Sequence[float]
    sum: float


@dataclass(slots=True)
class Sampled:
    """A metric with its values: label values and a number, or a distribution for a histogram."""

    family: Family
    samples: Mapping[tuple[str, ...], float | Distribution] = field(default_factory=dict)

    def sum(self) -> float:
        """All its numbers together."""
        return sum(value for value in self.samples.values() if not isinstance(value, Distribution))
