"""The pages of the console, listed in ``penstock.console.layout``."""
