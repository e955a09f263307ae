"""The statements of each engine, by query."""
