"""Tables of the reference say what the code does."""

from __future__ import annotations

import dataclasses
import inspect
import itertools
import re
from typing import Any

import psycopg
import pytest

from penstock import InvalidOption, Penstock, Stream, sinks, sources
from penstock.core.settings import LIBPQ_VARIABLES, Settings
from penstock.engine.run_options import RunOptions
from penstock.log.queue_options import DEFAULT_DEDUP_SECONDS, DEFAULTS, check_options
from penstock.server.app import ENDPOINTS
from penstock.server.auth.identity import Role
from penstock.server.routing.openapi import build_document
from penstock.server.settings import ServerSettings
from penstock.sinks import Sink
from penstock.sources import Source, SourceRunner
from penstock.stream.aggregates import KINDS
from penstock.stream.steps import Retries
from penstock.stream.time_rules import TimeRules
from tests.docs.pages import ROOT, rows_of, table_of

_OPTIONS = table_of(ROOT / "docs/reference/queue-options.md", "option")
_ALIASES = table_of(ROOT / "docs/reference/queue-options.md", "also called")
_SETTINGS = table_of(ROOT / "docs/reference/settings.md", "variable")
_SERVER_SETTINGS = table_of(ROOT / "docs/reference/settings.md", "variable of the server")
_TABLES = table_of(ROOT / "docs/reference/tables.md", "table")
_RUN_OPTIONS = table_of(ROOT / "docs/reference/run-options.md", "option")
_STEP_OPTIONS = table_of(ROOT / "docs/reference/run-options.md", "option of a step")
_WINDOW_OPTIONS = table_of(ROOT / "docs/reference/windows.md", "option")
_AGGREGATES = table_of(ROOT / "docs/reference/aggregates.md", "aggregate")


def number(cell: str) -> float:
    value = float(cell.replace(",", ""))
    return int(value) if value.is_integer() else value


def refuses(option: str, value: float) -> bool:
    try:
        check_options({option: value})
    except InvalidOption:
        return True
    return False


def test_every_option_of_a_queue_is_listed() -> None:
    assert set(_OPTIONS) == {*DEFAULTS, "dedup_window_seconds"}


@pytest.mark.parametrize("option", DEFAULTS)
def test_the_default_of_an_option_is_as_listed(option: str) -> None:
    shown = _OPTIONS[option][1]

    assert {"none": None, "no": False}.get(shown, shown) == DEFAULTS[option] or number(shown) == DEFAULTS[option]


def test_the_deduplication_window_depends_on_the_partitioning_as_listed() -> None:
    by_key, by_hash = DEFAULT_DEDUP_SECONDS["key"], DEFAULT_DEDUP_SECONDS["hash"]

    assert _OPTIONS["dedup_window_seconds"][1] == f"{by_key:,.0f} by key, {by_hash:.0f} by hash"


@pytest.mark.parametrize("option", [name for name, row in _OPTIONS.items() if row[2]])
def test_the_limits_of_an_option_are_as_listed(option: str) -> None:
    _, _, least, most, _ = _OPTIONS[option]
    step = 0.01 if number(least) < 1 and number(least) else 1

    assert not refuses(option, number(least))
    assert refuses(option, number(least) - step)
    if most == "any":
        assert not refuses(option, 10**15)
    else:
        assert not refuses(option, number(most))
        assert refuses(option, number(most) + 1)


@pytest.mark.parametrize(("alias", "option"), [(alias, row[0]) for alias, row in _ALIASES.items()])
def test_an_option_has_the_other_name_that_is_listed(alias: str, option: str) -> None:
    assert check_options({alias: 10}) == check_options({option: 10})


def test_every_setting_of_the_server_is_listed_with_its_default() -> None:
    defaults = {field.name: field.default for field in dataclasses.fields(ServerSettings) if field.name != "core"}

    assert set(_SERVER_SETTINGS) == {f"PENSTOCK_{name.upper()}" for name in defaults}
    for name, default in defaults.items():
        shown = _SERVER_SETTINGS[f"PENSTOCK_{name.upper()}"][0]
        if name != "metrics_dir":
            assert shown == default or (shown == "none" and not default) or number(shown) == default, name


def test_every_setting_is_listed_with_its_default_and_its_argument() -> None:
    defaults: dict[str, Any] = {field.name: getattr(Settings(), field.name) for field in dataclasses.fields(Settings)}

    # The source of the URL is not a setting: error messages name it.
    assert set(_SETTINGS) == {f"PENSTOCK_{name.upper()}" for name in defaults if name != "database_source"}
    assert number(_SETTINGS["PENSTOCK_POOL_SIZE"][1]) == defaults["pool_size"]
    assert number(_SETTINGS["PENSTOCK_MAX_EVENT_BYTES"][1]) == defaults["max_event_bytes"]
    assert number(_SETTINGS["PENSTOCK_AUTO_UPGRADE"][1]) == defaults["auto_upgrade"]
    arguments = {row[0] for row in _SETTINGS.values() if row[0]}
    assert arguments == set(inspect.signature(Penstock).parameters) - {"clock"}


