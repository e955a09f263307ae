"""``/v1/rules``: alert rules on results, and the alerts that fire."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from msgspec import Struct

from penstock.core.errors import NotFound
from penstock.engine.alerts.rule_store import RuleInfo, RuleStore
from penstock.engine.alerts.trial import Trial, try_rule
from penstock.server.auth.identity import Role
from penstock.server.routing.call import ApiCall
from penstock.server.routing.endpoint import EndpointGroup
from penstock.stream import rules
from penstock.stream.rules import Condition, ConditionKind, Rule

routes = EndpointGroup("Rules", checks_queues=True, problems=("not-found", "invalid-name", "invalid-option"))


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


class RuleFields(Struct, frozen=True, forbid_unknown_fields=True):
    """The definition of a rule without its name."""

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

    def to_rule(self, name: str) -> Rule:
        """Return the rule, or raise InvalidRequest."""
        given = {field: getattr(self, field) for field in RuleFields.__struct_fields__}
        return rules.rule(name, **{**given, "when": self.when.to_condition()})


class SaveRuleRequest(RuleFields, frozen=True, forbid_unknown_fields=True):
    #: Refuse a value that no recent result of the queue has.
    strict: bool = True


class RuleDocument(RuleFields, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A rule, and the number of keys for which it fires."""

    name: str
    firing: int
    #: Until when it raises no new alerts.
    silenced_until: datetime | None = None
    #: The same for single keys.
    silenced_keys: dict[str, datetime] = {}


class SilenceRequest(Struct, frozen=True, forbid_unknown_fields=True):
    """For how long a rule raises no new alerts; 0 ends that."""

    seconds: float
    #: Only for this key.
    key: str | None = None


class FiringAlertDocument(Struct, frozen=True):
    rule: str
    key: str
    since: datetime


class RuleList(Struct, frozen=True):
    """All rules by name, and the firing alerts, the oldest first."""

    rules: list[RuleDocument]
    firing: list[FiringAlertDocument]


@routes.get("/v1/rules", "List rules", Role.READ, problems=())
async def list_rules(call: ApiCall) -> RuleList:
    """Return the rules on queues that the caller may see, and their firing alerts."""
    store = RuleStore(call.log)
    visible = [info for info in await store.all() if call.can_see(info.rule.queue)]
    call.can_see_all()  # with no rules, no queue was checked
    names = {info.rule.name for info in visible}
    firing = [FiringAlertDocument(*alert) for alert in await store.firing() if alert.rule in names]
    return RuleList([_to_document(info) for info in visible], firing)


@routes.put("/v1/rules/{rule}", "Create or replace a rule", Role.ADMIN)
async def save_rule(call: ApiCall, body: SaveRuleRequest) -> RuleDocument:
    """Create or replace a rule. A replaced rule starts without firing alerts."""
    rule = body.to_rule(call.path["rule"])
    call.require_access([rule.queue, rule.alerts])
    store = RuleStore(call.log)
    existing = await store.find(rule.name)
    if existing is not None:
        call.require_access_silently([existing.queue, existing.alerts])
    await call.log.catalog.get(rule.queue)
    await store.save(rule, strict=body.strict)
    return _to_document(RuleInfo(rule, 0))


@routes.post("/v1/rules/{rule}/silence", "Silence a rule", Role.ADMIN)
async def silence_rule(call: ApiCall, body: SilenceRequest) -> None:
    """Let a rule raise no new alerts for a time. Alerts that fire already still clear."""
    await _find_rule(call)
    await RuleStore(call.log).silence(call.path["rule"], body.seconds, key=body.key)


@routes.post("/v1/rules/{rule}/try", "Try a rule on past results", Role.READ)
async def try_rule_on_past_results(call: ApiCall, body: RuleFields) -> Trial:
    """Evaluate a rule on the newest 2,000 results of its queue, without storing anything. The rule need not exist."""
    rule = body.to_rule(call.path["rule"])
    call.require_access(rule.queue)
    return await try_rule(call.log, rule)


@routes.delete("/v1/rules/{rule}", "Delete a rule", Role.ADMIN, problems=("not-found", "invalid-name"))
async def delete_rule(call: ApiCall) -> None:
    """Delete a rule with its firing alerts."""
    rule = await _find_rule(call)
    await RuleStore(call.log).delete(rule.name)


async def _find_rule(call: ApiCall) -> Rule:
    call.require_access(())
    rule = await RuleStore(call.log).find(call.path["rule"])
    if rule is None:
        raise NotFound(f"there is no rule {call.path['rule']!r}: GET /v1/rules lists all rules")
    call.require_access_silently(rule.queue)
    return rule


def _to_document(info: RuleInfo) -> RuleDocument:
    rule = info.rule
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
        firing=info.firing,
        silenced_until=info.silenced_until,
        silenced_keys=dict(info.silenced_keys),
    )
