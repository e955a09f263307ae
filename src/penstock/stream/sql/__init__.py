"""Spark SQL in definitions: parsed with sqlglot, without Spark."""
