"""Numbers, sizes and durations for people."""

from __future__ import annotations

import math
from collections.abc import Iterable
from decimal import Decimal

_UNITS = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))
#: Numbers with more digits before the point are shown with an exponent.
_MAX_WHOLE_DIGITS = 18


def number(value: float | None) -> str:
    """Format a number with thousands separators and at most three significant decimals.

    >>> number(1234567), number(0.125), number(1234.5), number(109.907), number(None)
    ('1,234,567', '0.125', '1,234', '110', '–')
    """
    if value is None or not math.isfinite(value):
        return "–"
    if float(value).is_integer():
        return f"{int(value):,}"
    if abs(value) >= 100:
        return f"{value:,.0f}"
    digits = 3 - (math.floor(math.log10(abs(value))) + 1 if abs(value) >= 1 else 0)
    return f"{value:,.{digits}f}".rstrip("0").rstrip(".")


def counted(count: float, noun: str, plural: str = "") -> str:
    """Format a count with its noun. The plural has an s by default.

    >>> counted(1, "event"), counted(1200, "dead letter"), counted(0, "query", "queries")
    ('1 event', '1,200 dead letters', '0 queries')
    """
    return f"{number(count)} {noun if count == 1 else plural or f'{noun}s'}"


def column_decimals(values: Iterable[Decimal | float | None]) -> int:
    """Return the number of decimals at which the values of a column are aligned: none, or two to four.

    >>> column_decimals([3, Decimal("1000")]), column_decimals([3, Decimal("999.5")]), column_decimals([1 / 3])
    (0, 2, 4)
    >>> column_decimals([2304.0500000000002])
    2
    """
    numbers = [to_decimal(value) for value in values if value is not None]
    most = max((_decimals(number) for number in numbers), default=0)
    return max(most, 2) if any(number != number.to_integral_value() for number in numbers if number.is_finite()) else 0


def decimal_number(value: Decimal | float | None, decimals: int) -> str:
    """Format a number with this many decimals. Numbers that would look like 0 or are very long have an exponent.

    >>> decimal_number(Decimal("1999.5"), 2), decimal_number(7, 0), decimal_number(Decimal("0.00001234"), 4)
    ('1,999.50', '7', '1.23e-5')
    """
    if value is None:
        return "–"
    number = to_decimal(value)
    if not number.is_finite():
        return str(number)
    if number.adjusted() >= _MAX_WHOLE_DIGITS or (number and abs(number) <= Decimal(10) ** -decimals / 2):
        return f"{number:.2e}"
    return f"{number:,.{decimals}f}"


def full_number(value: Decimal | float) -> str:
    """Format all digits of a number.

    >>> full_number(Decimal("1234567.123456789")), full_number(Decimal("1500.00"))
    ('1,234,567.123456789', '1,500')
    """
    number = to_decimal(value)
    if not number.is_finite():
        return str(number)
    text = f"{number:,f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def to_decimal(value: Decimal | float) -> Decimal:
    return Decimal(repr(value)) if isinstance(value, float) else Decimal(value)


def _decimals(number: Decimal) -> int:
    """Return the number of decimals that are not 0, of the first four."""
    return len(f"{number:.4f}".rstrip("0").partition(".")[2]) if number.is_finite() else 0


def compact(value: float | None) -> str:
    """Format a number in a few characters.

    >>> compact(999), compact(12345), compact(1234567), compact(2_500_000_000)
    ('999', '12,345', '1.23 M', '2.5 G')
    """
    if value is None or abs(value) < 100_000:
        return number(value)
    for unit, letter in _UNITS:
        if abs(value) >= unit:
            return f"{float(f'{value / unit:.3g}'):g} {letter}"
    return number(value)


def rate(value: float | None) -> str:
    """Format events per second.

    >>> rate(0.0), rate(3.2), rate(1234.4)
    ('0', '3.2', '1,234')
    """
    if value is None:
        return "–"
    if value < 10:
        return f"{value:.1f}".removesuffix(".0")
    return compact(round(value))


def duration(seconds: float | None) -> str:
    """Format a duration in its two largest units.

    >>> duration(0.0123), duration(2.345), duration(75), duration(7300), duration(200_000)
    ('12 ms', '2.3 s', '1 min 15 s', '2 h 1 min', '2 d 7 h')
    """
    if seconds is None:
        return "–"
    if seconds < 0:
        return f"-{duration(-seconds)}"
    if seconds < 0.9995:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 59.95:
        return f"{seconds:.1f}".removesuffix(".0") + " s"
    whole = round(seconds)
    for unit, name, smaller, small in ((86_400, "d", 3600, "h"), (3600, "h", 60, "min"), (60, "min", 1, "s")):
        if whole >= unit:
            rest = whole % unit // smaller
            return f"{whole // unit} {name}" + (f" {rest} {small}" if rest else "")
    return f"{whole} s"


def size(count: float | None) -> str:
    """Format a number of bytes.

    >>> size(900), size(2048), size(5 << 20)
    ('900 B', '2 KiB', '5 MiB')
    """
    if count is None:
        return "–"
    amount, units = float(count), ("B", "KiB", "MiB", "GiB", "TiB")
    for unit in units[:-1]:
        if abs(amount) < 1024:
            return f"{amount:.3g} {unit}"
        amount /= 1024
    return f"{amount:.3g} {units[-1]}"
