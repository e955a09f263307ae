-- name: pause
UPDATE penstock.queries SET is_paused = true WHERE name = %(name)s RETURNING id

-- name: resume
UPDATE penstock.queries SET is_paused = false WHERE name = %(name)s RETURNING id

-- name: stop
-- A stop also ends a pause, so that the query runs when it is started again. A query that has failed is stopped as well.
UPDATE penstock.queries SET stopped_at = clock_timestamp(), is_paused = false,
    lease_until = CASE WHEN lease_until > clock_timestamp() THEN lease_until ELSE 'epoch' END
WHERE name = %(name)s RETURNING id

-- name: read_commands
SELECT is_paused, coalesce(stopped_at >= %(since)s, false) FROM penstock.queries WHERE id = %(query)s
