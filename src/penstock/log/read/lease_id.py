"""Lease ids: random UUIDs that contain the id of their group, so that a lease is found without an index on its id."""

from __future__ import annotations

import secrets
from uuid import UUID

_GROUP_SHIFT = 96
_VERSION = 0x8 << 76
_VARIANT = 0b10 << 62
_RANDOM = (1 << _GROUP_SHIFT) - 1 - (0xF << 76) - (0b11 << 62)


def new_lease_id(group_id: int) -> UUID:
    """Return a new id for a lease of the group."""
    return UUID(int=group_id << _GROUP_SHIFT | _VERSION | _VARIANT | (secrets.randbits(_GROUP_SHIFT) & _RANDOM))


def group_of_lease(lease_id: UUID) -> int:
    """Return the id of the group that the lease id contains. It is arbitrary if another program made the id."""
    return lease_id.int >> _GROUP_SHIFT
