-- An application in SQL only. Run it with
--
--     penstock sql examples/orders.sql
--
-- and push events:
--
--     penstock push orders '{"customer": "ada", "amount": 12.5, "at": "2026-01-31T12:00:00Z"}'
--     penstock push payments '{"customer": "ada", "method": "card", "at": "2026-01-31T12:00:30Z"}'

CREATE QUEUE orders (customer string, amount decimal(18,2), at string) WITH (partitions = 4);
CREATE QUEUE payments (customer string, method string, at string) WITH (partitions = 4);

-- Live rows are in penstock_live.orders_5s. Closed windows are events of the queue orders_5s.
CREATE QUERY orders_5s WITH (allowed_lateness_seconds = 2) AS
INSERT INTO orders_5s
SELECT customer, window(at, '5 seconds') AS w, count(*) AS n, sum(amount) AS total, sum(amount) / count(*) AS mean
FROM orders
GROUP BY customer, window(at, '5 seconds');

-- Totals per day in Rome, without customers whose total is 0.
INSERT INTO orders_daily
SELECT customer, date_trunc('day', from_utc_timestamp(at, 'Europe/Rome')) AS day, sum(amount) AS total
FROM orders
GROUP BY customer, date_trunc('day', from_utc_timestamp(at, 'Europe/Rome'))
HAVING sum(amount) > 0;

-- Orders with their payment within an hour, or without one.
CREATE QUERY settled WITH (allowed_lateness_seconds = 10) AS
INSERT INTO settled
SELECT o.customer, o.amount, p.method
FROM orders o LEFT JOIN payments p
    ON o.customer = p.customer AND p.at BETWEEN o.at AND o.at + INTERVAL '1 hour';

CREATE SINK settled_file FROM settled TO 'file:settled.jsonl';
