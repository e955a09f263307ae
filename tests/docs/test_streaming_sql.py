"""The statements in the documentation and the examples are ones that run."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.stream.definition import Definition
from penstock.stream.statements.statement_parser import parse_application
from tests.docs.pages import PAGES, ROOT, Block, blocks_of

BLOCKS = [block for page in PAGES for block in blocks_of(page, "sql") if block.not_run == "streaming SQL" or block.file]
FILES = sorted([*ROOT.glob("examples/*.sql"), *ROOT.glob("benchmarks/**/queries.sql")])


@pytest.mark.parametrize("block", BLOCKS, ids=str)
def test_statements_in_the_documentation_compile(block: Block) -> None:
    assert parse_application(Definition, block.text, str(block)).queries


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_files_of_statements_compile(file: Path) -> None:
    assert len(parse_application(Definition, file.read_text(), file.name).queries) > 1
