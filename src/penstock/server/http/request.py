"""HTTP requests with indexed headers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from starlette.datastructures import Headers
from starlette.requests import Request

#: Key in the state of a scope: the whole request has arrived, so reading the body does not wait.
HAS_FULL_BODY = "has_full_body"


class IndexedHeaders(Headers):
    """Headers with a dictionary for lookups. A push looks up nine, which takes 6 microseconds instead of 13."""

    def __init__(self, scope: Any) -> None:
        super().__init__(scope=scope)
        # Reversed, so that the first of several headers with the same name wins.
        self._first: Mapping[str, str] = {
            name.decode("latin-1"): value.decode("latin-1") for name, value in reversed(self._list)
        }

    def __getitem__(self, key: str) -> str:
        return self._first[key.lower()]

    def __contains__(self, key: object) -> bool:
        return isinstance(key, str) and key.lower() in self._first

    def get(self, key: str, default: Any = None) -> Any:
        return self._first.get(key.lower(), default)


class HttpRequest(Request):
    @property
    def headers(self) -> Headers:
        if not hasattr(self, "_headers"):
            self._headers = IndexedHeaders(self.scope)
        return self._headers

    @property
    def has_full_body(self) -> bool:
        return HAS_FULL_BODY in self.scope["state"]


async def wait_for_disconnect(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
