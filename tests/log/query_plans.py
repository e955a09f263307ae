"""Explains statements as the log runs them: prepared, with generic plans."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from psycopg import AsyncConnection, sql

_PLACEHOLDER = re.compile(r"%\((\w+)\)[sbt]")
_TYPES: dict[type, str] = {
    bool: "boolean",
    int: "bigint",
    float: "float8",
    timedelta: "interval",
    datetime: "timestamptz",
    UUID: "uuid",
    bytes: "bytea",
}


@dataclass(frozen=True)
class Node:
    """One node of a plan, with the rows that it read."""

    kind: str
    relation: str | None
    index: str | None
    rows_read: float
    children: list[Node] = field(default_factory=list)

    @classmethod
    def of(cls, plan: Mapping[str, Any]) -> Node:
        loops = plan.get("Actual Loops", 0)
        rows = plan.get("Actual Rows", 0) + plan.get("Rows Removed by Filter", 0)
        return cls(
            plan["Node Type"],
            plan.get("Relation Name"),
            plan.get("Index Name"),
            rows * loops,
            [cls.of(child) for child in plan.get("Plans", [])],
        )

    def walk(self) -> Iterator[Node]:
        yield self
        for child in self.children:
            yield from child.walk()


@dataclass(frozen=True)
class Explained:
    """A plan and the number of pages that it read."""

    root: Node
    pages: int

    def scans(self, table: str) -> list[Node]:
        """Return the nodes that scan a table, or the segment tables of a kind."""
        return [
            node
            for node in self.root.walk()
            if node.relation is not None and "Scan" in node.kind and re.fullmatch(rf"{table}(_\d+_\d+)?", node.relation)
        ]

    def kinds(self) -> set[str]:
        return {node.kind for node in self.root.walk()}


async def explain(
    conn: AsyncConnection[Any], statement: str, params: Mapping[str, Any], *, run: bool = True
) -> Explained:
    """Explain the generic plan of a statement. If the statement is run, it is rolled back."""
    names = list(dict.fromkeys(_PLACEHOLDER.findall(statement)))
    text = _PLACEHOLDER.sub(lambda found: f"${names.index(found[1]) + 1}", statement).replace("%%", "%")
    types = ", ".join(_TYPES.get(type(params[name]), "unknown") for name in names)
    values = sql.SQL(", ").join(sql.Literal(params[name]) for name in names)
    return await _explain_text(conn, text, types, values, run=run)


async def explain_call(conn: AsyncConnection[Any], function: str, values: Mapping[str, Any]) -> Explained:
    """Explain a call of a function, after a first call that creates its plans. Pages count for the whole call."""
    _, types = await _function(conn, function)
    asked = {name: kind for name, kind in types.items() if not name.startswith("local ")}
    arguments = ", ".join(f"{name} => %({name})s::{kind}" for name, kind in asked.items())
    statement = f"SELECT * FROM penstock.{function}({arguments})"  # noqa: S608
    await explain(conn, statement, values)
    return await explain(conn, statement, values)


async def explain_inside(
    conn: AsyncConnection[Any], function: str, values: Mapping[str, Any]
) -> list[tuple[str, Explained]]:
    """Explain each statement of a plpgsql function, in order."""
    source, known = await _function(conn, function)
    types = {name.removeprefix("local "): kind for name, kind in known.items()}
    found: list[tuple[str, Explained]] = []
    for text in _statements(source):
        used = [name for name in types if re.search(rf"\b{name}\b", text)]
        for place, name in enumerate(used, 1):
            text = re.sub(rf"\b{name}\b", f"${place}", text)
        given = sql.SQL(", ").join(sql.Literal(values[name]) for name in used)
        found.append((text, await _explain_text(conn, text, ", ".join(types[name] for name in used), given, run=True)))
    return found


async def _function(conn: AsyncConnection[Any], name: str) -> tuple[str, dict[str, str]]:
    """Return the source of a function and the types of its arguments and variables. Variables are marked as local."""
    row = await (
        await conn.execute(
            "SELECT prosrc, proargnames[:pronargs], (SELECT array_agg(t::regtype::text ORDER BY n) "
            "FROM unnest(proargtypes) WITH ORDINALITY AS a (t, n)) FROM pg_proc WHERE proname = %s",
            (name,),
        )
    ).fetchone()
    assert row is not None, f"there is no function {name}"
    source, names, types = row
    known = dict(zip(names, types, strict=True))
    declared = re.search(r"DECLARE(.*?)BEGIN", source, re.DOTALL)
    for variable, kind in re.findall(r"(\w+) ([^;]+);", declared[1] if declared is not None else ""):
        known[f"local {variable}"] = kind
    return source, known


def _statements(source: str) -> Iterator[str]:
    body = re.sub(r"--[^\n]*", "", source).split("BEGIN", 1)[1]
    for fragment in body.split(";"):
        begins = re.search(
            r"\b(PERFORM\s+FROM|RETURN QUERY|INSERT INTO|UPDATE|SELECT\b.*\bINTO _)", fragment, re.DOTALL
        )
        if begins is not None and "EXECUTE format" not in fragment:
            text = re.sub(r"\bINTO _\w+", "", fragment[begins.start() :].strip())
            yield re.sub(r"^RETURN QUERY\s+", "", re.sub(r"^PERFORM\b", "SELECT", text))


async def _explain_text(
    conn: AsyncConnection[Any], text: str, types: str, values: sql.Composable, *, run: bool
) -> Explained:
    options = "FORMAT JSON, ANALYZE, BUFFERS, TIMING OFF" if run else "FORMAT JSON"
    async with conn.transaction(force_rollback=True):
        declared = f"({types})" if types else ""
        await conn.execute(f"PREPARE explained {declared} AS {text}".encode(), prepare=False)
        query = sql.SQL(f"EXPLAIN ({options}) EXECUTE explained ({{}})").format(values)
        cursor = await conn.execute(query, prepare=False)
        row = await cursor.fetchone()
        await conn.execute("DEALLOCATE explained", prepare=False)
    assert row is not None
    (plan,) = row[0] if not isinstance(row[0], str) else json.loads(row[0])
    root = plan["Plan"]
    return Explained(Node.of(root), root.get("Shared Hit Blocks", 0) + root.get("Shared Read Blocks", 0))
