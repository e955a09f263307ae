"""A join of two streams, with what waits in PostgreSQL and in Spark's state store."""
