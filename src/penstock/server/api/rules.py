"""Rules over HTTP: when results are worth an alert, and what fires."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from msgspec import Struct

from penstock.core.errors import NotFound
from penstock.engine.alerts.store import Rules
from penstock.server.http.endpoint import Call, Endpoint, Role
from penstock.stream import rules
from penstock.stream.rules import Condition, Kind, Rule

_READ = frozenset({Role.READ})
_ADMIN = frozenset({Role.ADMIN})
_TAG = "Rules"


class When(Struct, frozen=True, forbid_unknown_fields=True):
    """When a value is worth an alert; ``over`` is for ``change`` and ``zscore``."""

    kind: Kind
    limit: float
    clear: float | None = None
    over: int | None = None

    def condition(self) -> Condition:
        """As rules have it, or an error that says what does not go together."""
        given: dict[str, Any] = {"clear": self.clear, "over": self.over}
        # What was not given is as it is without it; what a kind does not take is refused by its name.
        return rules.condition(
            self.kind, self.limit, **{name: each for name, each in given.items() if each is not None}
        )


class RuleBody(Struct, frozen=True, forbid_unknown_fields=True):
    """A rule as it is saved."""

    #: The queue of the results.
    on: str
    when: When
    #: The field of the results to look at.
    value: str = "value"
    #: The queue for alerts.
    alerts: str = "alerts"
    fire_after: int = 1
    clear_after: int = 1
    #: The query whose open windows are looked at too.
    live: str | None = None
    #: Keys that are missed if they never come.
    expect: list[str] = []


class RuleDocument(RuleBody, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A rule, and for how many keys it fires."""

    name: str
    firing: int


class Firing(Struct, frozen=True):
    """What fires."""

    rule: str
    key: str
    since: datetime


class RuleList(Struct, frozen=True):
    """All rules by name, and what fires, that which has for longest first."""

    rules: list[RuleDocument]
    firing: list[Firing]


async def list_rules(call: Call) -> RuleList:
    """The rules on queues that the caller may see."""
    book = Rules(call.services.log)
    seen = [each for each in await book.all() if call.sees(each.rule.queue)]
    call.sees_all()
    names = {each.rule.name for each in seen}
    firing = [Firing(*each) for each in await book.firing() if each[0] in names]
    return RuleList([_document(each.rule, each.firing) for each in seen], firing)


async def save(call: Call) -> RuleDocument:
    """Store a rule, or change it; one that was changed begins anew."""
    asked: RuleBody = call.body
    made = rules.rule(
        call.path["rule"],
        on=asked.on,
        when=asked.when.condition(),
        value=asked.value,
        alerts=asked.alerts,
        fire_after=asked.fire_after,
        clear_after=asked.clear_after,
        live=asked.live,
        expect=asked.expect,
    )
    call.permit([made.queue, made.alerts])
    book = Rules(call.services.log)
    before = await book.find(made.name)
    if before is not None:
        call.permit_found([before.queue, before.alerts])
    await call.services.log.catalog.get(made.queue)
    await book.save(made)
    return _document(made, 0)


async def delete(call: Call) -> None:
    """Forget a rule, and that it fires."""
    book = Rules(call.services.log)
    call.permit(())
    found = await book.find(call.path["rule"])
    if found is None:
        raise NotFound(f"there is no rule {call.path['rule']!r}: GET /v1/rules lists those there are")
    call.permit_found(found.queue)
    await book.delete(found.name)


def _document(rule: Rule, firing: int) -> RuleDocument:
    when = When(rule.condition.kind, rule.condition.limit, rule.condition.clear, rule.condition.over or None)
    return RuleDocument(
        rule.queue,
        when,
        rule.value,
        rule.alerts,
        rule.fire_after,
        rule.clear_after,
        rule.live,
        list(rule.expect),
        name=rule.name,
        firing=firing,
    )


ENDPOINTS = (
    Endpoint("GET", "/v1/rules", list_rules, "Rules, and what fires", _TAG, roles=_READ, asks=True, answer=RuleList),
    Endpoint(
        "PUT",
        "/v1/rules/{rule}",
        save,
        "Save a rule",
        _TAG,
        roles=_ADMIN,
        asks=True,
        body=RuleBody,
        answer=RuleDocument,
        problems=("not-found", "invalid-name", "invalid-option"),
    ),
    Endpoint(
        "DELETE",
        "/v1/rules/{rule}",
        delete,
        "Forget a rule",
        _TAG,
        roles=_ADMIN,
        asks=True,
        problems=("not-found", "invalid-name"),
    ),
)
