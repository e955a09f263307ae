"""What holds for every page. Links within the documentation are for ``mkdocs build --strict`` to check."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.docs.pages import PAGES, ROOT, blocks_of, name_of

_CHECKED = {"python", "console", "sql", "output", "text", "sh", "json"}
_LINK = re.compile(r"(?:\]\(|src=\")(?!https?:)([^)#\"]+)")


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_blocks_are_in_languages_that_are_checked(page: Path) -> None:
    assert {block.language for block in blocks_of(page)} <= _CHECKED


def test_links_of_the_readme_lead_somewhere() -> None:
    links = _LINK.findall((ROOT / "README.md").read_text())

    assert links
    assert [link for link in links if not (ROOT / link).exists()] == []


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_penstock_is_installed_from_its_checkout(page: Path) -> None:
    """There is no package index that has it yet."""
    assert not re.search(r"pip install\S* '?penstock", page.read_text())
