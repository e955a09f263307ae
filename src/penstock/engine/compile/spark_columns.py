"""The fields that a Spark Column refers to, read from its tree in the JVM."""

from __future__ import annotations

from collections.abc import Iterator

from pyspark.sql import Column

from penstock.stream.sql.column_refs import StructReference, column_names, column_paths, struct_references


def column_fields(column: Column) -> list[str]:
    """Return the fields that a Column refers to, in order."""
    names: list[str] = []
    for reference in _references(column):
        names += column_names(reference) if isinstance(reference, str) else reference[:1]
    return list(dict.fromkeys(names))


def spark_column_paths(column: Column) -> list[list[str]] | None:
    """Return the dotted columns that a Column refers to; None if they are not known."""
    paths: list[list[str]] = []
    for reference in _references(column):
        found = column_paths(reference) if isinstance(reference, str) else [reference]
        if found is None:
            return None
        paths += found
    return paths


def column_struct_references(column: Column, struct: str) -> list[StructReference]:
    """Return the references of a Column to a field that is a struct."""
    found: list[StructReference] = []
    for reference in _references(column):
        if isinstance(reference, str):
            found += struct_references(reference, struct)
        elif reference[0].lower() == struct:
            found.append(StructReference(reference[1:], False))
    return found


def _references(column: Column) -> Iterator[list[str] | str]:
    """Return the names of each attribute, and the text of each SQL expression."""
    nodes = [column._jc.node()]  # type: ignore[operator]  # not an attribute of a struct
    while nodes:
        node = nodes.pop()
        kind = node.getClass().getSimpleName()
        if kind == "UnresolvedAttribute":
            names = node.nameParts()
            yield [names.apply(index) for index in range(names.size())]
        elif kind == "SqlExpression":
            yield node.expression()
        elif kind == "UnresolvedStar" and node.unparsedTarget().isDefined():
            yield node.unparsedTarget().get()
        children = node.children()
        nodes += [children.apply(index) for index in reversed(range(children.size()))]
