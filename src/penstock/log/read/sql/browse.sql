-- name: newest_chunks
-- The newest chunks of a queue in this segment, newest first. Each partition's index is read from its end, so that
-- older chunks are not visited.
SELECT p.name, p.is_key_partition, p.id, c.end_offset, c.event_count, c.appended_at, c.target_group, c.body
FROM penstock.partitions p
CROSS JOIN LATERAL (
    SELECT k.end_offset, k.event_count, k.appended_at, k.target_group, k.body FROM {chunks} k
    WHERE k.partition_id = p.id
      AND (%(since)s::timestamptz IS NULL OR k.appended_at >= %(since)s)
      AND (%(until)s::timestamptz IS NULL OR k.appended_at < %(until)s)
    ORDER BY k.end_offset DESC LIMIT %(limit)s + %(offset)s
) c
WHERE p.queue_id = %(queue)s AND (%(partition)s::text IS NULL OR p.name = %(partition)s)
ORDER BY c.appended_at DESC, p.id, c.end_offset DESC
LIMIT %(limit)s OFFSET %(offset)s

-- name: is_of_queue
SELECT 1 FROM penstock.partitions WHERE id = %(partition)s AND queue_id = %(queue)s

-- name: segments_between
SELECT segment FROM penstock.segments
WHERE queue_id = %(queue)s
  AND (%(since)s::timestamptz IS NULL OR sealed_at IS NULL OR sealed_at >= %(since)s)
  AND (%(until)s::timestamptz IS NULL OR created_at < %(until)s)
ORDER BY segment DESC

-- name: table_pages
SELECT pg_relation_size('{chunks}') / current_setting('block_size')::bigint

-- name: chunks_in_pages
-- The chunks in some pages of the table, newest first. Chunks of unfinished uploads have no partition.
SELECT p.id, p.name, p.is_key_partition, c.end_offset
FROM {chunks} c JOIN penstock.partitions p ON p.id = c.partition_id
WHERE c.ctid >= %(first)s::tid AND c.ctid < %(last)s::tid
ORDER BY c.appended_at DESC, c.partition_id, c.end_offset DESC

-- name: chunk
SELECT partition_id, end_offset, event_count, appended_at, target_group, body FROM {chunks}
WHERE partition_id = %(partition)s AND end_offset = %(end)s
