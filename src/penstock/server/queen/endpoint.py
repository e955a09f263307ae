"""Endpoints of the protocol: their tag, error format, paths and query strings, and request bodies with lists."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, get_args, get_origin

import msgspec
from starlette.convertors import PathConvertor, register_url_convertor

from penstock.server.queen.errors import QUEEN_ERRORS
from penstock.server.routing.endpoint import EndpointGroup

if TYPE_CHECKING:
    NullableList = list
else:

    class NullableList:
        """A list in a :class:`ListBody`, as ``NullableList[str]``. Null is an empty list: Go encodes a nil slice so."""

        def __class_getitem__(cls, item: object) -> object:
            return list[item] | None


class _TextConvertor(PathConvertor):
    """Like Starlette's ``path``, which does not match a line break."""

    regex = "(?s:.*)"


register_url_convertor("text", _TextConvertor())


class ListBody(msgspec.Struct):
    """A part of a request body with fields of type :class:`NullableList`."""

    def __post_init__(self) -> None:
        for name in _list_names(type(self)):
            if getattr(self, name) is None:
                setattr(self, name, [])


@cache
def _list_names(body: type[ListBody]) -> tuple[str, ...]:
    return tuple(
        field.name
        for field in msgspec.structs.fields(body)
        if any(get_origin(part) is list for part in get_args(field.type))
    )


def queen_routes(*problems: str) -> EndpointGroup:
    return EndpointGroup("Queen protocol", problems=problems, errors=QUEEN_ERRORS, lenient_query=True)
