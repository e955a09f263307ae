"""How Spark finds ``format("penstock")`` by itself: it looks for packages that are called ``pyspark_`` something."""

from penstock.connector.format import PenstockFormat as DefaultSource

__all__ = ["DefaultSource"]
