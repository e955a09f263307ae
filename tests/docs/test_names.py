"""Each page uses queues and queries of its own, so that a reader can go through several pages on one database."""

from __future__ import annotations

import re
from collections import defaultdict

import pytest

from tests.docs.pages import PAGES, blocks_of, name_of

_CONTINUED = re.compile(r"\\\n>? *")
_NAME = r"([\w.-]+)"
_QUEUES = (
    r'\bqueue\(\s*"([^"]+)"',
    r'\bfrom_\(\s*"([^"]+)"',
    r'\.to\(\s*"([^"]+)"',
    r'sinks\.add\(\s*"([^"]+)"',
    r'option\("queue", "([^"]+)"',
    r"/v1/queues/([\w.-]+)",
    rf"penstock (?:push|tail) {_NAME}",
    rf"penstock simulate (?!\w+ --queue){_NAME}",
    rf"penstock simulate \w+ --queue {_NAME}",
    rf"penstock queue (?:create|configure|delete|push|repartition|show|tail) {_NAME}",
    rf"penstock dlq (?:list|purge|redrive) (?!-){_NAME}",
    rf"penstock group (?:configure|delete|list|seek|show) {_NAME}",
    rf"penstock sink (?:file|run|webhook) {_NAME}",
    rf"penstock source (?:file|table) {_NAME}",
    rf"CREATE QUEUE (?:IF NOT EXISTS )?{_NAME}",
)
_QUERIES = (
    r'\.start\(\s*"([^"]+)"',
    r'\.run\(\s*"([^"]+)"',
    r'\bquery_id="([^"]+)"',
    r"penstock_(?:live|history)\.(\w+?)(?:_current)?\b",
    rf"penstock query (?:cycles|delete|pause|resume|rows|show|stop) {_NAME}",
    rf"penstock gate (?:hold|pause|resume|set|show) {_NAME}",
    rf"CREATE QUERY {_NAME}",
    rf"CREATE MATERIALIZED VIEW {_NAME}",
    r'\.materialize\(\s*"([^"]+)"',
    rf"/v1/(?:gates|queries)/{_NAME}",
)


@pytest.mark.parametrize("patterns", [_QUEUES, _QUERIES], ids=["queues", "queries"])
def test_no_two_pages_use_one_name(patterns: tuple[str, ...]) -> None:
    pages_by_name: dict[str, set[str]] = defaultdict(set)
    for page in PAGES:
        text = "\n".join(_CONTINUED.sub("", block.text) for block in blocks_of(page))
        for pattern in patterns:
            for name in re.findall(pattern, text):
                pages_by_name[name].add(name_of(page))

    assert len(pages_by_name) > 15
    assert {name: sorted(pages) for name, pages in pages_by_name.items() if len(pages) > 1} == {}
