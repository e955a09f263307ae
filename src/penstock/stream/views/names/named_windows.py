"""Replaces the names of the clause WINDOW by what they stand for."""

from __future__ import annotations

from typing import Any

from sqlglot import exp

from penstock.stream.sql.sql_source import SqlSource

_PARTS = ("partition_by", "order", "spec")


def replace_named_windows(source: SqlSource, select: exp.Select) -> None:
    """Give every ``OVER w`` of a SELECT the partition, the order and the frame of ``w``, and remove the clause."""
    definitions: dict[str, Any] = {}
    for definition in select.args.get("windows") or []:
        _complete(source, definition, definitions)
        definitions[definition.this.name.lower()] = definition
    select.set("windows", None)
    for window in list(select.find_all(exp.Window)):
        if window.find_ancestor(exp.Query) is select:
            _complete(source, window, definitions)


def _complete(source: SqlSource, window: Any, definitions: dict[str, Any]) -> None:
    name = window.args.get("alias")
    if name is None:
        return
    definition = definitions.get(name.name.lower())
    if definition is None:
        raise source.error(name, f"there is no window {name.name!r}: write WINDOW {name.name} AS (PARTITION BY ...)")
    for part in _PARTS:
        value = definition.args.get(part)
        if not value:
            continue
        if window.args.get(part):
            clause = {"partition_by": "PARTITION BY", "order": "ORDER BY", "spec": "frame"}[part]
            raise source.error(name, f"the window {name.name!r} has its own {clause}: leave one out")
        window.set(part, [each.copy() for each in value] if isinstance(value, list) else value.copy())
    window.set("alias", None)
