"""``penstock demo log``: the log at work, on a database of its own."""
