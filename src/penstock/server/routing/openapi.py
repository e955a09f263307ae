"""The OpenAPI document, generated from the endpoints."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from copy import deepcopy
from importlib.metadata import version
from typing import Any

import msgspec
from starlette.responses import Response

from penstock.server.http.errors import PROBLEM_KINDS, ProblemDocument
from penstock.server.routing.call import ApiCall
from penstock.server.routing.endpoint import Endpoint, EndpointGroup

routes = EndpointGroup("Documentation")

_PARAMETER = re.compile(r"\{(\w+)(:\w+)?\}")
#: Problems of every endpoint, of endpoints with a body, and of endpoints that need a credential.
_COMMON_PROBLEMS = ("invalid-request", "misdirected", "internal", "overloaded", "stopping", "database-unavailable")
_BODY_PROBLEMS = ("invalid-json", "request-timeout", "too-large", "unsupported-media-type")
_ACCESS_PROBLEMS = ("unauthenticated", "forbidden", "rate-limited")

_DESCRIPTION = """\
Durable event queues and live aggregates on PostgreSQL.

A push is answered after its commit. Errors under `/v1` are `application/problem+json` (RFC 9457) with a stable `type`;
errors of Queen's protocol, under `/api/v1` and `/streams/v1`, are `{"error": "..."}`. Every response has an
`X-Request-Id`. A server on a loopback address needs no key by default; otherwise `x-roles` lists the roles that may
call an operation.
"""


def build_document(endpoints: Sequence[Endpoint]) -> dict[str, Any]:
    """Return the OpenAPI 3.1 document of the endpoints."""
    endpoints = [endpoint for endpoint in endpoints if not endpoint.is_websocket]
    schemas = _Schemas(endpoints)
    error_responses = _SharedComponents("#/components/responses/")
    paths: dict[str, dict[str, Any]] = {}
    for endpoint in endpoints:
        path = _PARAMETER.sub(r"{\1}", endpoint.path)
        paths.setdefault(path, {})[endpoint.method.lower()] = _operation(endpoint, schemas, error_responses)
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
            "responses": error_responses.components,
            "headers": {"RequestId": {"description": "The request's id in the log", "schema": {"type": "string"}}},
            "securitySchemes": {
                "bearer": {"type": "http", "scheme": "bearer", "description": "An API key, or a token (JWT)"},
                "key": {"type": "apiKey", "in": "header", "name": "X-API-Key", "description": "An API key"},
            },
        },
    }


def render_document(endpoints: Sequence[Endpoint]) -> bytes:
    return msgspec.json.format(msgspec.json.encode(build_document(endpoints)), indent=2) + b"\n"


@routes.get(
    "/openapi.json",
    "Get the OpenAPI document",
    openapi={
        "responses": {
            "200": {
                "description": "The document",
                "content": {"application/json": {"schema": {"type": "object"}}},
            }
        }
    },
)
async def get_openapi_document(call: ApiCall) -> Response:
    return Response(call.services.openapi(), media_type="application/json")


class _Schemas:
    """The schemas of all bodies, responses and query strings, as components."""

    def __init__(self, endpoints: Sequence[Endpoint]) -> None:
        types: list[Any] = list(dict.fromkeys([ProblemDocument, *(each.errors.schema for each in endpoints)]))
        for endpoint in endpoints:
            used = (endpoint.body, endpoint.response, endpoint.query)
            types += [each for each in used if each is not None]
        generated = msgspec.json.schema_components(types, ref_template="#/components/schemas/{name}")
        # As JSON: msgspec returns tuples for some lists.
        schemas, self.components = msgspec.json.decode(msgspec.json.encode(generated))
        self._by_type = list(zip(types, schemas, strict=True))

    def find(self, wanted: Any) -> dict[str, Any]:
        return next(schema for each, schema in self._by_type if each is wanted or each == wanted)

    def properties(self, struct: Any) -> tuple[dict[str, Any], Sequence[str]]:
        """Return the properties of a type, and the names of the required ones."""
        schema = self.components[self.find(struct)["$ref"].rpartition("/")[2]]
        return schema.get("properties", {}), schema.get("required", ())


class _SharedComponents:
    """Components that several operations have in common."""

    def __init__(self, prefix: str) -> None:
        self.components: dict[str, Any] = {}
        self._prefix = prefix

    def add(self, name: str, component: dict[str, Any]) -> dict[str, Any]:
        """Return a reference to the component; itself if the name belongs to a different component."""
        is_shared = self.components.setdefault(name, component) == component
        return {"$ref": self._prefix + name} if is_shared else component


def operation_id(endpoint: Endpoint) -> str:
    """Return the name of the operation in camel case, after the prefix of its protocol: ``listQueues``."""
    name = endpoint.operation or endpoint.handler.__name__
    first, *rest = [*filter(None, [endpoint.errors.prefix]), *name.split("_")]
    return first + "".join(word.capitalize() for word in rest)


def _operation(endpoint: Endpoint, schemas: _Schemas, error_responses: _SharedComponents) -> dict[str, Any]:
    operation: dict[str, Any] = {
        "operationId": operation_id(endpoint),
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
            "content": {"application/json": {"schema": schemas.find(endpoint.body)}},
        }
    operation["responses"] = {**_success_responses(endpoint, schemas), **_error_responses(endpoint, schemas)}
    _merge(operation, endpoint.openapi)
    for status, response in operation["responses"].items():
        response.setdefault("description", "")
        response["headers"] = {
            **response.get("headers", {}),
            "X-Request-Id": {"$ref": "#/components/headers/RequestId"},
        }
        if status >= "4":
            problems = _problems_by_status(endpoint).get(int(status), ())
            name = ".".join([*filter(None, [endpoint.errors.prefix]), status, *problems])
            operation["responses"][status] = error_responses.add(name, response)
    return operation


def _path_parameters(endpoint: Endpoint) -> Iterable[dict[str, Any]]:
    for name, _ in _PARAMETER.findall(endpoint.path):
        yield {"name": name, "in": "path", "required": True, "schema": {"type": "string", "minLength": 1}}


def _query_parameters(endpoint: Endpoint, schemas: _Schemas) -> Iterable[dict[str, Any]]:
    if endpoint.query is None:
        return
    properties, required = schemas.properties(endpoint.query)
    for name, schema in properties.items():
        yield {"name": name, "in": "query", "required": name in required, "schema": _query_schema(schema)}


def _query_schema(schema: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of a query parameter. One that may be null may be left out."""
    choices: list[dict[str, Any]] = [each for each in schema.get("anyOf", ()) if each != {"type": "null"}]
    if len(choices) == 1:
        return choices[0]
    return {name: value for name, value in schema.items() if (name, value) != ("default", None)}


