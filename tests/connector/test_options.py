"""Options of ``format("penstock")``: errors name the option."""

from __future__ import annotations

import pytest

from penstock.connector.database_url import Conninfo, find_database
from penstock.connector.options import (
    EVENT_COLUMNS,
    OPTIONS,
    parse_read_options,
    parse_result_options,
    parse_write_options,
)
from penstock.core.errors import ConfigurationError, InvalidOption
from tests.docs.pages import ROOT, table_of

READ = [
    ({}, "queue", "is missing"),
    ({"queue": ""}, "queue", "is missing"),
    ({"queue": "a\nb"}, "queue", "printable"),
    ({"columns": "key,vlaue"}, "columns", "names 'vlaue', .*did you mean 'value'"),
    ({"fields": "n bigin"}, "fields", "'bigin' is no type; did you mean 'bigint'"),
    ({"fields": "n"}, "fields", "the type of 'n' is missing"),
    ({"fields": "n bigint,"}, "fields", "a field is missing at its end"),
    ({"fields": "n bigint m string"}, "fields", "'m' is not expected"),
    ({"fields": "a array<bigint"}, "fields", "a type or a > is missing at its end"),
    ({"fields": "a struct<b:int,c:strng>"}, "fields", "'strng' is no type; did you mean 'string'"),
    ({"fields": "a decimal(x)"}, "fields", "'X' is no number of digits"),
    ({"fields": "5.5 int"}, "fields", "'5.5' is no name of a field"),
    ({"mode": "faifast"}, "mode", "permissive, dropMalformed or failFast, .*did you mean 'failfast'"),
    ({"startingOffsets": "first"}, "startingOffsets", "is 'earliest', 'latest' or JSON"),
    ({"startingOffsets": '{"a": 1}'}, "startingOffsets", "JSON with offsets"),
    ({"startingOffsets": '{"1": -3}'}, "startingOffsets", "-2 for the first offset"),
    ({"startingTimestamp": "yesterday"}, "startingTimestamp", "is a time with a time zone"),
    ({"startingTimestamp": "2026-01-31T12:00:00"}, "startingTimestamp", "with a time zone"),
    ({"startingTimestamp": "2026-01-31T12:00:00Z", "startingOffsets": "latest"}, "startingTimestamp", "one of the two"),
    ({"failOnDataLoss": "yes"}, "failOnDataLoss", "is true or false"),
    ({"minPartitions": "0"}, "minPartitions", "whole number of at least 1"),
    ({"minPartitions": "many"}, "minPartitions", "whole number of at least 1"),
    ({"queu": "a"}, "queu", "did you mean 'queue'"),
    ({"subscribe": "a"}, "subscribe", "here it is 'queue'"),
    ({"zzz": "a"}, "zzz", "there are columns, "),
    ({"txnAppId": "a"}, "txnAppId", "is not one of read"),
    ({"databaseUrl": "postgresql://u:hidden@h/d"}, "databaseUrl", "PENSTOCK_DATABASE_URL"),
]
BATCH = [
    ({"endingOffsets": "last"}, "endingOffsets", "is 'earliest', 'latest' or JSON"),
    ({"endingTimestamp": "2026-01-31T12:00:00Z", "endingOffsets": "latest"}, "endingTimestamp", "one of the two"),
    ({"endingTimestamp": "noon"}, "endingTimestamp", "is a time"),
    ({"maxRecordsPerTrigger": "5"}, "maxRecordsPerTrigger", "is not one of read:"),
    ({"group": "g"}, "group", "is not one of read:"),
]
STREAM = [
    ({"maxRecordsPerTrigger": "0"}, "maxRecordsPerTrigger", "whole number of at least 1"),
    ({"maxOffsetsPerTrigger": "5"}, "maxOffsetsPerTrigger", "here it is 'maxRecordsPerTrigger'"),
    ({"group": " g"}, "group", "without spaces at its ends"),
    ({"endingOffsets": "latest"}, "endingOffsets", "is not one of readStream"),
]


@pytest.mark.parametrize(
    ("given", "option", "hint", "streaming"),
    [(*case, False) for case in READ + BATCH] + [(*case, True) for case in READ[1:21] + STREAM],
)
def test_invalid_read_options_are_refused(given: dict[str, str], option: str, hint: str, streaming: bool) -> None:
    options = {"queue": "orders", **given} if given else {}
    with pytest.raises(InvalidOption, match=f"option '{option}' .*{hint}") as refused:
        parse_read_options(options, streaming=streaming)
    assert refused.value.option == option
    assert "hidden" not in str(refused.value)


