-- name: positions
-- The position of a group in each partition. oldest_at is when the first unread event was appended. For a sealed segment
-- only the append time of its last event is known, so the lag is never overstated.
SELECT t.name AS partition, t.id AS partition_id, p.next_offset AS total_consumed, l.is_leased AS lease_active,
       CASE WHEN l.is_leased THEN p.lease_id::text END AS worker_id,
       CASE WHEN p.next_offset > 0 THEN p.moved_at END AS last_consumed_at,
       greatest(h.end_offset - p.next_offset, 0) AS offset_lag, o.oldest_at AS oldest_unconsumed_at,
       round(greatest(coalesce(extract(epoch FROM clock_timestamp() - o.oldest_at), 0), 0), 3)::float8
           AS time_lag_seconds
FROM penstock.cursors c
JOIN penstock.groups g ON g.id = c.group_id
JOIN penstock.partitions t ON t.id = c.partition_id
CROSS JOIN LATERAL penstock.current_position(c.group_id, c.partition_id) p
CROSS JOIN LATERAL (SELECT p.lease_id IS NOT NULL AND p.available_at > clock_timestamp() AS is_leased) l
CROSS JOIN LATERAL (
    SELECT coalesce((SELECT k.end_offset FROM {chunks} k
                     WHERE k.partition_id = t.id ORDER BY k.end_offset DESC LIMIT 1), t.sealed_end) AS end_offset
) h
CROSS JOIN LATERAL (
    SELECT CASE WHEN h.end_offset > p.next_offset THEN coalesce(
        (SELECT s.last_at FROM penstock.segment_partitions s
         WHERE s.partition_id = t.id AND s.end_offset > p.next_offset ORDER BY s.end_offset LIMIT 1),
        (SELECT k.appended_at FROM {chunks} k
         WHERE k.partition_id = t.id AND k.end_offset > p.next_offset ORDER BY k.end_offset LIMIT 1))
    END AS oldest_at
) o
WHERE g.queue_id = %(queue)s AND g.name = %(group)s
ORDER BY t.name
