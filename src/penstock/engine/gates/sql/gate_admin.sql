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

-- name: has_queen_views
-- The views of this version, or the tables of Queen itself. The views of earlier versions have no partition_id.
SELECT FROM pg_attribute WHERE attrelid = to_regclass('queen_streams.state') AND attname = 'partition_id'

-- name: create_queen_schema
CREATE SCHEMA IF NOT EXISTS queen_streams

-- name: drop_old_queen_views
DROP VIEW IF EXISTS queen_streams.state, queen_streams.queries

-- name: create_queen_id
-- The UUIDs of penstock.server.queen.identifiers. Kind 2 is a partition, 3 a query of clients, 5 a query on Spark.
CREATE OR REPLACE FUNCTION queen_streams.encode_id(kind integer, number bigint) RETURNS uuid
LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
RETURN ('7073746f636b800' || kind || to_hex('-9223372036854775808'::bigint | number))::uuid

-- name: create_queen_queries
CREATE VIEW queen_streams.queries AS
SELECT queen_streams.encode_id(3, q.id) AS id, q.name, q.source_queue, q.sink_queue, q.config_hash, q.created_at,
       q.created_at AS updated_at
FROM penstock.client_queries q
UNION ALL
SELECT queen_streams.encode_id(5, q.id), q.name, coalesce(
           (SELECT string_agg(k.name, ', ' ORDER BY k.name) FROM penstock.groups g
            JOIN penstock.queues k ON k.id = g.queue_id WHERE g.query_id = q.name), ''),
       q.sink_queue, q.fingerprint, q.created_at, q.created_at
FROM penstock.queries q

-- name: create_queen_state
-- The state of clients as they wrote it, the gates of queries on Spark, and their windows.
CREATE VIEW queen_streams.state AS
SELECT queen_streams.encode_id(3, s.query_id) AS query_id, queen_streams.encode_id(2, s.partition_id) AS partition_id,
       s.state_key COLLATE "default" AS key, s.value, s.updated_at, NULL::integer AS gate
FROM penstock.client_query_state s
UNION ALL
SELECT queen_streams.encode_id(5, q.id),
       (SELECT queen_streams.encode_id(2, min(l.partition_id)) FROM penstock.gate_keys l
        WHERE l.query_id = q.id AND l.key = g.key),
       g.key,
       jsonb_strip_nulls(jsonb_build_object(
           'tokens', g.tokens, 'used', g.used, 'limit', g."limit", 'allowedTotal', g.allowed_total,
           'consumedTotal', floor(g.cost_total)::bigint, 'deniedSince', g.denied_since, 'nextAt', g.next_at)),
       g.updated_at, g.gate
FROM penstock.gates g JOIN penstock.queries q ON q.name = g.query
UNION ALL
SELECT queen_streams.encode_id(5, q.id), NULL, s.key,
       s.value || jsonb_build_object('acc', s.value, 'windowStart', penstock.micros(s.window_start) / 1000,
                                     'windowEnd', penstock.micros(s.window_end) / 1000),
       s.updated_at, NULL
FROM penstock.state s JOIN penstock.queries q ON q.name = s.query
