"""A query's own tables and views, and the statements that merge a cycle's partials into them."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from psycopg import sql

from penstock.db.statements import Statements, filled
from penstock.engine.compile.aggregate_columns import Kept, ResultColumn, Shape

_tables = Statements("penstock.engine", "result_tables.sql")
_merge = Statements("penstock.engine", "merge.sql")
_sessions = Statements("penstock.engine", "session_merge.sql")

#: The key as people see it: no key is NULL, and text sorts as it does elsewhere in the database.
_KEY = "nullif(s.key, '') COLLATE \"default\""

_PAIRS = 50


@dataclass(frozen=True)
class ResultTables:
    """The statements for one query's tables."""

    query: int
    name: str
    columns: Sequence[ResultColumn]
    #: A second name of the key in the views: that of the field it is.
    key_name: str | None = None
    #: Whether open windows are looked up by key, as sessions are.
    by_key: bool = False
    #: What closed windows are sent on as.
    shape: Shape = field(default_factory=Shape)

    @property
    def kept(self) -> list[Kept]:
        """Every column that is kept."""
        return [kept for column in self.columns for kept in column.kept]

    def creation(self) -> list[str]:
        """What makes the tables and the views."""
        definitions = ",\n    ".join(f"{kept.name} {kept.pg_type}" for kept in self.kept)
        makers = [
            filled(_tables[name], id=self.query, definitions=definitions)
            for name in ("create_state", "create_history", "index_history")
        ]
        if self.by_key:
            makers += [filled(_sessions["index_state"], id=self.query), self.history_keys()]
        return [*makers, *self.views(), filled(_tables["check_line"], id=self.query, line=self._line())]

    def history_keys(self) -> str:
        """What makes closed sessions be found by their key, if that is not there."""
        return filled(_sessions["index_history_keys"], id=self.query)

    def views(self) -> list[str]:
        """What makes the views."""
        keys = f"{_KEY} AS key"
        if self.key_name is not None:
            keys += f", {_KEY} AS {_identifier(self.key_name)}"
        return [
            filled(
                _tables[name],
                id=self.query,
                view=_identifier(self.name),
                keys=keys,
                finals=self._finals(),
                where="" if self.shape.condition is None else f"\nWHERE {_of_row(self.shape.condition)}",
            )
            for name in ("create_live_view", "create_history_view")
        ]

    def state_part(self) -> str:
        """The query's part of the view over all queries."""
        pairs = [f"{_literal(column.name)}, {self._final(column)}" for column in self.columns]
        value = " || ".join(f"jsonb_build_object({some})" for some in _lists(pairs))
        return filled(_tables["state_part"], id=self.query, name=_literal(self.name), value=value)

    def statement(self, name: str, *, corrects: bool = True) -> str:
        """A statement of merge.sql for this query; one that closes windows may correct those that were closed."""
        kept = self.kept
        text = _merge[name].replace("{conflict}", _merge["correct"] if corrects else "")
        return filled(
            text,
            id=self.query,
            start="('epoch'::timestamptz + p.ws * interval '1 microsecond')",
            end="('epoch'::timestamptz + p.we * interval '1 microsecond')",
            staged=", ".join(f"{k.name} {k.staged_type}" for k in kept),
            names=", ".join(k.name for k in kept),
            moved_names=", ".join(f"o.{k.name}" for k in kept),
            old_names=", ".join(f"s.{k.name}" for k in kept),
            reads=", ".join(k.read.format(f"p.{k.name}") for k in kept),
            named_reads=", ".join(f"{k.read.format(f'p.{k.name}')} AS {k.name}" for k in kept),
            merges=", ".join(f"{k.name} = {self._merged(k, 's', 'excluded')}" for k in kept),
            joined=", ".join(
                f"CASE WHEN g.key IS NULL THEN f.{k.name} WHEN f.key IS NULL THEN g.{k.name} "
                f"ELSE {self._merged(k, 'g', 'f')} END"
                for k in kept
            ),
            line=self._line(),
            # What is selected of a window need not say when it ended.
            untold_end="s.window_end" if self.shape.fields else "NULL::timestamptz",
            finals=self._finals(),
        )

    def describe(self) -> str:
        """The columns of the result, as JSON for the catalog."""
        return json.dumps([{"name": c.name, "type": c.pg_type, "final": c.final} for c in self.columns])

    def _line(self) -> str:
        """A closed window as an event; nothing, where it is not to be sent on."""
        if self.shape.fields:
            pairs = [f"{_literal(name)}, {_of_row(final)}" for name, final in self.shape.fields]
        else:
            pairs = ["'key', nullif(s.key, '')", "'window_start', s.window_start", "'window_end', s.window_end"]
            pairs += [f"{_literal(column.name)}, {self._final(column)}" for column in self.columns]
        line, *more = [f"json_build_object({some})::text" for some in _lists(pairs)]
        for other in more:
            line = f"left({line}, -1) || ', ' || substr({other}, 2)"
        if self.shape.condition is not None:
            line = f"CASE WHEN {_of_row(self.shape.condition)} THEN {line} END"
        # What it is part of has parameters.
        return line.replace("%", "%%")

    def _finals(self) -> str:
        return ", ".join(f"{self._final(column)} AS {_identifier(column.name)}" for column in self.columns)

    def _final(self, column: ResultColumn) -> str:
        return _of_row(column.final)

    def _merged(self, kept: Kept, state: str, partial: str) -> str:
        text = kept.merge.replace("{s}", f"{state}.{kept.name}").replace("{p}", f"{partial}.{kept.name}")
        if "{s:o}" in text:
            slot = kept.name.split("_")[0]
            for mark, table in (("{s:o}", state), ("{p:o}", partial)):
                text = text.replace(mark, "(" + ", ".join(f"{table}.{slot}_{i}" for i in range(3)) + ")")
        return text


def _lists(pairs: Sequence[str]) -> list[str]:
    """Names and values in lists, each of as many as PostgreSQL lets a function take."""
    return [", ".join(pairs[start : start + _PAIRS]) for start in range(0, len(pairs), _PAIRS)]


def _of_row(final: str) -> str:
    return re.sub(r"\{(\w+)\}", r"s.\1", final)


def all_states(parts: Sequence[str]) -> str:
    """What makes the view over the open windows of all queries."""
    return filled(_tables["create_all_states"], parts="\nUNION ALL\n".join([*parts, _tables["shared_state_part"]]))


def removal(query: int, name: str) -> list[str]:
    """What takes a query's views and tables away."""
    return [
        filled(_tables["drop_views"], view=_identifier(name)),
        filled(_tables["drop_tables"], id=query),
    ]


def _identifier(name: str) -> str:
    return sql.Identifier(name).as_string()


def _literal(value: str) -> str:
    return sql.Literal(value).as_string().strip()
