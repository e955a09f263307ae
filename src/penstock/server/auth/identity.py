"""Who asks, and what he may do."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

from penstock.server.http.endpoint import Role

EVERY_QUEUE = ("*",)


@dataclass(frozen=True, slots=True)
class Identity:
    """A caller: the id of an API key or the subject of a token, its roles, and the queues that they are for.

    >>> shop = Identity("key_1", frozenset({Role.PRODUCE}), ("shop.*",))
    >>> shop.has(frozenset({Role.PRODUCE})), shop.reaches("shop.orders"), shop.reaches("bank")
    (True, True, False)
    """

    id: str
    roles: frozenset[Role]
    queues: tuple[str, ...] = EVERY_QUEUE

    @property
    def is_limited(self) -> bool:
        """Whether there are queues that it has no business with."""
        return "*" not in self.queues

    def has(self, roles: frozenset[Role]) -> bool:
        """Whether it has one of these roles, or the one that may do all."""
        return Role.ADMIN in self.roles or not self.roles.isdisjoint(roles)

    def reaches(self, queue: str) -> bool:
        """Whether its patterns cover a queue."""
        return not self.is_limited or any(_pattern(each).fullmatch(queue) for each in self.queues)


ANYBODY = Identity("", frozenset({Role.ADMIN}))
"""Whoever asks where access is off."""

NOBODY = Identity("", frozenset(), ())
"""Whoever asks for what needs no key."""


@lru_cache(4096)
def _pattern(glob: str) -> re.Pattern[str]:
    """``*`` is any run of characters and ``?`` any one; nothing else is special.

    Not fnmatch, whose ``[`` would be a surprise in a name, and not left to backtrack: what lies between two ``*`` is
    looked for once, at the first place that it has.
    """
    first, *others = (".".join(map(re.escape, run.split("?"))) for run in re.split(r"\*+", glob))
    if not others:
        return re.compile(first, re.DOTALL)
    *between, last = others
    return re.compile(f"{first}{''.join(f'(?>.*?{run})' for run in between)}.*{last}", re.DOTALL)
