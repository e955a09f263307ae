-- name: lock_partitions
-- Always in the order of the ids, so that two pushes cannot deadlock.
SELECT id FROM penstock.partitions WHERE id = ANY(%(partitions)s::bigint[]) ORDER BY id FOR NO KEY UPDATE

-- name: append
SELECT * FROM penstock.append_{suffix}(
    %(partitions)s::bigint[], %(counts)s::integer[], %(after)s::integer[], %(starts)s::integer[],
    %(sizes)s::integer[], %(bodies)b,
    %(skew)s, %(flush)s, %(epoch)s::integer, _at => %(at)s::timestamptz)

-- name: append_with_ids
-- Like append, with ids for deduplication or with chunks for a single group.
SELECT * FROM penstock.append_{suffix}(
    %(partitions)s::bigint[], %(counts)s::integer[], %(after)s::integer[], %(starts)s::integer[],
    %(sizes)s::integer[], %(bodies)b,
    %(skew)s, %(flush)s, %(epoch)s::integer,
    %(targets)s::integer[], %(hashes)s::uuid[], %(slots)s::integer[], %(places)s::bigint[],
    %(id_segments)s::integer[], %(at)s::timestamptz)

-- name: was_flushed
-- After a lost connection: the chunks of the flush, if it was committed. The partitions are locked, so it is not
-- running any more.
SELECT c.partition_id, c.end_offset, c.event_count
FROM unnest(%(partitions)s::bigint[]) AS w (partition_id)
CROSS JOIN LATERAL (
    SELECT * FROM {chunks} c WHERE c.partition_id = w.partition_id ORDER BY c.end_offset DESC LIMIT 100000
) c
WHERE c.flush_id = %(flush)s
ORDER BY c.partition_id, c.end_offset

-- name: stored_ids
SELECT i.hash, i.event_offset FROM {ids} i WHERE i.hash = ANY(%(hashes)s::uuid[])

-- name: still_in_window
-- Of stored ids, those whose event is younger than the window or has been dropped.
SELECT w.ordinal FROM unnest(%(partitions)s::bigint[], %(offsets)s::bigint[])
    WITH ORDINALITY AS w (partition_id, event_offset, ordinal)
LEFT JOIN LATERAL (
    SELECT c.appended_at FROM {chunks} c
    WHERE c.partition_id = w.partition_id AND c.end_offset > w.event_offset ORDER BY c.end_offset LIMIT 1
) c ON true
WHERE c.appended_at IS NULL
   OR c.appended_at > clock_timestamp() + %(skew)s - make_interval(secs => %(window)s)
