-- name: has_schema
SELECT to_regclass('penstock.queues') IS NOT NULL

-- name: created_at
SELECT created_at FROM penstock.queues WHERE id = %(queue)s

-- name: notify
SELECT pg_notify(%(channel)s, q::text) FROM unnest(%(queues)s::bigint[]) AS q
