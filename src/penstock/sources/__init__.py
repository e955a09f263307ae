"""Where events come from besides pushes: files, tables, and a simulator."""

from penstock.log.pushed import Rejected
from penstock.sources.contract import Position, Read, Source
from penstock.sources.feed import Feed, SourceInfo, forget, sources
from penstock.sources.files import Csv, Ndjson
from penstock.sources.parquet import Parquet
from penstock.sources.table import Table

__all__ = [
    "Csv",
    "Feed",
    "Ndjson",
    "Parquet",
    "Position",
    "Read",
    "Rejected",
    "Source",
    "SourceInfo",
    "Table",
    "forget",
    "sources",
]
