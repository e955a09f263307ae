"""``penstock demo``: simulated traffic through the whole product or the queues alone, with verified results."""
