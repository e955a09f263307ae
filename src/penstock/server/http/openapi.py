"""The OpenAPI document: made from the endpoints, so that it says what the server does."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from importlib.metadata import version
from typing import Any

import msgspec
from starlette.responses import Response

from penstock.server.http.endpoint import Call, Endpoint, Nothing
from penstock.server.http.errors import KINDS

_PROBLEM = "application/problem+json"
_PARAMETER = re.compile(r"\{(\w+)(:\w+)?\}")
#: What can go wrong on any route, and on those that take a body or ask who calls.
_OF_ALL = ("invalid-request", "misdirected", "internal", "overloaded", "stopping", "database-unavailable")
_OF_BODIES = ("invalid-json", "request-timeout", "too-large", "unsupported-media-type")
_OF_GUARDED = ("unauthenticated", "forbidden", "rate-limited")

_DESCRIPTION = """\
Durable event queues and live aggregates on PostgreSQL.

A push is answered after its commit. Errors under `/v1` are `application/problem+json` (RFC 9457) with a stable `type`;
those of the message plane, `/api/v1` and `/streams/v1`, are `{"error": "..."}`. Every answer has an `X-Request-Id`.
On loopback no key is asked for; elsewhere `x-roles` says which roles may call an operation.
"""


class ProblemDocument(msgspec.Struct, rename={"kind": "type"}):
    """Why a request was refused; more members say the facts."""

    kind: str
    title: str
    status: int
    detail: str
    instance: str | None = None


class Refusal(msgspec.Struct):
    """Why a request was refused, as the message plane says it."""

    error: str


def document(endpoints: Sequence[Endpoint]) -> dict[str, Any]:
    """The OpenAPI 3.1 document of these endpoints."""
    endpoints = [each for each in endpoints if not each.websocket]
    schemas = _Schemas(endpoints)
    refusals = _Shared("#/components/responses/")
    paths: dict[str, dict[str, Any]] = {}
    for endpoint in endpoints:
        path = _PARAMETER.sub(r"{\1}", endpoint.path)
        paths.setdefault(path, {})[endpoint.method.lower()] = _operation(endpoint, schemas, refusals)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Penstock",
            "version": version("penstock"),
            "description": _DESCRIPTION,
            "license": {"name": "Apache 2.0", "identifier": "Apache-2.0"},
        },
        "servers": [{"url": "/"}],
        "tags": [{"name": tag} for tag in dict.fromkeys(endpoint.tag for endpoint in endpoints)],
        "paths": paths,
        "components": {
            "schemas": schemas.components,
            "responses": refusals.components,
            "headers": {"RequestId": {"description": "The request's id in the log", "schema": {"type": "string"}}},
            "securitySchemes": {
                "bearer": {"type": "http", "scheme": "bearer", "description": "An API key, or a token (JWT)"},
                "key": {"type": "apiKey", "in": "header", "name": "X-API-Key", "description": "An API key"},
            },
        },
    }


def rendered(endpoints: Sequence[Endpoint]) -> bytes:
    """The document as text that is easy to compare."""
    return msgspec.json.format(msgspec.json.encode(document(endpoints)), indent=2) + b"\n"


async def openapi(call: Call) -> Response:
    """This document."""
    return Response(call.services.openapi, media_type="application/json")


ENDPOINTS = (
    Endpoint(
        "GET",
        "/openapi.json",
        openapi,
        "The OpenAPI document",
        "Documentation",
        documented={
            "responses": {
                "200": {
                    "description": "The document",
                    "content": {"application/json": {"schema": {"type": "object"}}},
                }
            }
        },
    ),
)


class _Schemas:
    """The schemas of all that is sent and answered, each once and by reference."""

    def __init__(self, endpoints: Iterable[Endpoint]) -> None:
        self._types = [ProblemDocument, Refusal]
        for endpoint in endpoints:
            found = (endpoint.body, endpoint.answer, endpoint.query)
            self._types += [each for each in found if each is not None and each is not Nothing]
        schemas, components = msgspec.json.schema_components(self._types, ref_template="#/components/schemas/{name}")
        shorter = _shorter_names(components)
        self.components = {shorter[name]: _renamed(schema, shorter) for name, schema in components.items()}
        self._by_type = [(each, _renamed(schema, shorter)) for each, schema in zip(self._types, schemas, strict=True)]

    def of(self, wanted: Any) -> dict[str, Any]:
        """The schema of a type."""
        return next(schema for each, schema in self._by_type if each is wanted or each == wanted)

    def properties(self, struct: Any) -> tuple[dict[str, Any], Sequence[str]]:
        """The members of a type, and those that must be given."""
        schema = self.components[self.of(struct)["$ref"].rpartition("/")[2]]
        return schema.get("properties", {}), schema.get("required", ())


class _Shared:
    """What several operations have word for word, said once."""

    def __init__(self, place: str) -> None:
        self.components: dict[str, Any] = {}
        self._place = place

    def put(self, name: str, what: dict[str, Any]) -> dict[str, Any]:
        """A reference to it, if it is what has this name already; else itself."""
        return {"$ref": self._place + name} if self.components.setdefault(name, what) == what else what


def _shorter_names(names: Iterable[str]) -> dict[str, str]:
    """Names without the modules that were put before those that two types share."""
    shorter: dict[str, str] = {}
    for name in names:
        last = name.rpartition(".")[2]
        short = f"Plane{last}" if ".plane." in name else last
        shorter[name] = name if short in shorter.values() else short
    return shorter


def _renamed(schema: Any, shorter: Mapping[str, str]) -> Any:
    if isinstance(schema, dict):
        reference = schema.get("$ref")
        if isinstance(reference, str):
            place, _, name = reference.rpartition("/")
            return {**schema, "$ref": f"{place}/{shorter[name]}"}
        return {name: _renamed(value, shorter) for name, value in schema.items()}
    if isinstance(schema, list | tuple):
        return [_renamed(each, shorter) for each in schema]
    return schema


def _operation(endpoint: Endpoint, schemas: _Schemas, refusals: _Shared) -> dict[str, Any]:
    module = endpoint.handler.__module__.removeprefix("penstock.server.").replace(".", "_")
    operation: dict[str, Any] = {
        "operationId": f"{module}_{endpoint.handler.__name__}",
        "summary": endpoint.summary,
        "description": (endpoint.handler.__doc__ or endpoint.summary).strip(),
        "tags": [endpoint.tag],
        "security": [{"bearer": []}, {"key": []}] if endpoint.roles else [],
    }
    if endpoint.roles:
        operation["x-roles"] = sorted({*(role.value for role in endpoint.roles), "admin"})
    if parameters := [*_path_parameters(endpoint), *_query_parameters(endpoint, schemas)]:
        operation["parameters"] = parameters
    if endpoint.body is not None:
        operation["requestBody"] = {
            "required": endpoint.body_required,
            "content": {"application/json": {"schema": schemas.of(endpoint.body)}},
        }
    operation["responses"] = {**_success(endpoint, schemas), **_refusals(endpoint, schemas)}
    _merge(operation, endpoint.documented)
    for status, response in operation["responses"].items():
        response.setdefault("description", "")
        response["headers"] = {
            **response.get("headers", {}),
            "X-Request-Id": {"$ref": "#/components/headers/RequestId"},
        }
        if status >= "4":
            kinds = _kinds(endpoint).get(int(status), ())
            name = ".".join([*(["plane"] if endpoint.plane else []), status, *kinds])
            operation["responses"][status] = refusals.put(name, response)
    return operation


def _path_parameters(endpoint: Endpoint) -> Iterable[dict[str, Any]]:
    for name, _ in _PARAMETER.findall(endpoint.path):
        yield {"name": name, "in": "path", "required": True, "schema": {"type": "string", "minLength": 1}}


def _query_parameters(endpoint: Endpoint, schemas: _Schemas) -> Iterable[dict[str, Any]]:
    if endpoint.query is Nothing:
        return
    properties, required = schemas.properties(endpoint.query)
    for name, schema in properties.items():
        yield {"name": name, "in": "query", "required": name in required, "schema": _in_query(schema)}


def _in_query(schema: dict[str, Any]) -> dict[str, Any]:
    """The schema of a parameter: one that may be null is one that may be left out."""
    choices: list[dict[str, Any]] = [each for each in schema.get("anyOf", ()) if each != {"type": "null"}]
    if len(choices) == 1:
        return choices[0]
    return {name: value for name, value in schema.items() if (name, value) != ("default", None)}


def _success(endpoint: Endpoint, schemas: _Schemas) -> dict[str, Any]:
    documented = endpoint.documented.get("responses", {})
    if endpoint.answer is not None:
        content = {"application/json": {"schema": schemas.of(endpoint.answer)}}
        return {str(endpoint.status): {"description": endpoint.summary, "content": content}}
    if any(status.startswith(("2", "3")) for status in documented):
        return {}
    return {"204": {"description": "Done; there is nothing to say"}}


def _kinds(endpoint: Endpoint) -> dict[int, list[str]]:
    """The kinds of problem that an endpoint can have, by status."""
    names = [*_OF_ALL, *endpoint.problems]
    if endpoint.body is not None or "requestBody" in endpoint.documented:
        names += _OF_BODIES
    if endpoint.roles:
        names += _OF_GUARDED
    by_status: dict[int, list[str]] = {}
    for name in dict.fromkeys(names):
        # The plane's clients know one status for all that is wrong with what they sent.
        status = 400 if endpoint.plane and KINDS[name].status == 422 else KINDS[name].status
        by_status.setdefault(status, []).append(name)
    return by_status


def _refusals(endpoint: Endpoint, schemas: _Schemas) -> dict[str, Any]:
    media_type, schema = ("application/json", Refusal) if endpoint.plane else (_PROBLEM, ProblemDocument)
    return {
        str(status): {
            "description": "; ".join(f"{KINDS[name].title} (`{name}`)" for name in kinds),
            "content": {media_type: {"schema": schemas.of(schema)}},
        }
        for status, kinds in sorted(_kinds(endpoint).items())
    }


def _merge(into: dict[str, Any], more: Mapping[str, Any]) -> None:
    for name, value in more.items():
        if isinstance(value, Mapping) and isinstance(into.get(name), dict):
            _merge(into[name], value)
        elif isinstance(value, list) and isinstance(into.get(name), list):
            into[name] = [*into[name], *value]
        else:
            into[name] = value
