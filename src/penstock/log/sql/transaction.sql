-- name: creation
SELECT created_at FROM penstock.queues WHERE id = %(queue)s

-- name: notify
SELECT pg_notify(%(channel)s, q::text) FROM unnest(%(queues)s::bigint[]) AS q