@pytest.mark.parametrize(
    ("given", "option", "hint", "streaming"),
    [
        ({"queue": " "}, "queue", "is missing", False),
        ({"txnAppId": "a"}, "txnVersion", "is missing: .* both", False),
        ({"txnVersion": "1"}, "txnAppId", "is missing: .* both", False),
        ({"txnAppId": "a", "txnVersion": "-1"}, "txnVersion", "whole number of at least 0", False),
        ({"txnAppId": "a", "txnVersion": "1"}, "txnVersion", "is not one of writeStream", True),
        ({"txnAppId": ""}, "txnAppId", "must not be empty", True),
        ({"fullQueueTimeoutSeconds": "-1"}, "fullQueueTimeoutSeconds", "seconds from 0", True),
        ({"startingOffsets": "latest"}, "startingOffsets", "is not one of write:", False),
        ({"topic": "a"}, "topic", "here it is 'queue'", True),
    ],
)
def test_invalid_write_options_are_refused(given: dict[str, str], option: str, hint: str, streaming: bool) -> None:
    with pytest.raises(InvalidOption, match=f"option '{option}' .*{hint}"):
        parse_write_options({"queue": "orders", **given}, streaming=streaming)


@pytest.mark.parametrize(
    ("given", "option", "hint"),
    [
        ({"query": ""}, "query", "is missing"),
        ({"query": "q", "rows": "closed"}, "rows", "is 'all' .* or 'live'"),
        ({"query": "q", "columns": "key"}, "columns", "is not one of read"),
    ],
)
def test_invalid_result_options_are_refused(given: dict[str, str], option: str, hint: str) -> None:
    with pytest.raises(InvalidOption, match=f"option '{option}' .*{hint}"):
        parse_result_options(given)


@pytest.mark.parametrize(
    "fields",
    [
        "customer string, amount decimal(12,2), ts bigint",
        "`a b` STRING NOT NULL COMMENT 'x', t timestamp",
        "a struct<b:int,c:array<struct<d decimal>>>, m map<string,array<int>>",
    ],
)
def test_valid_fields_are_passed_unchanged(fields: str) -> None:
    assert parse_read_options({"queue": "orders", "fields": fields}, streaming=True).fields == fields


def test_options_of_spark_are_accepted() -> None:
    written = parse_write_options({"QUEUE": "orders", "checkpointLocation": "/c", "queryName": "q"}, streaming=True)
    assert written.queue == "orders"


def test_database_is_named_by_a_variable_or_a_file(monkeypatch: pytest.MonkeyPatch, tmp_path: object) -> None:
    for name in ("PENSTOCK_DATABASE_URL", "DATABASE_URL", "PGHOST", "PGHOSTADDR", "PGPORT", "PGDATABASE", "PGSERVICE"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(ConfigurationError, match="set PENSTOCK_DATABASE_URL where Spark's driver runs"):
        find_database({})
    with pytest.raises(InvalidOption, match="'databaseUrlEnv' names 'WHERE', and that is not set"):
        find_database({"databaseUrlEnv": "WHERE"})
    with pytest.raises(InvalidOption, match="'databaseUrlFile' names '/nowhere', which cannot be read"):
        find_database({"databaseUrlFile": "/nowhere"})
    with pytest.raises(InvalidOption, match="give one of the two"):
        find_database({"databaseUrlFile": "/nowhere", "databaseUrlEnv": "WHERE"})
    monkeypatch.setenv("WHERE", "postgresql+driver://u:hidden@h/d")
    with pytest.raises(ConfigurationError, match="WHERE is not a PostgreSQL connection string") as refused:
        find_database({"databaseUrlEnv": "WHERE"})
    assert "hidden" not in str(refused.value)
    monkeypatch.setenv("WHERE", "postgresql://u:hidden@h/d")
    found = find_database({"databaseUrlEnv": "WHERE"})
    assert found.reveal() == "postgresql://u:hidden@h/d"
    assert "hidden" not in f"{found} {found!r} {[found]} {Conninfo('hidden')}"


def test_reference_page_lists_all_options_and_columns() -> None:
    page = ROOT / "docs" / "reference" / "connector.md"
    assert set(table_of(page, "option")) == set(OPTIONS)
    assert {name: cells[0] for name, cells in table_of(page, "column").items()} == EVENT_COLUMNS
