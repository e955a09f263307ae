"""Python examples can be pasted into ``python -m asyncio``, as the pages say."""

from __future__ import annotations

import ast
import codeop

import pytest

from tests.docs.pages import PAGES, Block, blocks_of

#: A program calls this at its end. It is saved as a file.
_PROGRAM = "asyncio.run("
_BLOCKS = [
    block for page in PAGES for block in blocks_of(page, "python") if block.file is None and _PROGRAM not in block.text
]


@pytest.mark.parametrize("block", _BLOCKS, ids=str)
def test_an_example_can_be_pasted_into_a_prompt(block: Block) -> None:
    assert paste(block.text) is None


def paste(text: str) -> str | None:
    """Enter the lines one by one, as a prompt without bracketed paste does. Return the error, if there is one."""
    compiler = codeop.CommandCompiler()
    compiler.compiler.flags |= ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
    entered: list[str] = []
    for line in [*text.splitlines(), ""]:
        entered.append(line)
        try:
            is_complete = compiler("\n".join(entered), "<stdin>", "single") is not None
        except SyntaxError as error:
            return f"{error.msg} at {line!r}"
        if is_complete:
            entered.clear()
    return "the last statement is not complete" if any(line.strip() for line in entered) else None


@pytest.mark.parametrize("text", ["with a:\n    b\nc\n", "def f():\n    a\n\n    b\n", "f(\n"])
def test_text_that_a_prompt_refuses_is_noticed(text: str) -> None:
    assert paste(text) is not None
