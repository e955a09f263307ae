"""Pages of lists: the query parameters ``limit`` and ``offset``, and how a response repeats them."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

Limit = Annotated[int, Meta(ge=1, le=100_000)]
Offset = Annotated[int, Meta(ge=0, le=2**62)]


class Pagination(msgspec.Struct):
    limit: int
    offset: int
