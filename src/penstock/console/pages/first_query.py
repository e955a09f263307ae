"""The commands that pages without queries suggest. Each creates its queue and works on an empty database."""

from __future__ import annotations

#: Start a query over windows.
QUERY_COMMAND = (
    'echo "CREATE QUEUE orders (customer string, amount decimal(18,2), at string); INSERT INTO orders_1m '
    "SELECT customer, window(at, '1 minute') AS w, count(*) AS orders, sum(amount) AS total "
    "FROM orders GROUP BY customer, window(at, '1 minute')\" > orders.sql && penstock sql orders.sql"
)
#: Start a materialized view.
VIEW_COMMAND = (
    'echo "CREATE QUEUE orders (customer string, amount decimal(18,2), at string); '
    "CREATE MATERIALIZED VIEW customers AS SELECT customer, count(*) AS orders, sum(amount) AS total "
    'FROM orders GROUP BY customer" > customers.sql && penstock sql customers.sql'
)
