-- name: bounds
-- Partitions with their first offset, the one after the last, and where the open segment starts.
SELECT p.id, p.name, p.is_key_partition, b.first_offset, coalesce(c.end_offset, p.sealed_end), p.sealed_end
FROM penstock.partitions p
LEFT JOIN LATERAL (
    SELECT k.end_offset FROM {chunks} k WHERE k.partition_id = p.id ORDER BY k.end_offset DESC LIMIT 1
) c ON true
CROSS JOIN LATERAL (
    SELECT coalesce((SELECT l.first_offset FROM penstock.segment_partitions l
                     WHERE l.partition_id = p.id ORDER BY l.end_offset LIMIT 1), p.sealed_end) AS first_offset
) b
WHERE p.queue_id = {queue} AND p.epoch = %(epoch)s AND p.name = ANY(%(names)s::text[])

-- name: oldest_append
-- The time before which every append is committed. An append takes its time after it has locked its table, so only
-- transactions that hold this lock can have an earlier one than now(), which is before the locks are read. The queue may
-- have a segment that its caller does not know yet. The start of transactions of other roles is hidden.
SELECT least(now(), min(coalesce(a.xact_start, now() - interval '5 minutes'))) + %(skew)s
FROM pg_locks l LEFT JOIN pg_stat_activity a ON a.pid = l.pid
WHERE l.locktype = 'relation' AND l.mode = 'RowExclusiveLock' AND l.granted
  AND l.database = (SELECT d.oid FROM pg_database d WHERE d.datname = current_database())
  AND l.relation::regclass::text ~ '^(penstock[.])?chunks_{queue}_[0-9]+$'

-- name: changed
SELECT p.id, p.name, coalesce(c.end_offset, p.sealed_end), b.first_offset,
       coalesce(c.appended_at, nullif(p.sealed_at, 'epoch')) AS last_at
FROM penstock.partitions p
LEFT JOIN LATERAL (
    SELECT k.end_offset, k.appended_at FROM {chunks} k WHERE k.partition_id = p.id ORDER BY k.end_offset DESC LIMIT 1
) c ON true
CROSS JOIN LATERAL (
    SELECT coalesce((SELECT l.first_offset FROM penstock.segment_partitions l
                     WHERE l.partition_id = p.id ORDER BY l.end_offset LIMIT 1), p.sealed_end) AS first_offset
) b
WHERE p.queue_id = {queue} AND p.epoch = %(epoch)s AND p.id > %(after)s
  AND (%(since)s::timestamptz IS NULL OR coalesce(c.appended_at, p.sealed_at) >= %(since)s)
ORDER BY p.id LIMIT %(limit)s
