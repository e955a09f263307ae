"""The web console: pages about queues, queries, gates, dead letters and alerts, served by its own process."""
