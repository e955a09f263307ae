"""PostgreSQL array literals of integers and UUIDs. psycopg adapts a str far faster than a list."""

from __future__ import annotations

from collections.abc import Iterable
from uuid import UUID


def int_array(values: Iterable[int | None]) -> str:
    """Format integers or NULLs for ``%(name)s::bigint[]``."""
    return "{" + ",".join(["NULL" if value is None else str(value) for value in values]) + "}"


def uuid_array(values: Iterable[UUID | None]) -> str:
    """Format UUIDs or NULLs for ``%(name)s::uuid[]``."""
    return "{" + ",".join(["NULL" if value is None else value.hex for value in values]) + "}"


def digest_array(values: Iterable[bytes]) -> str:
    """Format 16-byte digests for ``%(name)s::uuid[]``."""
    return "{" + ",".join([value.hex() for value in values]) + "}"
