-- name: share_queue
SELECT id FROM penstock.queues WHERE id = %(queue)s FOR KEY SHARE

-- name: lock_cursor
SELECT c.partition_id FROM penstock.cursors c JOIN penstock.groups g ON g.id = c.group_id
WHERE g.queue_id = %(queue)s AND g.name = %(group)s AND c.partition_id = %(partition)s
FOR NO KEY UPDATE OF c

-- name: count
-- Records the group that the workers read as, adds the cycle to the totals, and returns the time in milliseconds.
WITH changed AS (
    UPDATE penstock.client_queries SET group_name = %(group)s WHERE id = %(query)s AND group_name <> %(group)s
)
INSERT INTO penstock.client_query_totals AS t
    (query_id, partition_id, cycles, events_in, events_out, windows, dead, committed_at, period, period_events)
VALUES (%(query)s, %(partition)s, 1, %(events)s, %(outputs)s, %(windows)s, %(dead)s, clock_timestamp(),
        penstock.rate_period(), %(events)s)
ON CONFLICT (query_id, partition_id) DO UPDATE SET
    cycles = t.cycles + 1, events_in = t.events_in + excluded.events_in,
    events_out = t.events_out + excluded.events_out, windows = t.windows + excluded.windows,
    dead = t.dead + excluded.dead, committed_at = excluded.committed_at, period = excluded.period,
    period_events = excluded.period_events + CASE WHEN t.period = excluded.period THEN t.period_events ELSE 0 END,
    previous_events = CASE t.period WHEN excluded.period THEN t.previous_events
                                    WHEN excluded.period - 1 THEN t.period_events ELSE 0 END
RETURNING penstock.micros(committed_at) / 1000

-- name: release_lease
-- Makes the rest of the batch available at once.
WITH held AS MATERIALIZED (
    SELECT p.ctid AS before, p.* FROM penstock.positions p
    JOIN penstock.groups g ON g.id = p.group_id
    WHERE g.queue_id = %(queue)s AND g.name = %(group)s AND p.partition_id = %(partition)s
    ORDER BY p.version DESC LIMIT 1
),
released AS (
    INSERT INTO penstock.positions
        (group_id, partition_id, version, next_offset, lease_id, lease_end, available_at, attempts, failures, skipped,
         moved_at, expiries, suspect_end, redelivered_end)
    SELECT group_id, partition_id, version + 1, next_offset, NULL, next_offset, 'epoch', attempts, failures, skipped,
           moved_at, expiries, suspect_end, greatest(redelivered_end, lease_end)
    FROM held WHERE lease_id = %(lease)s
    RETURNING partition_id
)
DELETE FROM penstock.positions p USING released r, held h WHERE p.ctid = h.before
