-- name: find
-- The array has the columns of the live view, once it exists.
SELECT id, description, fingerprint, result IS NOT NULL, result ->> 'current', clock_timestamp(), ARRAY (
    SELECT attname::text FROM pg_attribute
    WHERE attrelid = to_regclass(format('penstock_live.%%I', name)) AND attnum > 0 ORDER BY attnum
), view IS NOT NULL FROM penstock.queries WHERE name = %(name)s

-- name: create
INSERT INTO penstock.queries (name, description, fingerprint, sink_queue, history_seconds)
VALUES (%(name)s, %(description)s, %(fingerprint)s, %(sink)s, %(history)s)
ON CONFLICT (name) DO NOTHING
RETURNING id

-- name: set_history_retention
UPDATE penstock.queries SET history_seconds = %(history)s WHERE id = %(query)s AND history_seconds <> %(history)s

-- name: find_same_view
-- A query whose view of current windows would have the name of a view of the other.
SELECT q.name FROM penstock.queries q
WHERE q.name = %(name)s || '_current' OR q.name || '_current' = %(name)s

-- name: find_query_named
SELECT id FROM penstock.queries WHERE name = %(name)s

-- name: set_current_view
UPDATE penstock.queries SET result = result || jsonb_build_object('current', %(view)s::text) WHERE id = %(query)s

-- name: find_client_query
-- A query of that name that Queen clients compute.
SELECT id FROM penstock.client_queries WHERE name = %(name)s

-- name: lock_catalog
-- Queries are created and deleted one at a time, because each change replaces the view over all of them.
SELECT pg_advisory_xact_lock(7812746384129)

-- name: lock
SELECT id, lease_until > clock_timestamp(), result ->> 'current' FROM penstock.queries WHERE name = %(name)s FOR UPDATE

-- name: acquire_lease
-- Acquires a free lease, unless the query was stopped since. The previous driver can no longer commit. The fence is the
-- time, so that no number is used twice, not even after a restored backup that does not know of later drivers.
UPDATE penstock.queries SET fence = greatest(fence + 1, (extract(epoch FROM clock_timestamp()) * 1000)::bigint),
    driver = %(driver)s, lease_until = clock_timestamp() + %(lease)s
WHERE id = %(query)s AND name = %(name)s AND fingerprint = %(fingerprint)s AND lease_until <= clock_timestamp()
    AND coalesce(stopped_at < %(since)s, true)
RETURNING fence

-- name: seize_lease
UPDATE penstock.queries SET fence = greatest(fence + 1, (extract(epoch FROM clock_timestamp()) * 1000)::bigint),
    driver = %(driver)s, lease_until = clock_timestamp() + %(lease)s
WHERE id = %(query)s AND fingerprint = %(fingerprint)s
RETURNING fence

-- name: find_registered
SELECT id FROM penstock.queries WHERE id = %(query)s AND name = %(name)s AND fingerprint = %(fingerprint)s

-- name: renew_lease
UPDATE penstock.queries SET lease_until = clock_timestamp() + %(lease)s
WHERE id = %(query)s AND fence = %(fence)s
RETURNING id

-- name: release_lease
UPDATE penstock.queries SET lease_until = CASE WHEN %(stopped)s THEN 'epoch' ELSE clock_timestamp() END, driver = NULL
WHERE id = %(query)s AND fence = %(fence)s AND driver IS NOT NULL

-- name: current_fence
SELECT fence FROM penstock.queries WHERE id = %(query)s

-- name: field_types
SELECT fields FROM penstock.queries WHERE id = %(query)s

-- name: find_without_cycles
SELECT id FROM penstock.queries WHERE id = %(query)s AND cycle = 0

-- name: store_field_types
-- Known types do not change, because the tables have them.
UPDATE penstock.queries SET fields = %(fields)s::jsonb || coalesce(fields, '{}') WHERE id = %(query)s

-- name: set_result
UPDATE penstock.queries SET result = %(result)s WHERE id = %(query)s

-- name: set_view
-- The columns and the key never change. The operators and the limits of the state are those of the last start.
UPDATE penstock.queries SET view = %(view)s::jsonb || coalesce(view - 'operators', '{}') || %(state)s::jsonb
WHERE id = %(query)s

-- name: source_view
-- A view that another query reads. Changes are missing if retention has dropped segments of its changes queue since the
-- view began, unless the reader has its positions. A reader is outdated if the view began again after it.
SELECT q.view, q.sink_queue, q.created_at,
       g.id IS NULL AND q.created_at < (SELECT min(s.created_at) FROM penstock.segments s WHERE s.queue_id = k.id)
       AND EXISTS (
           SELECT FROM penstock.partitions p
           WHERE p.queue_id = k.id AND coalesce((SELECT l.first_offset FROM penstock.segment_partitions l
                 WHERE l.partition_id = p.id ORDER BY l.end_offset LIMIT 1), p.sealed_end) > 0
       ),
       coalesce(g.created_at < q.created_at, false),
       EXISTS (SELECT FROM penstock.queries n WHERE n.name = %(rebuild)s)
FROM penstock.queries q
LEFT JOIN penstock.queues k ON k.name = q.sink_queue
LEFT JOIN penstock.groups g ON g.queue_id = k.id AND g.name = %(reader)s
WHERE q.name = %(name)s AND q.view IS NOT NULL

-- name: readers
-- The views that read a view.
SELECT q.name FROM penstock.queries q WHERE q.view -> 'reads' ? %(name)s ORDER BY q.name

-- name: results
SELECT result FROM penstock.queries WHERE result IS NOT NULL ORDER BY id

-- name: delete
DELETE FROM penstock.queries WHERE id = %(query)s

-- name: delete_stored
DELETE FROM penstock.stored_statements WHERE name = %(name)s RETURNING id

-- name: list
SELECT q.id, q.name, q.description, q.sink_queue, q.driver, q.lease_until > clock_timestamp(), q.fence, q.cycle,
       q.created_at, l.committed_at, q.is_paused, q.lease_until = 'epoch'
FROM penstock.queries q
LEFT JOIN LATERAL (
    SELECT c.committed_at FROM penstock.cycles c
    WHERE c.query_id = q.id AND c.committed_at IS NOT NULL ORDER BY c.cycle DESC LIMIT 1
) l ON true
ORDER BY q.name
