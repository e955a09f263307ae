"""The dead letters of a server. A mapping in SQL runs in the server, a function in this process."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import msgspec
from msgspec import Raw

from penstock.client.dead_letters import DeadLetterMapping, call_mapping, edit_function
from penstock.client.http.retrying_http import RetryingHttpClient
from penstock.core.errors import InvalidRequest
from penstock.log.dead_letters.dead_letter import DeadLetter, DeadLetterEdit, DeadLetterFilter, Redrive
from penstock.log.queue_options import MAX_COUNT
from penstock.protocol import messages

#: The most ids in one query string.
_MAX_IDS = 500
#: The number of dead letters that are edited here and redriven in one request.
_EDIT_PAGE = 100


class HttpDeadLetters:
    def __init__(self, http: RetryingHttpClient) -> None:
        self._http = http

    async def dead_letters(self, which: DeadLetterFilter, *, limit: int = 100, offset: int = 0) -> list[DeadLetter]:
        letters: list[DeadLetter] = []
        for query in _filter_queries(which):
            skipped = offset
            while len(letters) < limit:
                room = min(limit - len(letters), messages.MAX_EVENTS)
                parameters = {**query, "limit": room, "offset": skipped}
                page = await self._http.request("GET", "dead-letters", messages.DeadLetterList, query=parameters)
                letters += page.dead_letters
                skipped += len(page.dead_letters)
                if not page.more and len(page.dead_letters) < room:
                    break
        return letters

    async def count_dead_letters(self, which: DeadLetterFilter) -> int:
        counts = [
            await self._http.request("GET", "dead-letters/count", messages.CountResponse, query=query)
            for query in _filter_queries(which)
        ]
        return sum(response.count for response in counts)

    async def redrive(self, which: DeadLetterFilter, *, limit: int | None = 100, mapping: str | None = None) -> Redrive:
        most = {"all": True} if limit is None else {"limit": limit}
        # A repeated redrive with a limit would send other dead letters.
        once = limit is not None and which.ids is None
        body = {**_conditions(which), **most, **({} if mapping is None else {"mapping": mapping})}
        return await self._http.request("POST", "dead-letters/redrive", Redrive, body=body, once=once)

    async def redrive_mapped(
        self, which: DeadLetterFilter, mapping: DeadLetterMapping, *, limit: int | None = 100
    ) -> Redrive:
        edit_function(mapping)  # raises if it is no mapping
        if isinstance(mapping, str):
            return await self.redrive(which, limit=limit, mapping=mapping)
        # A function runs here, not in the server.
        replayed = failed = 0
        problems: dict[int, str] = {}
        async for letters in self._oldest_dead_letters(which, limit):
            edits: dict[int, Raw] = {}
            for letter in letters:
                try:
                    edits[letter.id] = Raw(call_mapping(mapping, letter))
                except InvalidRequest as error:
                    failed += 1
                    problems[letter.id] = str(error)
            if edits:
                body = {"edits": edits}
                done = await self._http.request("POST", "dead-letters/redrive", Redrive, body=body)
                replayed, failed = replayed + done.replayed, failed + done.failed
                problems.update(done.problems)
        return Redrive(replayed, failed, problems)

    async def preview_mapping(
        self, which: DeadLetterFilter, mapping: DeadLetterMapping, *, limit: int = 100
    ) -> list[DeadLetterEdit]:
        edit_function(mapping)  # raises if it is no mapping
        if isinstance(mapping, str):
            body = {**_conditions(which), "mapping": mapping, "limit": limit}
            path = "dead-letters/redrive/preview"
            return (await self._http.request("POST", path, messages.RedrivePreview, body=body)).edits
        edits = []
        async for letters in self._oldest_dead_letters(which, limit):
            for letter in letters:
                after, problem = None, None
                try:
                    after = call_mapping(mapping, letter)
                except InvalidRequest as error:
                    problem = str(error)
                edits.append(DeadLetterEdit.of(letter, after, problem))
        return edits

    async def _oldest_dead_letters(self, which: DeadLetterFilter, limit: int | None) -> AsyncIterator[list[DeadLetter]]:
        """Yield the oldest dead letters in pages. One that fails again meanwhile is not yielded twice."""
        left = MAX_COUNT if limit is None else limit
        for query in _filter_queries(which):
            after = which.after
            while left > 0:
                room = min(left, _EDIT_PAGE)
                parameters = {**query, "limit": room, "oldest_first": "true", "after": after}
                page = await self._http.request("GET", "dead-letters", messages.DeadLetterList, query=parameters)
                if page.dead_letters:
                    yield page.dead_letters
                    after = page.dead_letters[-1].id
                    left -= len(page.dead_letters)
                if not page.more and len(page.dead_letters) < room:
                    break

    async def purge(self, which: DeadLetterFilter) -> int:
        body = {**_conditions(which), "all": True}
        return (await self._http.request("POST", "dead-letters/purge", messages.CountResponse, body=body)).count


def _filter_queries(which: DeadLetterFilter) -> list[dict[str, object]]:
    """Return the query strings of a filter: one, or several if it has too many ids for one."""
    conditions = _conditions(which)
    if which.ids is None:
        return [conditions]
    ids = list(which.ids)
    pages = [ids[start : start + _MAX_IDS] for start in range(0, len(ids), _MAX_IDS)]
    return [{**conditions, "ids": ",".join(map(str, page))} for page in pages]


def _conditions(which: DeadLetterFilter) -> dict[str, Any]:
    """Return the conditions of a filter by their names in requests."""
    return {name: value for name, value in msgspec.to_builtins(which).items() if value is not None}
