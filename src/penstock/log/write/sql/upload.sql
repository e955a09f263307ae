-- name: begin
INSERT INTO penstock.uploads (queue_id, seen_at, writer, version)
VALUES (%(queue)s, clock_timestamp() + %(skew)s, %(writer)s, %(version)s) RETURNING id

-- name: record_activity
UPDATE penstock.uploads SET seen_at = clock_timestamp() + %(skew)s WHERE id = %(upload)s

-- name: stage
-- Stores rows under the negative id of the upload, where no reader finds them. It stores none if the upload was deleted,
-- because nobody would delete the rows.
INSERT INTO {chunks} (partition_id, end_offset, event_count, appended_at, flush_id, body)
SELECT -u.id, i.number, i.event_count, 'epoch', %(flush)s::uuid, substr(%(bodies)b, i.start, i.size)
FROM (SELECT id FROM penstock.uploads WHERE id = %(upload)s::bigint FOR KEY SHARE) u
CROSS JOIN unnest(%(numbers)s::bigint[], %(counts)s::integer[], %(starts)s::integer[], %(sizes)s::integer[])
    AS i (number, event_count, start, size)

-- name: take
-- Takes uploads, so that upkeep does not delete their rows. No row: upkeep has deleted the upload before.
DELETE FROM penstock.uploads WHERE id = ANY(%(uploads)s::bigint[]) RETURNING id

-- name: uploads_of_write
-- The uploads of a write that are not part of its commit, of tasks that ran twice or failed.
SELECT id FROM penstock.uploads
WHERE queue_id = %(queue)s AND writer = %(writer)s AND version <= %(version)s
ORDER BY id FOR UPDATE

-- name: claim_write
INSERT INTO penstock.staged_writes (queue_id, writer, version, run, is_kept, events, written_at)
VALUES (%(queue)s, %(writer)s, -1, %(run)s, %(is_kept)s, 0, clock_timestamp() + %(skew)s)
ON CONFLICT DO NOTHING

-- name: last_write
SELECT version, run FROM penstock.staged_writes WHERE queue_id = %(queue)s AND writer = %(writer)s FOR NO KEY UPDATE

-- name: record_write
UPDATE penstock.staged_writes
SET version = %(version)s, run = %(run)s, events = %(events)s, written_at = clock_timestamp() + %(skew)s
WHERE queue_id = %(queue)s AND writer = %(writer)s

-- name: delete_expired_writes
DELETE FROM penstock.staged_writes WHERE NOT is_kept AND written_at < clock_timestamp() - interval '24 hours'

-- name: is_current
SELECT EXISTS (SELECT FROM penstock.queues WHERE id = {queue} AND segment = {segment} AND epoch = %(epoch)s)

-- name: wake_cursors
UPDATE penstock.cursors c SET state = 0 WHERE c.partition_id = ANY(%(partitions)s::bigint[]) AND c.state = 1

-- name: publish
-- Sets partition and offset of the rows. The partitions are locked. The bodies are stored apart and not rewritten.
WITH heads AS MATERIALIZED (
    SELECT w.partition_id, h.end_offset, greatest(h.appended_at, clock_timestamp() + %(skew)s) AS appended_at
    FROM unnest(%(partitions)s::bigint[]) AS w (partition_id)
    CROSS JOIN LATERAL (
        (SELECT c.end_offset, c.appended_at FROM {chunks} c
         WHERE c.partition_id = w.partition_id ORDER BY c.end_offset DESC LIMIT 1)
        UNION ALL
        SELECT p.sealed_end, p.sealed_at FROM penstock.partitions p WHERE p.id = w.partition_id
        LIMIT 1
    ) h
)
UPDATE {chunks} c SET partition_id = h.partition_id, end_offset = h.end_offset + n.after, appended_at = h.appended_at
FROM unnest(%(numbers)s::bigint[], %(targets)s::bigint[], %(afters)s::bigint[]) AS n (number, target, after)
JOIN heads h ON h.partition_id = n.target
WHERE c.partition_id = -%(upload)s::bigint AND c.end_offset = n.number

-- name: move
-- Moves the rows to the open segment.
WITH gone AS (
    DELETE FROM penstock.chunks_{queue}_{from_segment} c WHERE c.partition_id = -%(upload)s RETURNING c.*
)
INSERT INTO {chunks} SELECT * FROM gone

-- name: discard
DELETE FROM {chunks} c WHERE c.partition_id = -%(upload)s::bigint

-- name: abandoned
-- Uploads without recent activity.
SELECT u.id FROM penstock.uploads u
WHERE u.queue_id = %(queue)s AND u.seen_at < clock_timestamp() + %(skew)s - make_interval(secs => %(seconds)s)
ORDER BY u.id FOR UPDATE SKIP LOCKED
