"""Streaming SQL: statements made into the same streams that the builder makes."""
