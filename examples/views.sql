-- Materialized views in SQL only. Run them with
--
--     penstock sql examples/views.sql
--
-- push events:
--
--     penstock push purchases '{"order_id": 1, "customer": "ada", "amount": 12.5, "at": "2026-01-31T12:00:00Z"}'
--     penstock push deposits '{"order_id": 1, "paid": 12.5}'
--
-- and read the results, such as penstock_live.purchase_totals:
--
--     penstock query rows purchase_totals

CREATE QUEUE purchases (order_id bigint, customer string, amount decimal(18,2), at string) WITH (partitions = 4);
CREATE QUEUE deposits (order_id bigint, paid decimal(18,2)) WITH (partitions = 4);

-- A row for each customer.
CREATE MATERIALIZED VIEW purchase_totals WITH (indexes = 'total') AS
SELECT customer, count(*) AS orders, sum(amount) AS total, max(amount) AS largest
FROM purchases
GROUP BY customer;

-- A view over a view. It follows the changes of purchase_totals.
CREATE MATERIALIZED VIEW best_customers AS
SELECT customer, total
FROM purchase_totals
ORDER BY total DESC, customer
LIMIT 10;

-- Month to date.
CREATE MATERIALIZED VIEW purchases_by_month AS
SELECT customer, date_trunc('month', at) AS month, sum(amount) AS total
FROM purchases
GROUP BY customer, date_trunc('month', at);

-- Orders that are not paid in full. Each change is an event of the queue unpaid.changes.
CREATE MATERIALIZED VIEW unpaid WITH (changes = 'unpaid.changes') AS
SELECT o.order_id, o.customer, o.amount - coalesce(d.paid, 0) AS missing
FROM purchases o
LEFT JOIN (SELECT order_id, sum(paid) AS paid FROM deposits GROUP BY order_id) d ON d.order_id = o.order_id
WHERE o.amount > coalesce(d.paid, 0);
