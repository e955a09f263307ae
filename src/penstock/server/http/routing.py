"""From a request to its handler and back: reading, refusing, encoding."""

from __future__ import annotations

import logging
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
from penstock.server.auth.authorize import Gate
from penstock.server.auth.identity import Identity
from penstock.server.http.endpoint import MAX_BODY_BYTES, Call, Endpoint, Nothing, json_response
from penstock.server.http.errors import Problem, problem_of
from penstock.server.http.middleware import IS_FOREIGN, SLASH
from penstock.server.http.request import Incoming
from penstock.server.ingest.body import Body
from penstock.server.ingest.formats import encoding_of
from penstock.server.queen.errors import in_their_words
from penstock.server.services import Services

logger = logging.getLogger("penstock.server")

#: How many query strings of an address are remembered.
_MOST_QUERIES = 64


class Dispatch:
    """The ASGI application of one endpoint."""

    def __init__(self, endpoint: Endpoint, services: Services) -> None:
        self._endpoint = endpoint
        self._services = services
        self._gate = Gate(endpoint, services)
        self._decoder = None if endpoint.body is None else msgspec.json.Decoder(endpoint.body)
        self._queries: dict[bytes, Any] = {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        state = scope.setdefault("state", {})
        request = Incoming(scope, receive, send)
        state["route"] = self._endpoint.path
        request_id: str = state.get("request_id", "")
        path = {name: value.replace(SLASH, "/") for name, value in request.path_params.items()}
        with ExitStack() as until_sent:
            try:
                if self._endpoint.changes and state.get(IS_FOREIGN):
                    raise Problem("forbidden", "pages of this origin may not call: --cors-origin names those that may")
                identity = await self._gate.admit(request, path, request_id)
                check_path(self._endpoint, path)
                response = await self._answer(request, path, identity, request_id, until_sent)
            except ClientDisconnect:
                return
            except Exception as error:
                response = self.refusal(noted(error, state, request_id), request_id)
            await self._gate.note(request, path, response.status_code, request_id)
            await response(scope, receive, send)

    def refusal(self, problem: Problem, request_id: str) -> Response:
        """A problem in the shape of this endpoint's plane."""
        return problem.plane_response() if self._endpoint.plane else problem.response(request_id)

    def _query(self, request: Request) -> Any:
        """The query string, read once for all requests that have the same: most callers never change theirs."""
        text: bytes = request.scope["query_string"]
        known = self._queries.get(text)
        if known is None:
            known = read_query(request, self._endpoint)
            if len(self._queries) < _MOST_QUERIES and len(text) < 256:
                self._queries[text] = known
        return known

    async def _answer(
        self,
        request: Incoming,
        path: Mapping[str, str],
        identity: Identity,
        request_id: str,
        until_sent: ExitStack,
    ) -> Response:
        endpoint, services = self._endpoint, self._services
        query = self._query(request)
        call = Call(request, services, path, query, None, identity.id, request_id, identity, until_sent=until_sent)
        if services.guard is not None:
            call.readmit = partial(self._gate.admit, request, path, request_id)
        if self._decoder is None:
            answer = await endpoint.handler(call)
        else:
            check_media_type(request)
            # Held for as long as the handler may look at it.
            with services.budget.hold() as hold:
                body = Body(request, encoding_of(request.headers), services.settings, hold, MAX_BODY_BYTES)
                call.body = decode(await body.whole(), self._decoder, endpoint)
                answer = await endpoint.handler(call)
        if endpoint.asks and not call.asked:
            # Caught by any test of the route; should it ever not be, the answer is at least withheld.
            raise RuntimeError(f"{endpoint.method} {endpoint.path} does not ask which queues the caller may use")
        if isinstance(answer, Response):
            return answer
        if answer is None:
            return Response(status_code=204 if endpoint.answer is None else endpoint.status)
        response = json_response(answer, endpoint.status)
        if call.share is not None:
            call.share.keep(len(response.body))
        return response


def noted(error: Exception, state: dict[str, Any], request_id: str) -> Problem:
    """The problem that an error is, for the log of requests; of what is none of ours the log has the whole."""
    if not isinstance(error, Problem | PenstockError):
        logger.exception("request failed", exc_info=error, extra={"request_id": request_id})
    problem = problem_of(error)
    state["problem"] = problem.kind
    return problem


def check_path(endpoint: Endpoint, path: Mapping[str, str]) -> None:
    """Refuse what no text of the database can hold."""
    for name, value in path.items():
        if "\x00" in value:
            kind = "invalid-name" if "invalid-name" in endpoint.problems else "invalid-request"
            raise Problem(kind, f"the {name} must not hold the character U+0000")


@cache
def parameters(query: Any) -> frozenset[str]:
    """The names of a query's parameters."""
    return frozenset(field.encode_name for field in msgspec.structs.fields(query))


def read_query(request: HTTPConnection, endpoint: Endpoint) -> Any:
    """The query string as the endpoint's type."""
    given: dict[str, str] = {}
    for name, value in request.query_params.multi_items():
        if name in given and not endpoint.plane:
            raise Problem("invalid-request", f"the parameter {name!r} is given twice")
        if "\x00" in value:
            raise Problem("invalid-request", f"the parameter {name!r} must not hold the character U+0000")
        given[name] = value
    fields = parameters(endpoint.query)
    if not endpoint.plane:
        for name in given:
            if name not in fields:
                known = f"it takes {', '.join(sorted(fields))}" if fields else "it takes none"
                raise Problem("invalid-request", f"there is no parameter {name!r} here; {known}")
    if endpoint.query is Nothing:
        return Nothing()
    try:
        return msgspec.convert({k: v for k, v in given.items() if k in fields}, endpoint.query, strict=False)
    except msgspec.ValidationError as error:
        raise Problem("invalid-request", f"a parameter is wrong: {error}") from None


def check_media_type(request: Request) -> None:
    """Refuse a body that says it is something other than JSON."""
    said = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if said and said != "application/json" and not said.endswith("+json"):
        raise Problem("unsupported-media-type", f"the body is {said}: send it as application/json")


def decode(body: bytes, decoder: msgspec.json.Decoder[Any], endpoint: Endpoint) -> Any:
    """The body as the endpoint's type."""
    if not body.strip():
        if endpoint.body_required:
            raise Problem("invalid-json", "Empty request body" if endpoint.plane else "the body is empty")
        body = b"{}"
    try:
        return decoder.decode(body)
    except msgspec.ValidationError as error:
        raise Problem("invalid-request", in_their_words(str(error)) if endpoint.plane else str(error)) from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Problem("invalid-json", f"Invalid JSON: {json.explain(error, body)}") from None
