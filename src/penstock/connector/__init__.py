"""``format("penstock")``: queues and live results for people who bring their own Spark."""