def test_the_variables_of_libpq_that_count_are_listed() -> None:
    text = (ROOT / "docs/reference/settings.md").read_text()

    assert [name for name in LIBPQ_VARIABLES if f"`{name}`" not in text] == []


def test_every_option_of_a_run_is_listed_with_its_default() -> None:
    defaults = {field.name: getattr(RunOptions(), field.name) for field in dataclasses.fields(RunOptions)}

    assert {option: row[0] for option, row in _RUN_OPTIONS.items()} == {
        option: plainly(value) for option, value in defaults.items()
    }


def plainly(value: Any) -> str:
    """A default as a table shows it."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int | float):
        return f"{value:,.0f}" if float(value).is_integer() else f"{value:g}"
    return str(value) if value else "none"


def test_every_option_of_a_step_is_listed_with_its_default() -> None:
    retries = {"retry_limit": "limit", "retry_pause_seconds": "pause_seconds", "timeout_seconds": "timeout_seconds"}

    assert set(_STEP_OPTIONS) == {*retries, "name", "returns"}
    for option, field in retries.items():
        assert number(_STEP_OPTIONS[option][0]) == getattr(Retries(), field)
        asked: dict[str, Any] = {option: 1}
        Stream.from_("orders").map(str, **asked)


def test_every_option_of_a_window_is_listed_with_its_default() -> None:
    shown = {option: row[0] for option, row in _WINDOW_OPTIONS.items()}
    given = {option: {"none": None}.get(value, value) for option, value in shown.items()}
    rules = {option: number(value) if value and value[0].isdigit() else value for option, value in given.items()}

    assert Stream.from_("orders").window_tumbling(seconds=1, **rules).time == TimeRules()
    with pytest.raises(InvalidOption) as refused:
        Stream.from_("orders").window_tumbling(seconds=1, nonsense=1)
    assert all(option in str(refused.value) for option in rules)


def test_every_aggregate_is_listed() -> None:
    assert {kind for row in _AGGREGATES for kind in re.findall(r"(\w+)\(", row)} == set(KINDS)


def test_every_table_is_listed(database_url: str) -> None:
    with psycopg.connect(database_url) as connection:
        rows = connection.execute("SELECT tablename FROM pg_tables WHERE schemaname = 'penstock'").fetchall()

    assert set(_TABLES) == {name for (name,) in rows}


def test_every_route_is_listed_with_who_may_call_it() -> None:
    every = {role.value for role in Role}
    meant = {"none": None, "any": every} | {role: {role, "admin"} for role in every}
    listed = {}
    for row in rows_of(ROOT / "docs/reference/http.md"):
        for route in re.findall(r"(?:GET|PUT|POST|PATCH|DELETE) /\S+", row[0].replace(",", "")):
            said = [meant[role] for role in row[2].partition(", and ")[0].split(", ")]
            listed[route] = None if None in said else set().union(*filter(None, said))

    routes = {
        f"{method.upper()} {path}": set(roles) if (roles := operation.get("x-roles")) else None
        for path, operations in build_document(ENDPOINTS)["paths"].items()
        for method, operation in operations.items()
        if not path.startswith(("/api/", "/streams/"))
    }
    assert listed == routes


@pytest.mark.parametrize(("what", "module"), [("sink", sinks), ("source", sources)])
def test_every_option_of_sinks_and_sources_is_listed_with_its_default(what: str, module: Any) -> None:
    rows = rows_of(ROOT / "docs/reference/sinks.md")
    begins = rows.index([what, "option", "default", ""]) + 2
    table = itertools.takewhile(lambda row: len(row) == 4, rows[begins:])
    listed = {(name, option): default for name, option, default, _ in table}
    takers = [name for name in module.__all__ if issubclass(_class(module, name), Sink | Source | SourceRunner)]
    options = {
        (name, option.name): option.default
        for name in takers
        for option in inspect.signature(_class(module, name)).parameters.values()
        if option.default is not option.empty or option.kind is option.KEYWORD_ONLY
    }

    assert listed.keys() == options.keys()
    for place, default in options.items():
        if isinstance(default, bool | int | float | str):
            shown = {"yes": True, "no": False}.get(listed[place], listed[place])
            assert shown == default or number(str(shown)) == default, place


def _class(module: Any, name: str) -> type:
    """What is called so, if it is a class."""
    found = getattr(module, name)
    return found if isinstance(found, type) else object
