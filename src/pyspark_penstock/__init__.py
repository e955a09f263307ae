"""Registers ``format("penstock")``: Spark finds data sources in packages whose names start with ``pyspark_``."""

from penstock.connector.format import PenstockFormat as DefaultSource

__all__ = ["DefaultSource"]
