"""Cycles of an operator without Spark and PostgreSQL: its state is in memory, in the encoding of PostgreSQL."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import pyarrow as pa

from penstock.engine.state.operator_state import OperatorState
from penstock.engine.state.runs import Run, RunKey, RunPiece, RunTimes, decode_hashes, decode_rows, encode_piece
from penstock.engine.views.operators.base import StatefulOperator


@dataclass
class MemoryRunStore:
    """The runs of one operator. Staged runs become visible with the commit."""

    runs: dict[str, tuple[RunKey, list[tuple[int, bytes]]]] = field(default_factory=dict)
    staged: list[tuple[RunKey, list[tuple[int, bytes]], list[str], RunTimes | None]] = field(default_factory=list)
    times: dict[str, RunTimes | None] = field(default_factory=dict)
    written_rows: int = 0
    #: The numbers of the pieces that were loaded.
    loaded: list[int] = field(default_factory=list)

    def load(self, shards: Sequence[int]) -> list[Run]:
        loaded = []
        for run_id, (key, pieces) in self.runs.items():
            if key.shard in shards:
                hashes = [decode_hashes(data, rows) for rows, data in pieces]
                pieces_of_run = [RunPiece(h, None, run_id, n) for n, h in enumerate(hashes)]
                loaded.append(Run(run_id, key, pieces_of_run, self.times[run_id]))
        return loaded

    def load_pieces(self, pieces: Sequence[RunPiece]) -> None:
        for piece in pieces:
            self.loaded.append(piece.number)
            rows, data = self.runs[piece.run_id][1][piece.number]
            piece.rows = decode_rows(data[8 * rows :])

    def stage(
        self, key: RunKey, pieces: list[RunPiece], replaced: Sequence[Run], times: RunTimes | None = None
    ) -> None:
        encoded = [(len(piece.hashes), encode_piece(piece)) for piece in pieces]
        self.written_rows += sum(rows for rows, _ in encoded)
        self.staged.append((key, encoded, [run.id for run in replaced], times))

    def flush(self) -> None:
        pass

    def commit(self) -> None:
        for key, pieces, replaced, times in self.staged:
            for run_id in replaced:
                del self.runs[run_id]
            if pieces:
                run_id = f"run {len(self.runs)} {self.written_rows} {key}"
                self.runs[run_id], self.times[run_id] = (key, pieces), times
        self.staged.clear()

    def run_cycle(
        self, operator: StatefulOperator, changes: pa.Table, now_us: int = 0, *, is_expiry: bool = False
    ) -> pa.Table:
        """The operator's output for the changes of a cycle, which is committed."""
        shards = operator.state.shards
        state = OperatorState(self, range(shards), shards, now_us, shrinks=is_expiry)
        operator = replace(operator, state=replace(operator.state, is_expiry=is_expiry))
        result = operator.update(pa.table(changes.columns, names=changes.column_names), state)
        state.flush()
        self.commit()
        return result.select(operator.output_schema.names).cast(operator.output_schema)

    @property
    def row_count(self) -> int:
        return sum(rows for _, pieces in self.runs.values() for rows, _ in pieces)
