"""``penstock demo``: a small company's traffic through everything that there is, on a database of its own."""
