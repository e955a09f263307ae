"""Rate-limit gates of a definition: how many events of a key may pass, and how fast.

Amounts are integers in billionths of a token, so that sums are exact.
"""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal, DecimalException
from typing import ClassVar, TypeAlias

from penstock.core.errors import InvalidOption, InvalidRequest, short_repr
from penstock.core.names import check_name
from penstock.core.option_checks import check_flag, check_integer
from penstock.stream.expression import Expression, check_expression, is_column, is_python
from penstock.stream.windows import parse_seconds

NANOS_PER_TOKEN = 1_000_000_000
#: A bigint holds this many tokens in billionths.
_MAX_TOKENS = 1_000_000_000


@dataclass(frozen=True, slots=True)
class Cost:
    """The tokens that an event takes: a number, or an expression or a function of the event."""

    #: In billionths of a token; None if it is computed.
    fixed: int | None = NANOS_PER_TOKEN
    expression: Expression | None = None
    allow_zero: bool = True


@dataclass(frozen=True, slots=True)
class TokenBucketGate:
    """Admits up to ``capacity`` at once, and ``rate`` per second in the long run."""

    capacity: int
    rate: int
    cost: Cost
    #: One budget for all keys of the query, which take turns.
    shared: bool = False

    def describe(self) -> str:
        """Return the text that is part of a query's fingerprint. The limits may change without making another query."""
        return f"token bucket{', shared' if self.shared else ''}"


@dataclass(frozen=True, slots=True)
class SlidingWindowGate:
    """Admits at most ``limit`` in any ``window_us`` microseconds."""

    limit: int
    window_us: int
    cost: Cost
    shared: bool = False

    def describe(self) -> str:
        """Return the text that is part of a query's fingerprint."""
        return f"sliding window{', shared' if self.shared else ''}"


@dataclass(frozen=True, slots=True)
class ConcurrencyGate:
    """Admits an event while fewer than ``limit`` admitted events of its key are not acknowledged by the group."""

    limit: int
    group: str

    #: One token per event.
    cost: ClassVar[Cost] = Cost()
    #: Events in flight are counted per key.
    shared: ClassVar[bool] = False

    def describe(self) -> str:
        """Return the text that is part of a query's fingerprint."""
        return f"concurrency, group {self.group}"


Gate: TypeAlias = TokenBucketGate | SlidingWindowGate | ConcurrencyGate


def token_bucket_gate(
    *,
    capacity: float,
    refill_per_sec: float,
    cost_fn: Expression | float | None = None,
    allow_zero_cost: bool = True,
    shared: bool = False,
) -> TokenBucketGate:
    """Limit each key with a token bucket.

    Args:
        capacity: The tokens of a full bucket: the maximum burst.
        refill_per_sec: The tokens that are added per second.
        cost_fn: The tokens that an event takes: a number, a field or SQL over fields (``"weight"``, ``"size(items)"``),
            or a function of the event; 1 by default. An event that costs more than the capacity can never pass, and
            becomes a dead letter.
        allow_zero_cost: Whether an event may cost nothing.
        shared: One bucket for all keys of the query, which take turns.
    """
    amount = parse_amount("capacity", capacity)
    rate = parse_amount("refill_per_sec", refill_per_sec)
    cost = _parse_cost(cost_fn, allow_zero_cost, amount, "capacity")
    return TokenBucketGate(amount, rate, cost, check_flag("shared", shared))


def sliding_window_gate(
    *,
    limit: float,
    window_sec: float,
    cost_fn: Expression | float | None = None,
    allow_zero_cost: bool = True,
    shared: bool = False,
) -> SlidingWindowGate:
    """Limit each key to ``limit`` tokens in any ``window_sec`` seconds. See ``token_bucket_gate``."""
    amount = parse_amount("limit", limit)
    window = parse_seconds("window_sec", window_sec)
    cost = _parse_cost(cost_fn, allow_zero_cost, amount, "limit")
    return SlidingWindowGate(amount, window, cost, check_flag("shared", shared))


def concurrency_gate(*, limit: int, group: str) -> ConcurrencyGate:
    """Limit each key to ``limit`` events that ``group`` has not acknowledged in the sink queue."""
    return ConcurrencyGate(check_integer("limit", limit, 1, 1_000_000), check_name(group, "group"))


def check_gate(gate: object) -> Gate:
    """Return the gate, if it is one."""
    if not isinstance(gate, TokenBucketGate | SlidingWindowGate | ConcurrencyGate):
        raise InvalidRequest(
            "gate takes the result of token_bucket_gate(...), sliding_window_gate(...) or concurrency_gate(...), "
            f"not {short_repr(gate)}"
        )
    return gate


def to_nanotokens(value: object) -> int | None:
    """Return a number of tokens in billionths; None if the value is no finite number."""
    if isinstance(value, bool) or not isinstance(value, int | float | Decimal):
        return None
    try:
        exact = Decimal(repr(value)) if isinstance(value, float) else Decimal(value)
        return int((exact * NANOS_PER_TOKEN).to_integral_value()) if exact.is_finite() else None
    except DecimalException:
        return None


def parse_amount(name: str, value: object) -> int:
    """Return a limit in billionths of a token."""
    amount = to_nanotokens(value)
    if amount is None or not 1 <= amount <= _MAX_TOKENS * NANOS_PER_TOKEN:
        raise InvalidOption(
            f"{name} must be a number above 0 and up to {_MAX_TOKENS}, not {short_repr(value)}", option=name
        )
    return amount


def format_amount(amount: int) -> str:
    """Format billionths of a token as tokens."""
    return f"{(Decimal(amount) / NANOS_PER_TOKEN).normalize():f}"


def find_cost_problem(cost: int | None, allow_zero: bool, amount: int, what: str) -> str | None:
    """Return why an event with this cost can never pass; None if it can."""
    if cost is None:
        return "its cost is no number"
    if cost < 0:
        return f"it costs {format_amount(cost)}: a cost is not negative"
    if cost == 0 and not allow_zero:
        return "it costs nothing, which this gate does not allow"
    if cost > amount:
        return (
            f"it costs {format_amount(cost)}, more than the {what} of {format_amount(amount)}, so it could never pass"
        )
    return None


def _parse_cost(given: object, allow_zero: bool, amount: int, what: str) -> Cost:
    allow = check_flag("allow_zero_cost", allow_zero)
    if given is None:
        given = 1
    if isinstance(given, int | float | Decimal) and not isinstance(given, bool):
        fixed = to_nanotokens(given)
        problem = find_cost_problem(fixed, allow, amount, what)
        if problem is not None:
            raise InvalidOption(
                f"cost_fn={short_repr(given)}: no event would ever pass, as {problem}", option="cost_fn"
            )
        return Cost(fixed, None, allow)
    if not (isinstance(given, str) or is_column(given) or is_python(given)):
        raise InvalidOption(
            f"cost_fn must be a number, a field or SQL over fields, or a function of an event, not {short_repr(given)}",
            option="cost_fn",
        )
    return Cost(None, check_expression(given, "cost_fn"), allow)
