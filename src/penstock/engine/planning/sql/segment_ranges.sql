-- name: sealed_segments
-- The sealed segments that hold offsets of the requested ranges.
SELECT r.partition_id, l.segment, l.first_offset, l.end_offset
FROM unnest(%(partitions)s::bigint[], %(starts)s::bigint[], %(stops)s::bigint[]) AS r (partition_id, start, stop)
JOIN penstock.segment_partitions l ON l.partition_id = r.partition_id AND l.end_offset > r.start AND l.first_offset < r.stop
ORDER BY r.partition_id, l.end_offset
