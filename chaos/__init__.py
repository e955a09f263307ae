"""The whole system as separate processes, under load, while a seeded schedule of faults goes over it."""
