"""Soak tests: steady load for hours, and checks that no resource grows."""
