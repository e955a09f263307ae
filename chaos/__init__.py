"""Chaos tests: the system as separate processes under load, with a seeded schedule of faults."""
