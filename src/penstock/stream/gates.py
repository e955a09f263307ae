"""Gates: how much of each lane may pass, and how fast. A definition only; the engine makes them run.

Amounts are kept as whole billionths of a token, so that no number of events adds up to anything but their sum.
"""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal, DecimalException
from typing import TypeAlias

from penstock.core.errors import InvalidOption, InvalidRequest, shown
from penstock.core.names import check_name
from penstock.stream.expression import Expression, check_expression, is_column, is_python
from penstock.stream.windows import micros, seconds_text

#: So many of the smallest part make one token.
NANO = 1_000_000_000
#: More than any partner allows; a bigint holds it in billionths.
_MOST = 1_000_000_000


@dataclass(frozen=True, slots=True)
class Cost:
    """What an event costs: the same for all, or what an expression or a function says of it."""

    #: In billionths of a token; None, where it is computed.
    fixed: int | None = NANO
    expression: Expression | None = None
    allow_zero: bool = True


@dataclass(frozen=True, slots=True)
class TokenBucket:
    """Up to ``capacity`` at once, and ``rate`` a second in the long run."""

    capacity: int
    rate: int
    cost: Cost
    #: One budget for all lanes of the query, which are served in turn.
    shared: bool = False

    @property
    def amount(self) -> int:
        """The most that an event may cost."""
        return self.capacity

    def describe(self) -> str:
        """What kind of gate it is. Its limits may change without making the query another one."""
        return f"token bucket{', shared' if self.shared else ''}"


@dataclass(frozen=True, slots=True)
class SlidingWindow:
    """Never more than ``limit`` in any ``window_us`` microseconds, wherever they begin."""

    limit: int
    window_us: int
    cost: Cost
    shared: bool = False

    @property
    def amount(self) -> int:
        """The most that an event may cost."""
        return self.limit

    def describe(self) -> str:
        """What kind of gate it is."""
        return f"sliding window{', shared' if self.shared else ''}"


@dataclass(frozen=True, slots=True)
class Concurrency:
    """At most ``limit`` events of a lane that were let through and that the group has yet to acknowledge."""

    limit: int
    group: str

    @property
    def amount(self) -> int:
        """The most that may be in flight, in billionths."""
        return self.limit * NANO

    @property
    def cost(self) -> Cost:
        """Every event counts as one."""
        return Cost()

    @property
    def shared(self) -> bool:
        """Never: what is in flight is counted by lane."""
        return False

    def describe(self) -> str:
        """What kind of gate it is."""
        return f"concurrency, group {self.group}"


Gate: TypeAlias = TokenBucket | SlidingWindow | Concurrency


def token_bucket_gate(
    *,
    capacity: float,
    refill_per_sec: float,
    cost_fn: Expression | float | None = None,
    allow_zero_cost: bool = True,
    shared: bool = False,
) -> TokenBucket:
    """Let up to ``capacity`` tokens through at once and ``refill_per_sec`` a second in the long run, for each lane.

    ``cost_fn`` says how many tokens an event takes: a number, a field or SQL over its fields (``"weight"``,
    ``"size(items)"``), or a function of the event; one without it. An event that costs more than the capacity could
    never pass: it becomes a dead letter. With ``shared``, all lanes of the query have one bucket together and are
    served in turn.
    """
    amount = read_amount("capacity", capacity)
    rate = read_amount("refill_per_sec", refill_per_sec)
    cost = _cost(cost_fn, allow_zero_cost, amount, "capacity")
    return TokenBucket(amount, rate, cost, _flag("shared", shared))


def sliding_window_gate(
    *,
    limit: float,
    window_sec: float,
    cost_fn: Expression | float | None = None,
    allow_zero_cost: bool = True,
    shared: bool = False,
) -> SlidingWindow:
    """Let no more than ``limit`` through in any ``window_sec`` seconds, wherever they begin, for each lane."""
    amount = read_amount("limit", limit)
    span = micros("window_sec", window_sec)
    cost = _cost(cost_fn, allow_zero_cost, amount, "limit")
    return SlidingWindow(amount, span, cost, _flag("shared", shared))


