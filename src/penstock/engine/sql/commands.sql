-- name: pause
UPDATE penstock.queries SET is_paused = true WHERE name = %(name)s RETURNING id

-- name: resume
UPDATE penstock.queries SET is_paused = false WHERE name = %(name)s RETURNING id

-- name: stop
-- Who starts it again wants it to run, so a pause ends too.
UPDATE penstock.queries SET stopped_at = clock_timestamp(), is_paused = false WHERE name = %(name)s RETURNING id

-- name: wanted
SELECT is_paused, coalesce(stopped_at >= %(since)s, false) FROM penstock.queries WHERE id = %(query)s
