"""Maps Spark types to PostgreSQL types."""

from __future__ import annotations

_TYPES = {
    "string": "text",
    "boolean": "boolean",
    "double": "double precision",
    "float": "double precision",
    "tinyint": "bigint",
    "smallint": "bigint",
    "int": "bigint",
    "bigint": "bigint",
    "timestamp": "timestamptz",
    "timestamp_ltz": "timestamptz",
    "date": "date",
}


def postgres_type(spark_type: str) -> str:
    if spark_type.startswith("decimal"):
        return "numeric"
    return _TYPES.get(spark_type, "jsonb")
