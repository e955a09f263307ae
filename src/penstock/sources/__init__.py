"""Where events come from besides pushes: files, tables, and a simulator."""

from penstock.log.write.result import Rejected
from penstock.sources.base import Position, Read, Source
from penstock.sources.files import Csv, Ndjson
from penstock.sources.parquet import Parquet
from penstock.sources.runner import Feed, SourceInfo, forget, sources
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
