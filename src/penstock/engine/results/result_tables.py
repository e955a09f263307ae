"""The result tables and views of a query, and the statements that merge partial aggregates into them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from psycopg import sql

from penstock.db.statements import Statements, fill_placeholders
from penstock.engine.compile.windows.window_output import WindowOutput
from penstock.stream.windows import CalendarWindow, SlidingWindow, TumblingWindow, Window

if TYPE_CHECKING:
    from penstock.engine.compile.windows.aggregate_columns import ResultColumn, StateColumn

_tables = Statements("penstock.engine.results", "result_tables.sql")
_merge = Statements("penstock.engine.results", "merge.sql")

#: The key in the views: NULL if there is none, in the collation of the database.
_KEY = "nullif(s.key, '') COLLATE \"default\""

#: PostgreSQL functions take at most 100 arguments.
_MAX_PAIRS = 50

#: PostgreSQL cuts longer names off.
_MAX_VIEW_BYTES = 63

_DAY_SECONDS = 86_400
#: The shortest and the longest calendar windows, in seconds. A change of the clocks counts for up to an hour.
_CALENDAR_SECONDS = {
    "minute": (60, 60),
    "hour": (1800, 5400),
    "day": (_DAY_SECONDS - 3600, _DAY_SECONDS + 3600),
    "week": (7 * _DAY_SECONDS - 3600, 7 * _DAY_SECONDS + 3600),
    "month": (28 * _DAY_SECONDS - 3600, 31 * _DAY_SECONDS + 3600),
    "quarter": (89 * _DAY_SECONDS - 3600, 92 * _DAY_SECONDS + 3600),
    "year": (365 * _DAY_SECONDS - 3600, 366 * _DAY_SECONDS + 3600),
}


@dataclass(frozen=True)
class ResultTables:
    """The statements for the tables of one query."""

    query_id: int
    name: str
    columns: Sequence[ResultColumn]
    #: A second name of the key in the views: the name of the field that is the key.
    key_name: str | None = None
    #: True if windows are looked up by key, like sessions.
    has_key_index: bool = False
    #: The SQL of the events of closed windows.
    output: WindowOutput = field(default_factory=WindowOutput)
    #: The windows of the stream. The view of current windows shows the first.
    windows: Sequence[Window] = ()
    #: How long the query waits for events before its time follows the clock.
    idle_flush_us: int = 5_000_000

    @property
    def state_columns(self) -> list[StateColumn]:
        return [state for column in self.columns for state in column.state]

    def create_statements(self) -> list[str]:
        definitions = ",\n    ".join(f"{state.name} {state.pg_type}" for state in self.state_columns)
        statements = [
            fill_placeholders(_tables[name], id=self.query_id, definitions=definitions)
            for name in ("create_state", "create_history", "index_history")
        ]
        if self.has_key_index:
            statements += [
                fill_placeholders(_tables["index_state_keys"], id=self.query_id),
                self.create_history_key_index(),
            ]
        check = fill_placeholders(_tables["check_output"], id=self.query_id, event=self.event_sql())
        return [*statements, *self.create_views(), check]

    def create_history_key_index(self) -> str:
        """A statement that creates the index for closed sessions if it does not exist."""
        return fill_placeholders(_tables["index_history_keys"], id=self.query_id)

    def create_views(self) -> list[str]:
        return [self._view_statement(name, self.name) for name in ("create_live_view", "create_history_view")]

    def create_current_view(self, name: str) -> str:
        """A statement that creates the view with the current window of each key."""
        window = self.windows[0] if self.windows else None
        if not isinstance(window, SlidingWindow):
            return self._view_statement("create_current_view", name, of_window=self._length_condition())
        return self._view_statement(
            "create_current_sliding_view",
            name,
            of_window=self._length_condition(),
            names=", ".join(f"s.{state.name}" for state in self.state_columns),
            size=_interval(window.size_us),
            slide=_interval(window.slide_us),
            idle=_interval(self.idle_flush_us),
        )

    def _view_statement(self, statement: str, view: str, **values: str) -> str:
        keys = f"{_KEY} AS key"
        if self.key_name is not None:
            keys += f", {_KEY} AS {_identifier(self.key_name)}"
        return fill_placeholders(
            _tables[statement],
            id=self.query_id,
            view=_identifier(view),
            keys=keys,
            finals=self._finals(),
            where="" if self.output.condition is None else f"\nWHERE {_of_row(self.output.condition)}",
            **values,
        )

    def _length_condition(self) -> str:
        """SQL that is true for the first windows of a stream with several. They are told apart by their length."""
        if len(self.windows) < 2:
            return "true"
        match self.windows[0]:
            case TumblingWindow(size_us=size_us) | SlidingWindow(size_us=size_us):
                return f"s.window_end - s.window_start = {_interval(size_us)}"
            case CalendarWindow(every=every):
                shortest, longest = (_interval(seconds * 1_000_000) for seconds in _CALENDAR_SECONDS[every])
                return f"s.window_end - s.window_start BETWEEN {shortest} AND {longest}"
        return "true"

    def state_part(self) -> str:
        """The query's part of the view over the open windows of all queries."""
        pairs = [f"{_literal(column.name)}, {_of_row(column.final)}" for column in self.columns]
        value = " || ".join(f"jsonb_build_object({arguments})" for arguments in _argument_lists(pairs))
        return fill_placeholders(_tables["state_part"], id=self.query_id, name=_literal(self.name), value=value)

    def statement(self, name: str, *, corrects: bool = True) -> str:
        """A statement of merge.sql for this query. With ``corrects``, it may correct closed windows."""
        states = self.state_columns
        text = _merge[name].replace("{conflict}", _merge["correct_on_conflict"] if corrects else "")
        return fill_placeholders(
            text,
            id=self.query_id,
            start="('epoch'::timestamptz + p.start_us * interval '1 microsecond')",
            end="('epoch'::timestamptz + p.end_us * interval '1 microsecond')",
            staged=", ".join(f"{state.name} {state.staged_type}" for state in states),
            names=", ".join(state.name for state in states),
            moved_names=", ".join(f"o.{state.name}" for state in states),
            old_names=", ".join(f"s.{state.name}" for state in states),
            reads=", ".join(state.read.format(f"p.{state.name}") for state in states),
            named_reads=", ".join(f"{state.read.format(f'p.{state.name}')} AS {state.name}" for state in states),
            merges=", ".join(f"{state.name} = {_merge_sql(state, 's', 'excluded')}" for state in states),
            joined=", ".join(
                f"CASE WHEN g.key IS NULL THEN f.{state.name} WHEN f.key IS NULL THEN g.{state.name} "
                f"ELSE {_merge_sql(state, 'g', 'f')} END"
                for state in states
            ),
            event=self.event_sql(),
            # The fields that a stream selects may not contain the end of the window.
            hidden_end="s.window_end" if self.output.fields else "NULL::timestamptz",
            finals=self._finals(),
        )

    def event_sql(self) -> str:
        """SQL of the event of a closed window; NULL if the window is not emitted."""
        if self.output.fields:
            pairs = [f"{_literal(name)}, {_of_row(final)}" for name, final in self.output.fields]
        else:
            pairs = ["'key', nullif(s.key, '')", "'window_start', s.window_start", "'window_end', s.window_end"]
            pairs += [f"{_literal(column.name)}, {_of_row(column.final)}" for column in self.columns]
        event, *more = [f"json_build_object({arguments})::text" for arguments in _argument_lists(pairs)]
        for other in more:
            event = f"left({event}, -1) || ', ' || substr({other}, 2)"
        if self.output.condition is not None:
            event = f"CASE WHEN {_of_row(self.output.condition)} THEN {event} END"
        # The statements around it have parameters.
        return event.replace("%", "%%")

    def _finals(self) -> str:
        return ", ".join(f"{_of_row(column.final)} AS {_identifier(column.name)}" for column in self.columns)


