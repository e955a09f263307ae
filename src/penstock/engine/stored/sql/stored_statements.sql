-- name: list
-- A process that runs stored statements marks the rows every two seconds, and a new one within a second.
SELECT s.id, s.name, s.statement, s.author, s.created_at, s.is_dropped, s.error,
       coalesce(s.seen_at > clock_timestamp() - interval '10 seconds', false)
           OR s.created_at > clock_timestamp() - interval '3 seconds' AS is_followed
FROM penstock.stored_statements s
WHERE %(name)s::text IS NULL OR s.name = %(name)s
ORDER BY s.id

-- name: create
-- Returns no row if the name is taken.
INSERT INTO penstock.stored_statements (name, statement, author)
SELECT %(name)s, %(statement)s, %(author)s
WHERE NOT EXISTS (SELECT FROM penstock.queries q WHERE q.name = %(name)s)
ON CONFLICT (name) DO NOTHING
RETURNING id

-- name: drop
UPDATE penstock.stored_statements SET is_dropped = true WHERE name = %(name)s RETURNING id

-- name: mark_seen
UPDATE penstock.stored_statements SET seen_at = clock_timestamp()
WHERE id = ANY(%(ids)s::bigint[]) AND coalesce(seen_at < clock_timestamp() - interval '1 second', true)

-- name: set_error
UPDATE penstock.stored_statements SET error = %(error)s WHERE id = %(id)s AND error IS DISTINCT FROM %(error)s
