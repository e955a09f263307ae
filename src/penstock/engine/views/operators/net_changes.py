"""The net changes of another view's rows, which may have changed several times since the last cycle."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from penstock.engine.kernels.arrays import take, values_of
from penstock.engine.state.operator_state import WEIGHT
from penstock.engine.views.operators.base import ArrowFunction, cancel_equal_rows, key_groups

#: The order of a row's changes.
SEQUENCE = "__sequence"


@dataclass(frozen=True)
class NetChanges(ArrowFunction):
    """One row that disappears, if there was one before, and one that appears, if there is one afterwards.

    It keeps no state. The input has the column HASH, of the key.
    """

    key: tuple[str, ...]

    def compute(self, rows: pa.Table) -> pa.Table:
        sequence, weights = values_of(rows.column(SEQUENCE)), values_of(rows.column(WEIGHT))
        # A row that disappears and one that appears may have the same number.
        rows = take(rows, np.lexsort((weights, sequence)))
        groups, weights = key_groups(rows, self.key), values_of(rows.column(WEIGHT))
        first, last = groups.first, groups.last
        positions = np.concatenate([first[weights[first] < 0], last[weights[last] > 0]])
        names = [name for name in self.output_schema.names if name != WEIGHT]
        return cancel_equal_rows(take(rows, positions), self.key, names)