def concurrency_gate(*, limit: int, group: str) -> Concurrency:
    """Let an event through while fewer than ``limit`` of its lane wait for the ack of ``group`` in the sink queue."""
    given: object = limit
    if isinstance(given, bool) or not isinstance(given, int) or not 1 <= given <= 1_000_000:
        raise InvalidOption(f"limit must be a whole number from 1 to 1000000, not {shown(limit)}", option="limit")
    return Concurrency(limit, check_name(group, "group"))


def check_gate(gate: object) -> Gate:
    """Return the gate, if it is one."""
    if not isinstance(gate, TokenBucket | SlidingWindow | Concurrency):
        raise InvalidRequest(
            "gate takes what token_bucket_gate(...), sliding_window_gate(...) or concurrency_gate(...) gives, "
            f"not {shown(gate)}"
        )
    return gate


def nanos(value: object) -> int | None:
    """A number in whole billionths; None if it is no number that can be one."""
    if isinstance(value, bool) or not isinstance(value, int | float | Decimal):
        return None
    try:
        exact = Decimal(repr(value)) if isinstance(value, float) else Decimal(value)
        return int((exact * NANO).to_integral_value()) if exact.is_finite() else None
    except DecimalException:
        return None


def read_amount(name: str, value: object) -> int:
    """A limit in billionths, if it is one."""
    found = nanos(value)
    if found is None or not 1 <= found <= _MOST * NANO:
        raise InvalidOption(f"{name} must be a number above 0 and up to {_MOST}, not {shown(value)}", option=name)
    return found


def amount_text(amount: int) -> str:
    """Billionths as people write them."""
    return f"{(Decimal(amount) / NANO).normalize():f}"


def gate_text(gate: Gate) -> str:
    """A gate with its limits, for messages."""
    match gate:
        case TokenBucket():
            return f"token bucket of {amount_text(gate.capacity)}, {amount_text(gate.rate)}/s"
        case SlidingWindow():
            return f"{amount_text(gate.limit)} in any {seconds_text(gate.window_us)}"
        case Concurrency():
            return f"{gate.limit} in flight of group {gate.group}"


def cost_problem(cost: int | None, allow_zero: bool, amount: int, what: str) -> str | None:
    """Why an event that costs so much can never pass; None if it can."""
    if cost is None:
        return "its cost is no number"
    if cost < 0:
        return f"it costs {amount_text(cost)}: a cost is not negative"
    if cost == 0 and not allow_zero:
        return "it costs nothing, which this gate does not allow"
    if cost > amount:
        return f"it costs {amount_text(cost)}, more than the {what} of {amount_text(amount)}, so it could never pass"
    return None


def _cost(given: object, allow_zero: bool, amount: int, what: str) -> Cost:
    allow = _flag("allow_zero_cost", allow_zero)
    if given is None:
        given = 1
    if isinstance(given, int | float | Decimal) and not isinstance(given, bool):
        fixed = nanos(given)
        problem = cost_problem(fixed, allow, amount, what)
        if problem is not None:
            raise InvalidOption(f"cost_fn={shown(given)}: no event would ever pass, as {problem}", option="cost_fn")
        return Cost(fixed, None, allow)
    if not (isinstance(given, str) or is_column(given) or is_python(given)):
        raise InvalidOption(
            f"cost_fn must be a number, a field or SQL over fields, or a function of an event, not {shown(given)}",
            option="cost_fn",
        )
    return Cost(None, check_expression(given, "cost_fn"), allow)


def _flag(name: str, value: object) -> bool:
    if not isinstance(value, bool):
        raise InvalidOption(f"{name} must be True or False, not {shown(value)}", option=name)
    return value
