"""Queue patterns of identities."""

from __future__ import annotations

import pytest

from penstock.server.auth.identity import Identity, Role


@pytest.mark.parametrize(
    ("patterns", "reached", "not_reached"),
    [
        (("*",), ["a", "a.b", "*", "a\nb"], []),
        (("shop.*",), ["shop.", "shop.orders", "shop.a.b"], ["shop", "Shop.a", "a.shop.b"]),
        (("a?c", "x"), ["abc", "x"], ["ac", "abbc", "xx"]),
        (("a.b", "[ab]"), ["a.b", "[ab]"], ["acb", "a", "b"]),
        (("", "**a**"), ["a", "bab"], ["b"]),
        ((), [], ["a", ""]),
    ],
)
def test_queue_patterns_match(patterns: tuple[str, ...], reached: list[str], not_reached: list[str]) -> None:
    identity = Identity("", frozenset(), patterns)
    assert all(identity.can_access(queue) for queue in reached)
    assert not any(identity.can_access(queue) for queue in not_reached)


@pytest.mark.parametrize(
    ("pattern", "name", "matches"),
    [
        ("*", "any\nthing", True),
        ("", "", True),
        ("a", "a", True),
        ("a", "ab", False),
        ("a*", "ab", True),
        ("*a", "ba", True),
        ("*a", "ab", False),
        ("a*b*c", "axxbyyc", True),
        ("a*b*c", "axxbyy", False),
        ("a*bc*c", "abcbcc", True),
        ("*ab", "aab", True),
        ("*a*a", "aa", True),
        ("*a*a", "a", False),
        ("a?c", "abc", True),
        ("a?c", "ac", False),
        ("**a**", "xax", True),
        ("[a-z]", "b", False),
        ("a.c", "abc", False),
        ("*?", "", False),
        ("?*?", "ab", True),
    ],
)
def test_wildcards(pattern: str, name: str, matches: bool) -> None:
    assert Identity("k", frozenset({Role.READ}), (pattern, "~")).can_access(name) is matches


def test_pattern_matching_does_not_backtrack() -> None:
    """With backtracking, this would take years."""
    assert not Identity("k", frozenset({Role.READ}), ("*a" * 90 + "*b",)).can_access("a" * 200)
