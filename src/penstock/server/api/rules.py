"""``/v1/rules``: alert rules on results, and the alerts that fire."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from msgspec import Struct, structs

from penstock.core.errors import NotFound
from penstock.engine.alerts.store import RuleStore
from penstock.server.auth.identity import Role
from penstock.server.routing.call import ApiCall
from penstock.server.routing.endpoint import EndpointGroup
from penstock.stream import rules
from penstock.stream.rules import Condition, ConditionKind, Rule

routes = EndpointGroup("Rules")


class RuleCondition(Struct, frozen=True, forbid_unknown_fields=True):
    """When a rule fires; ``over`` is for ``change`` and ``zscore``."""

    kind: ConditionKind
    limit: float
    clear: float | None = None
    over: int | None = None

    def to_condition(self) -> Condition:
        """Return the condition, or raise InvalidOption if the fields do not fit its kind."""
        given: dict[str, Any] = {"clear": self.clear, "over": self.over}
        # Omitted fields get the defaults of the kind; a field that the kind does not have is refused.
        return rules.make_condition(
            self.kind, self.limit, **{name: value for name, value in given.items() if value is not None}
        )


class SaveRuleRequest(Struct, frozen=True, forbid_unknown_fields=True):
    #: The queue of the results.
    on: str
    when: RuleCondition
    #: The field of the results that the condition is about.
    value: str = "value"
    #: The queue for alerts.
    alerts: str = "alerts"
    fire_after: int = 1
    clear_after: int = 1
    #: The query whose open windows are evaluated too.
    live: str | None = None
    #: Keys whose absence fires the rule even if they never had a result.
    expect: list[str] = []


class RuleDocument(SaveRuleRequest, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A rule, and the number of keys for which it fires."""

    name: str
    firing: int


class FiringAlertDocument(Struct, frozen=True):
    rule: str
    key: str
    since: datetime


class RuleList(Struct, frozen=True):
    """All rules by name, and the firing alerts, the oldest first."""

    rules: list[RuleDocument]
    firing: list[FiringAlertDocument]


@routes.get("/v1/rules", "List rules", Role.READ, checks_queues=True)
async def list_rules(call: ApiCall) -> RuleList:
    """Return the rules on queues that the caller may see, and their firing alerts."""
    store = RuleStore(call.log)
    visible = [info for info in await store.all() if call.can_see(info.rule.queue)]
    call.can_see_all()  # with no rules, no queue was checked
    names = {info.rule.name for info in visible}
    firing = [
        FiringAlertDocument(alert.rule, alert.key, alert.since) for alert in await store.firing() if alert.rule in names
    ]
    return RuleList([_to_document(info.rule, info.firing) for info in visible], firing)


@routes.put(
    "/v1/rules/{rule}",
    "Create or replace a rule",
    Role.ADMIN,
    checks_queues=True,
    problems=("not-found", "invalid-name", "invalid-option"),
)
async def save_rule(call: ApiCall, body: SaveRuleRequest) -> RuleDocument:
    """Create or replace a rule. A replaced rule starts without firing alerts."""
    rule = rules.rule(call.path["rule"], **{**structs.asdict(body), "when": body.when.to_condition()})
    call.require_access([rule.queue, rule.alerts])
    store = RuleStore(call.log)
    existing = await store.find(rule.name)
    if existing is not None:
        call.require_access_silently([existing.queue, existing.alerts])
    await call.log.catalog.get(rule.queue)
    await store.save(rule)
    return _to_document(rule, 0)


@routes.delete(
    "/v1/rules/{rule}", "Delete a rule", Role.ADMIN, checks_queues=True, problems=("not-found", "invalid-name")
)
async def delete_rule(call: ApiCall) -> None:
    """Delete a rule with its firing alerts."""
    store = RuleStore(call.log)
    call.require_access(())
    rule = await store.find(call.path["rule"])
    if rule is None:
        raise NotFound(f"there is no rule {call.path['rule']!r}: GET /v1/rules lists all rules")
    call.require_access_silently(rule.queue)
    await store.delete(rule.name)


def _to_document(rule: Rule, firing: int) -> RuleDocument:
    when = RuleCondition(rule.condition.kind, rule.condition.limit, rule.condition.clear, rule.condition.over or None)
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
