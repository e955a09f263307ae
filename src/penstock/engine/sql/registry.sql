-- name: find
-- With the columns of its live view, once that is made.
SELECT id, description, fingerprint, fields, result, clock_timestamp(), ARRAY (
    SELECT attname::text FROM pg_attribute
    WHERE attrelid = to_regclass(format('penstock_live.%%I', name)) AND attnum > 0 ORDER BY attnum
) FROM penstock.queries WHERE name = %(name)s

-- name: create
INSERT INTO penstock.queries (name, description, fingerprint, sink_queue, history_seconds)
VALUES (%(name)s, %(description)s, %(fingerprint)s, %(sink)s, %(history)s)
ON CONFLICT (name) DO NOTHING
RETURNING id

-- name: is_shared
-- Whether a query of that name is computed by clients of their own.
SELECT id FROM penstock.shared_queries WHERE name = %(name)s

-- name: lock_catalog
-- Queries come and go one at a time: each changes the view over all of them.
SELECT pg_advisory_xact_lock(7812746384129)

-- name: lock
SELECT id, fence, lease_until > clock_timestamp() FROM penstock.queries WHERE name = %(name)s FOR UPDATE

-- name: take
-- The query, if nobody holds it and it was not stopped since; whoever held it before can no longer commit. The number is the time, so that none is
-- given twice, even when a backup is restored that knows nothing of the drivers that came after it.
UPDATE penstock.queries SET fence = greatest(fence + 1, (extract(epoch FROM clock_timestamp()) * 1000)::bigint),
    driver = %(driver)s, lease_until = clock_timestamp() + %(lease)s
WHERE name = %(name)s AND lease_until <= clock_timestamp() AND coalesce(stopped_at < %(since)s, true)
RETURNING id, fence

-- name: keep
UPDATE penstock.queries SET lease_until = clock_timestamp() + %(lease)s
WHERE id = %(query)s AND fence = %(fence)s
RETURNING id

-- name: release
UPDATE penstock.queries SET lease_until = 'epoch', driver = NULL WHERE id = %(query)s AND fence = %(fence)s

-- name: fields
SELECT fields FROM penstock.queries WHERE id = %(query)s

-- name: never_ran
SELECT id FROM penstock.queries WHERE id = %(query)s AND cycle = 0

-- name: set_fields
-- What was known before stays: the tables are made of it.
UPDATE penstock.queries SET fields = %(fields)s::jsonb || coalesce(fields, '{}') WHERE id = %(query)s

-- name: set_result
UPDATE penstock.queries SET result = %(result)s WHERE id = %(query)s

-- name: results
SELECT id, name, result FROM penstock.queries WHERE result IS NOT NULL ORDER BY id

-- name: delete
DELETE FROM penstock.queries WHERE id = %(query)s

-- name: planned
-- The cycle that Spark is about to run: the newest that was planned by this driver.
SELECT plan FROM penstock.cycles
WHERE query_id = %(query)s AND fence = %(fence)s AND committed_at IS NULL AND error IS NULL
ORDER BY cycle DESC LIMIT 1

-- name: plan_anew
-- The same events for another number of tasks.
UPDATE penstock.cycles SET plan = %(plan)s
WHERE query_id = %(query)s AND cycle = %(cycle)s AND fence = %(fence)s AND committed_at IS NULL

-- name: forget_plan
DELETE FROM penstock.cycles
WHERE query_id = %(query)s AND cycle = %(cycle)s AND fence = %(fence)s AND committed_at IS NULL

-- name: suspicion
SELECT suspicion FROM penstock.queries WHERE id = %(query)s

-- name: begin_flush
WITH turned AS (
    UPDATE penstock.queries SET cycle = cycle + 1 WHERE id = %(query)s AND fence = %(fence)s RETURNING cycle
)
INSERT INTO penstock.cycles (query_id, cycle, fence, plan, planned)
SELECT %(query)s, cycle, %(fence)s, %(plan)s, 0 FROM turned RETURNING cycle

-- name: list
SELECT q.id, q.name, q.description, q.sink_queue, q.driver, q.lease_until > clock_timestamp(), q.fence, q.cycle,
       q.created_at, l.committed_at, q.is_paused
FROM penstock.queries q
LEFT JOIN LATERAL (
    SELECT c.committed_at FROM penstock.cycles c
    WHERE c.query_id = q.id AND c.committed_at IS NOT NULL ORDER BY c.cycle DESC LIMIT 1
) l ON true
ORDER BY q.name
