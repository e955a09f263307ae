"""A join of two streams, with its state in PostgreSQL or in Spark's state stores."""
