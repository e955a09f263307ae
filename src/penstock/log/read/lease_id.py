"""The ids of leases: random, except that each says which group it is of, so that it is found without an index."""

from __future__ import annotations

import secrets
from uuid import UUID

_GROUP_SHIFT = 96
_VERSION = 0x8 << 76
_VARIANT = 0b10 << 62
_RANDOM = (1 << _GROUP_SHIFT) - 1 - (0xF << 76) - (0b11 << 62)


def new_lease_id(group_id: int) -> UUID:
    """An id for a lease of the group."""
    return UUID(int=group_id << _GROUP_SHIFT | _VERSION | _VARIANT | (secrets.randbits(_GROUP_SHIFT) & _RANDOM))


def group_of(lease_id: UUID) -> int:
    """The group that a lease with this id would be of."""
    return lease_id.int >> _GROUP_SHIFT
