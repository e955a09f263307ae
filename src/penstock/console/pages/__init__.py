"""A module a page; ``penstock.console.registry`` lists them."""
