"""``penstock demo``: the log at work, on a database of its own."""
