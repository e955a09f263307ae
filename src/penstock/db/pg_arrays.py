"""Arrays of numbers and ids as PostgreSQL writes them: a text costs the driver far less than a list does."""

from __future__ import annotations

from collections.abc import Iterable
from uuid import UUID


def numbers(values: Iterable[int | None]) -> str:
    """An array of integers, as in ``%(name)s::bigint[]``."""
    return "{" + ",".join(["NULL" if value is None else str(value) for value in values]) + "}"


def plain_numbers(values: Iterable[int]) -> str:
    """The same of numbers alone, of which there may be very many."""
    return "{" + ",".join(map(str, values)) + "}"


def uuids(values: Iterable[UUID | None]) -> str:
    """An array of UUIDs, as in ``%(name)s::uuid[]``."""
    return "{" + ",".join(["NULL" if value is None else value.hex for value in values]) + "}"


def digests(values: Iterable[bytes]) -> str:
    """An array of 16-byte digests as UUIDs, as in ``%(name)s::uuid[]``."""
    return "{" + ",".join([value.hex() for value in values]) + "}"
