"""Sources: push the rows of files and tables to a queue, and simulate events."""

from penstock.log.write.push_result import RejectedInput
from penstock.sources.base import Position, ReadResult, Source
from penstock.sources.csv import Csv
from penstock.sources.ndjson import Ndjson
from penstock.sources.parquet import Parquet
from penstock.sources.source_runner import SourceInfo, SourceRunner, forget_source, list_sources
from penstock.sources.table import Table

__all__ = [
    "Csv",
    "Ndjson",
    "Parquet",
    "Position",
    "ReadResult",
    "RejectedInput",
    "Source",
    "SourceInfo",
    "SourceRunner",
    "Table",
    "forget_source",
    "list_sources",
]
