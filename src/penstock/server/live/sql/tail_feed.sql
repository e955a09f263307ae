-- name: partition_ends
-- The end offset of each partition of a queue, or of some partitions.
SELECT t.id, t.name, t.is_key_partition AS is_key_partition, t.sealed_end,
       coalesce((SELECT k.end_offset FROM {chunks} k
                 WHERE k.partition_id = t.id ORDER BY k.end_offset DESC LIMIT 1), t.sealed_end) AS end_offset
FROM penstock.partitions t
WHERE t.queue_id = %(queue)s AND (%(names)s::text[] IS NULL OR t.name = ANY(%(names)s))
ORDER BY t.id
