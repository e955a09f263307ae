-- name: unread_partitions
-- The partitions of a group with unread events, and their event times so far.
SELECT {queue}::bigint, c.group_id, {segment}::bigint, c.partition_id, t.name, t.is_key_partition, t.sealed_end, p.next_offset,
       h.end_offset, r.high_us, greatest(r.floor_us, q.closed_us) AS floor_us
FROM penstock.cursors c
JOIN penstock.partitions t ON t.id = c.partition_id
JOIN penstock.queries q ON q.id = %(query)s
CROSS JOIN LATERAL penstock.current_position(c.group_id, c.partition_id) p
CROSS JOIN LATERAL (
    SELECT coalesce((SELECT k.end_offset FROM {chunks} k
                     WHERE k.partition_id = t.id ORDER BY k.end_offset DESC LIMIT 1), t.sealed_end) AS end_offset
) h
LEFT JOIN penstock.progress r ON r.query_id = %(query)s AND r.partition_id = c.partition_id
WHERE c.group_id = %(group)s AND c.state = 0 AND h.end_offset > p.next_offset
ORDER BY c.partition_id

-- name: open_segment
SELECT segment FROM penstock.queues WHERE id = %(queue)s

-- name: begin_cycle
-- Only the driver that holds the query gets a number, and no number is given twice.
WITH numbered AS (
    UPDATE penstock.queries SET cycle = cycle + 1, lease_until = clock_timestamp() + %(lease)s
    WHERE id = %(query)s AND fence = %(fence)s RETURNING cycle, closed_us
)
SELECT cycle, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint, closed_us, set_config('synchronous_commit', 'off', true)
FROM numbered

-- name: store_plan
INSERT INTO penstock.cycles (query_id, cycle, fence, plan, planned)
VALUES (%(query)s, %(cycle)s, %(fence)s, %(plan)s, %(planned)s)

-- name: state_rows
-- The rows of the state of a view.
SELECT coalesce(sum(rows), 0)::bigint FROM penstock.state_runs WHERE query_id = %(query)s AND is_current

-- name: query_flags
-- No row if another driver holds the query.
SELECT poison_search, is_paused FROM penstock.queries WHERE id = %(query)s AND fence = %(fence)s

-- name: has_window_due
-- Whether the wall clock closes a window: its partition is idle and its end has passed long enough ago. This runs all
-- the time. statement_timestamp() is a constant to the planner, so that the index skips windows that end later.
SELECT EXISTS (
    SELECT FROM {state} s
    LEFT JOIN penstock.progress r ON r.query_id = %(query)s AND r.partition_id = s.partition_id
    WHERE s.window_end <= statement_timestamp() - %(idle)s - %(wait)s
      AND coalesce(r.last_at, 'epoch') <= statement_timestamp() - %(idle)s
)

-- name: group_epoch
-- The epoch that a group reads, the newest epoch of its queue, and the queue's open segment.
SELECT g.epoch, q.epoch, q.segment FROM penstock.groups g JOIN penstock.queues q ON q.id = g.queue_id
WHERE g.id = %(group)s
