-- name: heads
-- The partitions of a group that have something unread, with how far their time had come.
SELECT c.partition_id, t.name, t.is_lane, t.sealed_end, p.next_offset, h.end_offset, r.high_us,
       greatest(r.floor_us, q.closed_us) AS floor_us
FROM penstock.cursors c
JOIN penstock.partitions t ON t.id = c.partition_id
JOIN penstock.queries q ON q.id = %(query)s
CROSS JOIN LATERAL (
    SELECT p.next_offset FROM penstock.positions p
    WHERE p.group_id = c.group_id AND p.partition_id = c.partition_id ORDER BY p.version DESC LIMIT 1
) p
CROSS JOIN LATERAL (
    SELECT coalesce((SELECT k.end_offset FROM {chunks} k
                     WHERE k.partition_id = t.id ORDER BY k.end_offset DESC LIMIT 1), t.sealed_end) AS end_offset
) h
LEFT JOIN penstock.progress r ON r.query_id = %(query)s AND r.partition_id = c.partition_id
WHERE c.group_id = %(group)s AND c.state = 0 AND h.end_offset > p.next_offset
ORDER BY c.partition_id

-- name: stretches
-- Which sealed segments hold the offsets of a partition from one on.
SELECT w.partition_id, l.segment, l.first_offset, l.end_offset
FROM unnest(%(partitions)s::bigint[], %(starts)s::bigint[], %(stops)s::bigint[]) AS w (partition_id, start, stop)
JOIN penstock.segment_lanes l ON l.partition_id = w.partition_id AND l.end_offset > w.start AND l.first_offset < w.stop
ORDER BY w.partition_id, l.end_offset

-- name: queue
SELECT id, segment, epoch FROM penstock.queues WHERE id = %(queue)s

-- name: begin_cycle
-- The number is used once, whoever drives; only the driver that holds the query gets one.
WITH turned AS (
    UPDATE penstock.queries SET cycle = cycle + 1, lease_until = clock_timestamp() + %(lease)s
    WHERE id = %(query)s AND fence = %(fence)s RETURNING cycle
)
SELECT cycle, set_config('synchronous_commit', 'off', true) FROM turned

-- name: store_plan
INSERT INTO penstock.cycles (query_id, cycle, fence, plan, planned)
VALUES (%(query)s, %(cycle)s, %(fence)s, %(plan)s, %(planned)s)

-- name: renew
UPDATE penstock.queries SET lease_until = clock_timestamp() + %(lease)s
WHERE id = %(query)s AND fence = %(fence)s
RETURNING id

-- name: look
-- Whether the query is still this driver's, what is suspected, and whether it is paused.
SELECT suspicion, is_paused FROM penstock.queries WHERE id = %(query)s AND fence = %(fence)s

-- name: due
-- Whether a window is open whose end has passed for so long that the clock closes it, in a partition that is idle. Asked
-- all the time: by the time of the statement, so that the windows that are open for longer are not looked at.
SELECT EXISTS (
    SELECT FROM {state} s
    LEFT JOIN penstock.progress r ON r.query_id = %(query)s AND r.partition_id = s.partition_id
    WHERE s.window_end <= statement_timestamp() - %(idle)s - %(wait)s
      AND coalesce(r.last_at, 'epoch') <= statement_timestamp() - %(idle)s
)

-- name: epochs
-- Of which epoch a group reads, and which is the queue's newest.
SELECT g.epoch, q.epoch, q.segment FROM penstock.groups g JOIN penstock.queues q ON q.id = g.queue_id
WHERE g.id = %(group)s
