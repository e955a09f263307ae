-- The record of vitals: one row every ten seconds, for a day.

-- name: is_turn
SELECT coalesce((SELECT v.at IS NOT DISTINCT FROM %(mine)s::timestamptz
                        OR v.at < clock_timestamp() - make_interval(secs => %(seconds)s)
                 FROM penstock.vitals v ORDER BY v.at DESC LIMIT 1), true)

-- name: lock
SELECT pg_advisory_xact_lock(%(lock)s)

-- name: insert
INSERT INTO penstock.vitals (at, pushed, read, results, freshness, backlog, dead, firing)
VALUES (clock_timestamp(), %(pushed)s, %(read)s, %(results)s, %(freshness)s, %(backlog)s, %(dead)s, %(firing)s)
RETURNING at

-- name: delete_old
DELETE FROM penstock.vitals WHERE at < clock_timestamp() - interval '1 day'

-- name: read
-- A step has the time of its end.
SELECT (extract(epoch FROM max(v.at)) * 1000)::bigint AS at,
       avg(v.pushed) AS pushed, avg(v.read) AS read, avg(v.results) AS results, avg(v.freshness) AS freshness,
       avg(v.backlog)::float8 AS backlog, max(v.dead)::float8 AS dead, max(v.firing)::float8 AS firing
FROM penstock.vitals v
WHERE v.at > clock_timestamp() - make_interval(secs => %(seconds)s)
GROUP BY floor(extract(epoch FROM v.at) / %(step)s) ORDER BY 1
