"""HTTP ingestion: throughput, latency and CPU time."""
