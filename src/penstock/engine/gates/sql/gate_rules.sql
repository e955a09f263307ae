-- name: store_rule
-- Returns a row if the gate has changed.
INSERT INTO penstock.gate_rules AS u (query_id, gate, kind, amount, rate, window_us, group_name, shared)
VALUES (%(query)s, %(gate)s, %(kind)s, %(amount)s, %(rate)s, %(window)s, %(group)s, %(shared)s)
ON CONFLICT (query_id, gate) DO UPDATE SET kind = excluded.kind, amount = excluded.amount, rate = excluded.rate,
    window_us = excluded.window_us, group_name = excluded.group_name, shared = excluded.shared
WHERE (u.kind, u.amount, u.rate, u.window_us, u.group_name, u.shared)
    IS DISTINCT FROM (excluded.kind, excluded.amount, excluded.rate, excluded.window_us, excluded.group_name, excluded.shared)
RETURNING u.gate

-- name: delete_rules
DELETE FROM penstock.gate_rules WHERE query_id = %(query)s AND gate > %(gates)s

-- name: settle_gates
SELECT penstock.settle_gates(ARRAY[%(name)s], ARRAY[''], NULL)

-- name: resume_all
-- A driver starts with an empty buffer, so it resumes the partitions that are parked until a time or until now.
WITH woken AS (
    UPDATE penstock.gate_keys SET wakes_at = NULL
    WHERE query_id = %(query)s AND wakes_at <= greatest(clock_timestamp(), penstock.moment(%(until)s))
)
UPDATE penstock.cursors c SET state = 0
WHERE c.group_id = %(group)s AND c.state = 3 AND NOT EXISTS (
    SELECT FROM penstock.gate_keys l
    WHERE l.query_id = %(query)s AND l.partition_id = c.partition_id
      AND l.wakes_at > greatest(clock_timestamp(), penstock.moment(%(until)s))
)
