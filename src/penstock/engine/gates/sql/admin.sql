-- name: list
SELECT query, key, gate, kind, tokens::float8, used::float8, "limit"::float8, rate::float8, window_seconds::float8,
       allowed_total, cost_total::float8, denied_since, next_at, backlog, paused, hold_until, updated_at
FROM penstock.gates
WHERE (%(query)s::text IS NULL OR query = %(query)s) AND (%(key)s::text IS NULL OR key = %(key)s OR key IS NULL)
  AND (%(search)s::text IS NULL OR strpos(lower(key), lower(%(search)s::text)) > 0)
  AND (NOT %(waiting)s OR denied_since IS NOT NULL OR paused OR hold_until IS NOT NULL)
ORDER BY query, denied_since IS NULL, backlog DESC, key, gate
LIMIT %(limit)s

-- name: rules
SELECT u.gate, u.kind FROM penstock.queries r JOIN penstock.gate_rules u ON u.query_id = r.id
WHERE r.name = %(query)s ORDER BY u.gate

-- name: sink
SELECT coalesce(r.sink_queue, '') FROM penstock.queries r
WHERE r.name = %(query)s AND EXISTS (SELECT FROM penstock.gate_rules u WHERE u.query_id = r.id)

-- name: change
-- A hold of 0 seconds ends the current hold.
INSERT INTO penstock.gate_limits AS l (query, key, gate, amount, rate, window_us, weight, paused, hold_until)
VALUES (%(query)s, %(key)s, %(gate)s, %(amount)s::numeric, %(rate)s::numeric, %(window)s, %(weight)s, %(paused)s,
        clock_timestamp() + make_interval(secs => nullif(%(hold)s::float8, 0)))
ON CONFLICT (query, key, gate) DO UPDATE SET
    amount = coalesce(excluded.amount, l.amount), rate = coalesce(excluded.rate, l.rate),
    window_us = coalesce(excluded.window_us, l.window_us), weight = coalesce(excluded.weight, l.weight),
    paused = coalesce(excluded.paused, l.paused),
    hold_until = CASE WHEN %(hold)s::float8 = 0 AND l.hold_until > clock_timestamp() THEN clock_timestamp()
                      ELSE coalesce(excluded.hold_until, l.hold_until) END,
    changed_at = clock_timestamp()

-- name: clear
DELETE FROM penstock.gate_limits WHERE query = %(query)s AND key = %(key)s

-- name: has_queen_schema
SELECT to_regnamespace('queen_streams') IS NOT NULL

-- name: create_queen_schema
CREATE SCHEMA queen_streams

-- name: create_queen_queries
CREATE VIEW queen_streams.queries AS
SELECT q.id, q.name, q.created_at FROM penstock.queries q

-- name: create_queen_state
CREATE VIEW queen_streams.state AS
SELECT q.id AS query_id, g.key, g.gate,
       jsonb_strip_nulls(jsonb_build_object(
           'tokens', g.tokens, 'used', g.used, 'limit', g."limit", 'allowedTotal', g.allowed_total,
           'consumedTotal', floor(g.cost_total)::bigint, 'deniedSince', g.denied_since, 'nextAt', g.next_at)) AS value,
       g.updated_at
FROM penstock.gates g JOIN penstock.queries q ON q.name = g.query
