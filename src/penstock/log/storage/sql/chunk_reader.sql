-- name: chunks_between
SELECT k.partition_id, k.end_offset, k.event_count, k.appended_at, k.target_group, k.body
FROM unnest(%(partitions)s::bigint[], %(starts)s::bigint[], %(ends)s::bigint[]) AS w (partition_id, start, stop)
CROSS JOIN LATERAL (
    SELECT * FROM {chunks} c
    WHERE c.partition_id = w.partition_id AND c.end_offset > w.start AND c.end_offset < w.stop + %(longest)s
      AND c.end_offset - c.event_count < w.stop
    -- A chunk holds at least one event, so there are at most as many chunks as events.
    ORDER BY c.end_offset LIMIT w.stop - w.start
) k
ORDER BY k.partition_id, k.end_offset

-- name: first_chunks_between
-- Like chunks_between, but in the order of the ranges, and only up to the chunk that exceeds max_bytes.
SELECT s.partition_id, s.end_offset, s.event_count, s.appended_at, s.target_group, s.body
FROM (
    SELECT w.range_number, k.*, octet_length(k.body) AS size,
           sum(octet_length(k.body)) OVER (ORDER BY w.range_number, k.end_offset ROWS UNBOUNDED PRECEDING) AS total_size
    FROM unnest(%(partitions)s::bigint[], %(starts)s::bigint[], %(ends)s::bigint[])
        WITH ORDINALITY AS w (partition_id, start, stop, range_number)
    CROSS JOIN LATERAL (
        SELECT * FROM {chunks} c
        WHERE c.partition_id = w.partition_id AND c.end_offset > w.start AND c.end_offset < w.stop + %(longest)s
          AND c.end_offset - c.event_count < w.stop
        ORDER BY c.end_offset LIMIT w.stop - w.start
    ) k
) s
WHERE s.total_size - s.size <= %(max_bytes)s::bigint
ORDER BY s.range_number, s.end_offset

-- name: sealed_segment
-- The sealed segment that holds an offset. No row: the offset is in the open segment.
SELECT l.segment, l.end_offset FROM penstock.segment_partitions l
WHERE l.partition_id = %(partition)s AND l.end_offset > %(offset)s ORDER BY l.end_offset LIMIT 1
