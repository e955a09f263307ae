"""Streaming SQL: statements such as ``CREATE QUEUE`` and ``INSERT INTO ... SELECT``, compiled to streams."""
