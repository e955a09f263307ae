"""HTTP ingestion: how many events a second get from sockets into the log, and what that costs."""
