"""The Spark data source ``format("penstock")``: queues and query results in one's own Spark jobs."""