def _success_responses(endpoint: Endpoint, schemas: _Schemas) -> dict[str, Any]:
    if endpoint.response is not None:
        content = {"application/json": {"schema": schemas.find(endpoint.response)}}
        return {str(endpoint.status): {"description": endpoint.summary, "content": content}}
    if any(status.startswith(("2", "3")) for status in endpoint.openapi.get("responses", {})):
        return {}
    return {"204": {"description": "Done"}}


def _problems_by_status(endpoint: Endpoint) -> dict[int, list[str]]:
    names = [*_COMMON_PROBLEMS, *endpoint.problems]
    if endpoint.body is not None or "requestBody" in endpoint.openapi:
        names += _BODY_PROBLEMS
    if endpoint.roles:
        names += _ACCESS_PROBLEMS
    by_status: dict[int, list[str]] = {}
    for name in dict.fromkeys(names):
        by_status.setdefault(endpoint.errors.status_of(name), []).append(name)
    return by_status


def _error_responses(endpoint: Endpoint, schemas: _Schemas) -> dict[str, Any]:
    return {
        str(status): {
            "description": "; ".join(f"{PROBLEM_KINDS[name].title} (`{name}`)" for name in names),
            "content": {endpoint.errors.media_type: {"schema": schemas.find(endpoint.errors.schema)}},
        }
        for status, names in sorted(_problems_by_status(endpoint).items())
    }


def _merge(into: dict[str, Any], more: Mapping[str, Any]) -> None:
    for name, value in more.items():
        if isinstance(value, Mapping) and isinstance(into.get(name), dict):
            _merge(into[name], value)
        elif isinstance(value, list) and isinstance(into.get(name), list):
            into[name] = [*into[name], *value]
        else:
            into[name] = deepcopy(value)  # the operation is changed later
