"""Roles, and the identity of a caller."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache


class Role(Enum):
    """Permissions of a caller. ``ADMIN`` includes all other roles."""

    PRODUCE = "produce"
    CONSUME = "consume"
    READ = "read"
    ADMIN = "admin"


ALL_QUEUES = ("*",)
#: The id of a caller with a token is this, a colon and the token's subject, if it has one.
TOKEN = "token"  # noqa: S105


@dataclass(frozen=True, slots=True)
class Identity:
    """A caller: the id of an API key or the subject of a token, its roles, and patterns of the queues they apply to.

    >>> shop = Identity("key_1", frozenset({Role.PRODUCE}), ("shop.*",))
    >>> shop.has_role(frozenset({Role.PRODUCE})), shop.can_access("shop.orders"), shop.can_access("bank")
    (True, True, False)
    """

    id: str
    roles: frozenset[Role]
    queues: tuple[str, ...] = ALL_QUEUES

    @property
    def is_limited(self) -> bool:
        """Whether the caller is limited to some queues."""
        return "*" not in self.queues

    def has_role(self, roles: frozenset[Role]) -> bool:
        """Return whether the caller has one of these roles or is an administrator."""
        return Role.ADMIN in self.roles or not self.roles.isdisjoint(roles)

    def can_access(self, queue: str) -> bool:
        return not self.is_limited or any(_compile_pattern(each).fullmatch(queue) for each in self.queues)


#: Every caller while access control is off.
UNRESTRICTED = Identity("", frozenset({Role.ADMIN}))

#: A caller of an endpoint that needs no credential.
ANONYMOUS = Identity("", frozenset(), ())


@lru_cache(4096)
def _compile_pattern(glob: str) -> re.Pattern[str]:
    """Compile a pattern in which ``*`` is any run of characters and ``?`` any single character.

    fnmatch also interprets ``[``, which is an ordinary character in a queue name. Atomic groups match each literal
    between two ``*`` at its first position only, so that matching does not backtrack.
    """
    first, *others = (".".join(map(re.escape, run.split("?"))) for run in re.split(r"\*+", glob))
    if not others:
        return re.compile(first, re.DOTALL)
    *between, last = others
    return re.compile(f"{first}{''.join(f'(?>.*?{run})' for run in between)}.*{last}", re.DOTALL)
