-- name: chunks_between
SELECT k.partition_id, k.end_offset, k.event_count, k.appended_at, k.target_group, k.body
FROM unnest(%(partitions)s::bigint[], %(starts)s::bigint[], %(ends)s::bigint[]) AS w (partition_id, start, stop)
CROSS JOIN LATERAL (
    SELECT * FROM {chunks} c
    WHERE c.partition_id = w.partition_id AND c.end_offset > w.start AND c.end_offset < w.stop + %(longest)s
      AND c.end_offset - c.event_count < w.stop
    -- No chunk is empty, so there are no more of them than events.
    ORDER BY c.end_offset LIMIT w.stop - w.start
) k
ORDER BY k.partition_id, k.end_offset

-- name: first_chunks_between
-- The same in the order of the ranges, up to the one with which they are larger than so many bytes.
SELECT s.partition_id, s.end_offset, s.event_count, s.appended_at, s.target_group, s.body
FROM (
    SELECT w.place, k.*, octet_length(k.body) AS size,
           sum(octet_length(k.body)) OVER (ORDER BY w.place, k.end_offset ROWS UNBOUNDED PRECEDING) AS so_far
    FROM unnest(%(partitions)s::bigint[], %(starts)s::bigint[], %(ends)s::bigint[])
        WITH ORDINALITY AS w (partition_id, start, stop, place)
    CROSS JOIN LATERAL (
        SELECT * FROM {chunks} c
        WHERE c.partition_id = w.partition_id AND c.end_offset > w.start AND c.end_offset < w.stop + %(longest)s
          AND c.end_offset - c.event_count < w.stop
        ORDER BY c.end_offset LIMIT w.stop - w.start
    ) k
) s
WHERE s.so_far - s.size <= %(most)s::bigint
ORDER BY s.place, s.end_offset

-- name: segment_of
-- The segment that holds the event at an offset; no row, if it is the open one.
SELECT l.segment, l.end_offset FROM penstock.segment_lanes l
WHERE l.partition_id = %(partition)s AND l.end_offset > %(offset)s ORDER BY l.end_offset LIMIT 1

-- name: partition
SELECT name, is_lane FROM penstock.partitions WHERE id = %(partition)s
