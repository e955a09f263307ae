"""Steady load for hours, and whether anything grows that should not."""
