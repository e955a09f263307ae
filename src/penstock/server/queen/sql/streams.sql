-- name: lock_catalog
-- As the engine does: a name is taken by one of the two worlds at a time.
SELECT pg_advisory_xact_lock(7812746384129)

-- name: on_spark
SELECT id FROM penstock.queries WHERE name = %(name)s

-- name: find
SELECT id, config_hash, source_queue FROM penstock.shared_queries WHERE name = %(name)s FOR UPDATE

-- name: create
INSERT INTO penstock.shared_queries (name, source_queue, sink_queue, config_hash, group_name)
VALUES (%(name)s, %(source)s, %(sink)s, %(hash)s, %(group)s)
RETURNING id

-- name: change
UPDATE penstock.shared_queries SET source_queue = %(source)s, sink_queue = %(sink)s, config_hash = %(hash)s
WHERE id = %(query)s
  AND (source_queue, sink_queue, config_hash) IS DISTINCT FROM (%(source)s::text, %(sink)s::text, %(hash)s::text)

-- name: wipe
DELETE FROM penstock.shared_state WHERE query_id = %(query)s

-- name: query
SELECT q.name, q.group_name, s.id, s.segment, q.source_queue
FROM penstock.shared_queries q LEFT JOIN penstock.queues s ON s.name = q.source_queue
WHERE q.id = %(query)s

-- name: set_group
UPDATE penstock.shared_queries SET group_name = %(group)s WHERE id = %(query)s AND group_name <> %(group)s

-- name: rows
SELECT s.state_key, s.value::text, s.updated_at FROM penstock.shared_state s
WHERE s.query_id = %(query)s AND s.partition_id = %(partition)s
  AND (cardinality(%(keys)s::text[]) = 0 OR s.state_key = ANY(%(keys)s::text[]))
  AND (%(prefix)s::text IS NULL OR starts_with(s.state_key, %(prefix)s))
  AND (%(ripe)s::numeric IS NULL OR CASE WHEN jsonb_typeof(s.value -> 'windowEnd') = 'number'
                                         THEN (s.value ->> 'windowEnd')::numeric <= %(ripe)s::numeric END)
ORDER BY s.state_key

-- name: busy
-- Whether a group has a partition in its hands, or has yet to read of it.
SELECT p.lease_id IS NOT NULL AND p.available_at > clock_timestamp(),
       p.next_offset < coalesce(
           (SELECT k.end_offset FROM {chunks} k
            WHERE k.partition_id = t.id ORDER BY k.end_offset DESC LIMIT 1), t.sealed_end)
FROM penstock.groups g
JOIN penstock.partitions t ON t.queue_id = g.queue_id
CROSS JOIN LATERAL (
    SELECT * FROM penstock.positions p
    WHERE p.group_id = g.id AND p.partition_id = t.id ORDER BY p.version DESC LIMIT 1
) p
WHERE g.queue_id = %(queue)s AND g.name = %(group)s AND t.id = %(partition)s

-- name: share_queue
SELECT id FROM penstock.queues WHERE id = %(queue)s FOR KEY SHARE

-- name: lock_cursor
SELECT c.partition_id FROM penstock.cursors c JOIN penstock.groups g ON g.id = c.group_id
WHERE g.queue_id = %(queue)s AND g.name = %(group)s AND c.partition_id = %(partition)s
FOR NO KEY UPDATE OF c

-- name: fresh
-- Those of these rows that were written a moment ago: by somebody whom the writer of now has not heard of.
SELECT state_key FROM penstock.shared_state
WHERE query_id = %(query)s AND partition_id = %(partition)s AND state_key = ANY(%(keys)s)
  AND updated_at > clock_timestamp() - make_interval(secs => %(seconds)s)

-- name: upsert
INSERT INTO penstock.shared_state
    (query_id, partition_id, state_key, value, key, window_start, window_end, updated_at)
SELECT %(query)s, %(partition)s, n.state_key, n.value::jsonb, n.key, n.window_start, n.window_end, clock_timestamp()
FROM unnest(%(keys)s::text[], %(values)s::text[], %(shown)s::text[], %(starts)s::timestamptz[], %(ends)s::timestamptz[])
    AS n (state_key, value, key, window_start, window_end)
ORDER BY n.state_key
ON CONFLICT (query_id, partition_id, state_key) DO UPDATE SET
    value = excluded.value, key = excluded.key, window_start = excluded.window_start,
    window_end = excluded.window_end, updated_at = excluded.updated_at

-- name: delete
DELETE FROM penstock.shared_state
WHERE query_id = %(query)s AND partition_id = %(partition)s AND state_key = ANY(%(keys)s)
RETURNING state_key

-- name: release
-- The rest of a batch goes back at once: nobody waits for the end of the lease.
WITH held AS MATERIALIZED (
    SELECT p.ctid AS before, p.* FROM penstock.positions p
    JOIN penstock.groups g ON g.id = p.group_id
    WHERE g.queue_id = %(queue)s AND g.name = %(group)s AND p.partition_id = %(partition)s
    ORDER BY p.version DESC LIMIT 1
),
released AS (
    INSERT INTO penstock.positions
        (group_id, partition_id, version, next_offset, lease_id, lease_end, available_at, attempts, skipped, moved_at,
         expiries, suspect_end)
    SELECT group_id, partition_id, version + 1, next_offset, NULL, next_offset, 'epoch', attempts, skipped, moved_at,
           expiries, suspect_end
    FROM held WHERE lease_id = %(lease)s
    RETURNING partition_id
)
DELETE FROM penstock.positions p USING released r, held h WHERE p.ctid = h.before
