"""Queries in the foreground of a command."""

from __future__ import annotations

from typing import NoReturn

import pytest

from penstock.cli.foreground import run_queries
from penstock.cli.output import Output
from penstock.core.errors import QueryChanged


def test_a_changed_query_is_refused_with_the_names_of_options() -> None:
    def start() -> NoReturn:
        raise QueryChanged("totals", "- filter amount > 0\n+ filter amount > 5", "Start it with reset=True")

    with pytest.raises(QueryChanged) as caught:
        run_queries([start], Output(), 60.0)

    assert "query 'totals' was started before as another stream" in str(caught.value)
    assert "+ filter amount > 5" in str(caught.value)
    assert "--reset" in str(caught.value)
    assert "reset=True" not in str(caught.value)
