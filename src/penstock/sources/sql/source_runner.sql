-- name: create
INSERT INTO penstock.sources (name, kind, queue) VALUES (%(name)s, %(kind)s, %(queue)s) ON CONFLICT (name) DO NOTHING

-- name: position
SELECT queue, position FROM penstock.sources WHERE name = %(name)s

-- name: lock
SELECT position FROM penstock.sources WHERE name = %(name)s FOR NO KEY UPDATE

-- name: advance
UPDATE penstock.sources
SET position = %(position)s::jsonb, events = events + %(events)s, rejected = rejected + %(rejected)s,
    updated_at = clock_timestamp()
WHERE name = %(name)s

-- name: list
SELECT name, kind, queue, position, events, rejected, updated_at FROM penstock.sources ORDER BY name

-- name: delete
DELETE FROM penstock.sources WHERE name = %(name)s
