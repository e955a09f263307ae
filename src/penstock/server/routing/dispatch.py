"""Dispatch of HTTP requests: authorize, decode, call the handler, encode the response."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from contextlib import ExitStack
from functools import cache, partial
from typing import Any

import msgspec
from starlette.requests import ClientDisconnect, HTTPConnection, Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from penstock.core import json
from penstock.core.errors import PenstockError
from penstock.server.auth.authorize import Authorizer
from penstock.server.http.cors import cross_site_problem
from penstock.server.http.decompress import content_encoding
from penstock.server.http.errors import Problem, to_problem
from penstock.server.http.middleware import ENCODED_SLASH, IS_CROSS_SITE
from penstock.server.http.request import HttpRequest
from penstock.server.http.request_body import MAX_BODY_BYTES, RequestBody
from penstock.server.http.responses import json_response
from penstock.server.routing.call import ApiCall
from penstock.server.routing.endpoint import Endpoint
from penstock.server.services import Services

logger = logging.getLogger("penstock.server")

#: Decoded query strings that are cached per endpoint. Most clients always send the same one.
_MAX_CACHED_QUERIES = 64
_MAX_CACHED_LENGTH = 256

#: A full queue is logged at most this often.
_FULL_QUEUE_LOG_SECONDS = 60.0
_MAX_FULL_QUEUES = 1_000
#: When each full queue was last logged.
_full_queues: dict[str, float] = {}


class EndpointDispatcher:
    def __init__(self, endpoint: Endpoint, services: Services) -> None:
        self._endpoint = endpoint
        self._services = services
        self._authorizer = create_authorizer(endpoint, services)
        self._decoder = None if endpoint.body is None else msgspec.json.Decoder(endpoint.body)
        #: Decoded query strings, as the arguments of the handler.
        self._queries: dict[bytes, dict[str, Any]] = {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        state = scope.setdefault("state", {})
        request = HttpRequest(scope, receive, send)
        state["route"] = self._endpoint.path
        request_id: str = state.get("request_id", "")
        path = decode_path(request)
        with ExitStack() as until_sent:
            try:
                if self._endpoint.has_side_effects and state.get(IS_CROSS_SITE):
                    raise cross_site_problem()
                authorize = partial(self._authorizer.authorize, request, path, request_id)
                identity = await authorize()
                check_path(self._endpoint, path)
                call = ApiCall(
                    request,
                    self._services,
                    path,
                    identity,
                    request_id,
                    until_sent,
                    None if self._services.authenticator is None else authorize,
                )
                response = self._encode(call, await self._call_handler(call))
            except ClientDisconnect:
                return
            except Exception as error:
                response = self._endpoint.errors.render(record_problem(error, state, request_id), request_id)
            await self._authorizer.audit(request, path, response.status_code, request_id)
            await response(scope, receive, send)

    def _decode_query(self, request: Request) -> dict[str, Any]:
        text: bytes = request.scope["query_string"]
        arguments = self._queries.get(text)
        if arguments is None:
            arguments = decode_query(request, self._endpoint)
            if len(self._queries) < _MAX_CACHED_QUERIES and len(text) < _MAX_CACHED_LENGTH:
                self._queries[text] = arguments
        return arguments

    async def _call_handler(self, call: ApiCall) -> Any:
        request, services = call.request, call.services
        arguments = self._decode_query(request)
        if self._decoder is None:
            return await self._endpoint.handler(call, **arguments)
        _check_media_type(request)
        # The memory of the body is reserved for as long as the handler may use it.
        with services.request_memory.reserve() as reservation:
            encoding = content_encoding(request.headers)
            received = RequestBody(request, encoding, services.settings, reservation, MAX_BODY_BYTES)
            body = _decode_body(await received.read_all(), self._decoder, self._endpoint)
            return await self._endpoint.handler(call, **arguments, body=body)

    def _encode(self, call: ApiCall, result: Any) -> Response:
        endpoint = self._endpoint
        if endpoint.checks_queues and not call.has_checked_queues:
            # An error in the handler. Its result is not sent, because it may belong to other callers.
            raise RuntimeError(f"{endpoint.method} {endpoint.path} did not check the queues of the caller")
        if isinstance(result, Response):
            return result
        if result is None:
            return Response(status_code=204)
        response = json_response(result, endpoint.status)
        if call.reservation is not None:
            call.reservation.resize(len(response.body))
        return response


def create_authorizer(endpoint: Endpoint, services: Services) -> Authorizer:
    return Authorizer(
        endpoint.method,
        endpoint.path,
        endpoint.roles,
        checks_queues=endpoint.checks_queues,
        authenticator=services.authenticator,
    )


def record_problem(error: Exception, state: dict[str, Any], request_id: str) -> Problem:
    """Return the problem for an exception, and record it for the request log. Unexpected exceptions are logged."""
    if not isinstance(error, Problem | PenstockError):
        logger.exception("request failed", exc_info=error, extra={"request_id": request_id})
    problem = to_problem(error)
    state["problem"] = problem.kind
    if problem.kind == "queue-full":
        _log_full_queue(problem)
    return problem


def _log_full_queue(full: Problem) -> None:
    now, queue = time.monotonic(), str(full.facts["queue"])
    if now - _full_queues.get(queue, float("-inf")) < _FULL_QUEUE_LOG_SECONDS:
        return
    if len(_full_queues) >= _MAX_FULL_QUEUES:
        _full_queues.clear()
    _full_queues[queue] = now
    logger.warning("%s", full.detail, extra={"queue": queue, "group": full.facts["group"]})


def decode_path(connection: HTTPConnection) -> dict[str, str]:
    return {name: value.replace(ENCODED_SLASH, "/") for name, value in connection.path_params.items()}


def check_path(endpoint: Endpoint, path: Mapping[str, str]) -> None:
    """Refuse the character U+0000, which PostgreSQL cannot store in a text."""
    for name, value in path.items():
        if "\x00" in value:
            kind = "invalid-name" if "invalid-name" in endpoint.problems else "invalid-request"
            raise Problem(kind, f"the {name} must not contain the character U+0000")


def decode_query(request: HTTPConnection, endpoint: Endpoint) -> dict[str, Any]:
    """Return the query string as the argument ``query`` of the handler; nothing if it has none."""
    given: dict[str, str] = {}
    for name, value in request.query_params.multi_items():
        if name in given and not endpoint.lenient_query:
            raise Problem("invalid-request", f"the parameter {name!r} is given twice")
        if "\x00" in value:
            raise Problem("invalid-request", f"the parameter {name!r} must not contain the character U+0000")
        given[name] = value
    parameters = frozenset() if endpoint.query is None else _parameter_names(endpoint.query)
    if not endpoint.lenient_query:
        for name in given:
            if name not in parameters:
                known = f"known parameters are {', '.join(sorted(parameters))}" if parameters else "there are none"
                raise Problem("invalid-request", f"there is no parameter {name!r}: {known}")
    if endpoint.query is None:
        return {}
    known_values = {name: value for name, value in given.items() if name in parameters}
    try:
        return {"query": msgspec.convert(known_values, endpoint.query, strict=False)}
    except msgspec.ValidationError as error:
        raise Problem("invalid-request", f"a parameter is invalid: {error}") from None


@cache
def _parameter_names(query: Any) -> frozenset[str]:
    return frozenset(field.encode_name for field in msgspec.structs.fields(query))


def _check_media_type(request: Request) -> None:
    media_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if media_type and media_type != "application/json" and not media_type.endswith("+json"):
        raise Problem("unsupported-media-type", f"the body is {media_type}: send it as application/json")


def _decode_body(body: bytes, decoder: msgspec.json.Decoder[Any], endpoint: Endpoint) -> Any:
    if not body.strip():
        if endpoint.body_required:
            raise Problem("invalid-json", endpoint.errors.describe_empty_body())
        body = b"{}"
    try:
        return decoder.decode(body)
    except msgspec.ValidationError as error:
        raise Problem("invalid-request", endpoint.errors.describe_invalid_body(str(error))) from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Problem("invalid-json", f"Invalid JSON: {json.explain(error, body)}") from None