def _merge_sql(state: StateColumn, state_table: str, partial_table: str) -> str:
    """SQL that merges the values of a state column in two tables."""
    slot = state.name.split("_")[0]
    values = {}
    for mark, table in (("state", state_table), ("partial", partial_table)):
        values[mark] = f"{table}.{state.name}"
        values[f"{mark}:order"] = "(" + ", ".join(f"{table}.{slot}_{i}" for i in range(3)) + ")"
    return re.sub(r"\{([\w:]+)\}", lambda match: values[match[1]], state.merge)


def _argument_lists(pairs: Sequence[str]) -> list[str]:
    """Lists of names and values, each short enough for a PostgreSQL function."""
    return [", ".join(pairs[start : start + _MAX_PAIRS]) for start in range(0, len(pairs), _MAX_PAIRS)]


def _of_row(final: str) -> str:
    return re.sub(r"\{(\w+)\}", r"s.\1", final)


def all_states_view(parts: Sequence[str]) -> str:
    """A statement that creates the view over the open windows of all queries."""
    return fill_placeholders(
        _tables["create_all_states"], parts="\nUNION ALL\n".join([*parts, _tables["shared_state_part"]])
    )


def current_view_name(name: str) -> str | None:
    """The name of the view with the current window of each key; None if it would be too long for PostgreSQL."""
    view = f"{name}_current"
    return view if len(view.encode()) <= _MAX_VIEW_BYTES else None


def drop_current_view(view: str) -> str:
    return fill_placeholders(_tables["drop_current_view"], view=_identifier(view))


def drop_statements(query_id: int, name: str) -> list[str]:
    return [
        fill_placeholders(_tables["drop_views"], view=_identifier(name)),
        fill_placeholders(_tables["drop_tables"], id=query_id),
    ]


def _interval(micros: int) -> str:
    return f"({int(micros)} * interval '1 microsecond')"


def _identifier(name: str) -> str:
    return sql.Identifier(name).as_string()


def _literal(value: str) -> str:
    return sql.Literal(value).as_string().strip()
