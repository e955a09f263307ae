-- name: queue
SELECT q.id, q.name, q.partitioning, q.partition_count, q.epoch, q.segment, q.lease_seconds, q.retry_limit,
       q.retry_delay_ms, q.delay_seconds, q.retention_seconds, q.retention_drops_unread, q.dedup_window_seconds,
       q.max_depth_events, q.max_event_bytes, q.max_redrives, q.partitions_warned_at, q.created_at, q.expiry_limit,
       q.overflow, q.away_seconds, q.key_field, q.id_field, q.time_field, q.encrypted, q.quiet_seconds, q.max_unread_events,
       q.invalid_events, q.readable_from_sql,
       ARRAY(SELECT s.segment FROM penstock.segments s WHERE s.queue_id = q.id AND s.has_ids ORDER BY s.segment DESC)
FROM penstock.queues q WHERE q.name = %(name)s

-- name: queue_names
SELECT name FROM penstock.queues ORDER BY name

-- name: create_queue
-- The other options have the defaults of the table until they are configured.
INSERT INTO penstock.queues (name, partitioning, partition_count, dedup_window_seconds)
VALUES (%(name)s, %(partitioning)s, %(partition_count)s, %(dedup_window_seconds)s)
ON CONFLICT (name) DO NOTHING
RETURNING id

-- name: configure_queue
UPDATE penstock.queues SET
    lease_seconds = %(lease_seconds)s, retry_limit = %(retry_limit)s, retry_delay_ms = %(retry_delay_ms)s,
    delay_seconds = %(delay_seconds)s, retention_seconds = %(retention_seconds)s,
    retention_drops_unread = %(retention_drops_unread)s, dedup_window_seconds = %(dedup_window_seconds)s,
    max_depth_events = %(max_depth_events)s, max_event_bytes = %(max_event_bytes)s, max_redrives = %(max_redrives)s,
    expiry_limit = %(expiry_limit)s, overflow = %(overflow)s, away_seconds = %(away_seconds)s,
    key_field = %(key_field)s, id_field = %(id_field)s, time_field = %(time_field)s, quiet_seconds = %(quiet_seconds)s,
    max_unread_events = %(max_unread_events)s, invalid_events = %(invalid_events)s, encrypted = %(encrypted)s,
    readable_from_sql = %(readable_from_sql)s
WHERE id = %(queue)s

-- name: lock_queue
SELECT id FROM penstock.queues WHERE id = %(queue)s FOR UPDATE

-- name: create_segment
INSERT INTO penstock.segments (queue_id, segment, has_ids, created_at)
VALUES (%(queue)s, %(segment)s, true, clock_timestamp() + %(skew)s)

-- name: make_segment
SELECT penstock.make_segment(%(queue)s::integer, %(segment)s::integer)

-- name: drop_chunks_table
SELECT penstock.drop_chunks({queue}, {segment})

-- name: drop_ids_table
SELECT penstock.drop_ids({queue}, {segment})

-- name: segments
SELECT segment FROM penstock.segments WHERE queue_id = %(queue)s ORDER BY segment

-- name: lock_cursors
-- Every running operation holds a lock on a cursor or a partition, so none is running after these locks.
SELECT c.group_id FROM penstock.cursors c JOIN penstock.groups g ON g.id = c.group_id
WHERE g.queue_id = %(queue)s ORDER BY c.group_id, c.partition_id FOR UPDATE OF c

-- name: lock_groups
SELECT id FROM penstock.groups WHERE queue_id = %(queue)s ORDER BY id FOR UPDATE

-- name: lock_partitions
SELECT id FROM penstock.partitions WHERE queue_id = %(queue)s ORDER BY id FOR UPDATE

-- name: delete_positions
DELETE FROM penstock.positions p USING penstock.groups g WHERE g.queue_id = %(queue)s AND p.group_id = g.id

-- name: delete_inbox
-- Pushes from SQL that were not moved yet. The mover drops those that commit later.
WITH ordered AS (DELETE FROM penstock.inbox_order WHERE queue_id = %(queue)s)
DELETE FROM penstock.inbox WHERE queue_id = %(queue)s

-- name: delete_queue
DELETE FROM penstock.queues WHERE id = %(queue)s

-- name: partition_ids
SELECT name, id FROM penstock.partitions
WHERE queue_id = %(queue)s AND epoch = %(epoch)s AND name = ANY(%(names)s)

-- name: create_partitions
-- In the order of the names, so that two processes that create the same partitions cannot deadlock.
INSERT INTO penstock.partitions (queue_id, epoch, name, is_key_partition)
SELECT %(queue)s, %(epoch)s, n, %(is_key_partition)s FROM unnest(%(names)s::text[]) AS n ORDER BY n
ON CONFLICT (queue_id, epoch, name) DO NOTHING
RETURNING name, id

-- name: share_groups
-- Keeps groups from moving to another epoch until the transaction ends.
SELECT id FROM penstock.groups WHERE queue_id = %(queue)s ORDER BY id FOR KEY SHARE

-- name: subscribe_partitions
-- Creates a cursor at the start of the new partitions for every group of the queue.
WITH made AS (
    INSERT INTO penstock.cursors (group_id, partition_id, state)
    SELECT g.id, p.id, CASE WHEN g.epoch < %(epoch)s THEN 2 ELSE 0 END
    FROM penstock.groups g CROSS JOIN unnest(%(partitions)s::bigint[]) AS p (id)
    WHERE g.queue_id = %(queue)s
    ON CONFLICT DO NOTHING
    RETURNING group_id, partition_id
)
INSERT INTO penstock.positions (group_id, partition_id, version, next_offset, lease_end, available_at)
SELECT group_id, partition_id, 0, 0, 0, 'epoch' FROM made

-- name: mark_partitions_warned
UPDATE penstock.queues SET partitions_warned_at = clock_timestamp()
WHERE id = %(queue)s AND partitions_warned_at IS NULL
  AND (SELECT count(*) FROM penstock.partitions p WHERE p.queue_id = %(queue)s AND p.epoch = %(epoch)s) > %(limit)s
RETURNING id

-- name: epoch
-- Whether the partitions of an epoch are key partitions, and their number if not.
SELECT f.is_key_partition, CASE WHEN NOT f.is_key_partition THEN
       (SELECT count(*) FROM penstock.partitions p WHERE p.queue_id = %(queue)s AND p.epoch = %(epoch)s) END
FROM (SELECT p.is_key_partition FROM penstock.partitions p WHERE p.queue_id = %(queue)s AND p.epoch = %(epoch)s LIMIT 1) f

-- name: partitions_of_all_epochs
SELECT id FROM penstock.partitions WHERE queue_id = %(queue)s AND name = %(name)s ORDER BY epoch

-- name: make_append
SELECT penstock.make_append(%(queue)s::integer, %(segment)s::integer)

-- name: queues_without_append
SELECT q.name FROM penstock.queues q
WHERE to_regproc(format('penstock.append_%s_%s', q.id, q.segment)) IS NULL

-- name: drop_append
SELECT penstock.drop_append({queue}, {segment})
