"""A request as it comes in: Starlette's, with what every push asks of it at hand."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from starlette.datastructures import Headers
from starlette.requests import Request

#: In a scope's state: all of the request has arrived, so that nobody need wait for more of it.
IS_WHOLE = "is_whole"


class IndexedHeaders(Headers):
    """Headers that are looked up and not searched for; of one that comes twice, the first counts."""

    def __init__(self, scope: Any) -> None:
        super().__init__(scope=scope)
        self._first: Mapping[str, str] = {
            name.decode("latin-1"): value.decode("latin-1") for name, value in reversed(self._list)
        }

    def __getitem__(self, key: str) -> str:
        return self._first[key.lower()]

    def __contains__(self, key: object) -> bool:
        return isinstance(key, str) and key.lower() in self._first

    def get(self, key: str, default: Any = None) -> Any:
        """The value of a header, or the default."""
        return self._first.get(key.lower(), default)


class Incoming(Request):
    """A request."""

    @property
    def headers(self) -> Headers:
        """Its headers."""
        if not hasattr(self, "_headers"):
            self._headers = IndexedHeaders(self.scope)
        return self._headers

    @property
    def is_whole(self) -> bool:
        """Whether all of it has arrived."""
        return IS_WHOLE in self.scope["state"]
