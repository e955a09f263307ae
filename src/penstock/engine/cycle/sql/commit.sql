-- name: configure_connection
-- The merge of a cycle joins thousands of rows, hence work_mem. A commit that was reported must survive a crash of the
-- server, hence synchronous_commit is never off.
SELECT set_config('TimeZone', 'UTC', false),
       set_config('jit', 'off', false),
       set_config('work_mem', '64MB', false),
       set_config('synchronous_commit',
                  CASE current_setting('synchronous_commit') WHEN 'off' THEN 'on'
                                                             ELSE current_setting('synchronous_commit') END, false),
       set_config('idle_in_transaction_session_timeout', %(idle_timeout)s, false)

-- name: lock_query
SELECT q.fence, q.closed_us, clock_timestamp() AS now, q.poison_search,
       EXISTS (SELECT FROM penstock.groups g WHERE g.query_id = q.name AND g.epoch > 0) AS is_repartitioned
FROM penstock.queries q WHERE q.id = %(query)s FOR UPDATE

-- name: lock_cycle
SELECT committed_at IS NOT NULL AS is_committed FROM penstock.cycles
WHERE query_id = %(query)s AND cycle = %(cycle)s AND fence = %(fence)s
FOR UPDATE

-- name: advance_positions
-- Advances positions from the start of a plan to its end. A position that has changed meanwhile is not advanced: the
-- count tells the caller.
WITH held AS MATERIALIZED (
    SELECT w.group_id, w.partition_id, w.stop, p.version, p.row
    FROM unnest(%(groups)s::integer[], %(partitions)s::bigint[], %(starts)s::bigint[], %(stops)s::bigint[])
        AS w (group_id, partition_id, start, stop)
    CROSS JOIN LATERAL (
        SELECT p.version, p.next_offset, p.ctid AS row FROM penstock.positions p
        WHERE p.group_id = w.group_id AND p.partition_id = w.partition_id ORDER BY p.version DESC LIMIT 1
        FOR NO KEY UPDATE
    ) p
    WHERE p.next_offset = w.start
), moved AS (
    INSERT INTO penstock.positions (group_id, partition_id, version, next_offset, lease_end, available_at, moved_at)
    SELECT h.group_id, h.partition_id, h.version + 1, h.stop, h.stop, 'epoch', %(now)s FROM held h
    RETURNING partition_id
), gone AS (
    DELETE FROM penstock.positions p USING held h WHERE p.ctid = h.row
)
SELECT count(*) FROM moved

-- name: store_progress
INSERT INTO penstock.progress AS r (query_id, partition_id, high_us, last_at)
SELECT %(query)s, w.partition_id, w.high_us, penstock.moment(w.last_us)
FROM unnest(%(partitions)s::bigint[], %(highs)s::bigint[], %(lasts)s::bigint[]) AS w (partition_id, high_us, last_us)
ON CONFLICT (query_id, partition_id) DO UPDATE SET
    high_us = greatest(r.high_us, excluded.high_us), last_at = greatest(r.last_at, excluded.last_at)
RETURNING r.partition_id, r.high_us, r.floor_us

-- name: raise_floors
INSERT INTO penstock.progress AS r (query_id, partition_id, floor_us, last_at)
SELECT %(query)s, w.partition_id, w.floor_us, 'epoch'
FROM unnest(%(partitions)s::bigint[], %(floors)s::bigint[]) AS w (partition_id, floor_us)
ON CONFLICT (query_id, partition_id) DO UPDATE SET floor_us = greatest(r.floor_us, excluded.floor_us)

-- name: raise_closed
UPDATE penstock.queries SET closed_us = greatest(closed_us, %(closed)s) WHERE id = %(query)s

-- name: partition_progress
-- The event times of every partition of a group, whether no event has come of late, and whether events are unread. A
-- partition that has had no event counts as quiet from the query's creation on.
SELECT r.high_us, r.floor_us, greatest(r.last_at, q.created_at) <= %(now)s - %(idle)s AS is_quiet,
       coalesce((SELECT k.end_offset FROM {chunks} k
                 WHERE k.partition_id = t.id ORDER BY k.end_offset DESC LIMIT 1), t.sealed_end) > p.next_offset
           AS has_unread
FROM penstock.cursors c
JOIN penstock.partitions t ON t.id = c.partition_id
JOIN penstock.queries q ON q.id = %(query)s
CROSS JOIN LATERAL (
    SELECT p.next_offset FROM penstock.positions p
    WHERE p.group_id = c.group_id AND p.partition_id = c.partition_id ORDER BY p.version DESC LIMIT 1
) p
LEFT JOIN penstock.progress r ON r.query_id = %(query)s AND r.partition_id = c.partition_id
WHERE c.group_id = %(group)s

-- name: unread_partitions
-- The given partitions that have unread events.
SELECT c.partition_id
FROM penstock.cursors c
JOIN penstock.partitions t ON t.id = c.partition_id
CROSS JOIN LATERAL (
    SELECT p.next_offset FROM penstock.positions p
    WHERE p.group_id = c.group_id AND p.partition_id = c.partition_id ORDER BY p.version DESC LIMIT 1
) p
WHERE c.group_id = %(group)s AND c.partition_id = ANY(%(partitions)s::bigint[])
  AND coalesce((SELECT k.end_offset FROM {chunks} k
                WHERE k.partition_id = t.id ORDER BY k.end_offset DESC LIMIT 1), t.sealed_end) > p.next_offset

-- name: finish_cycle
-- Writes a cycle to the ledger and to the totals, which are kept for longer. The time that the cycle waited for the
-- commit of the previous one is not counted.
WITH done AS (
    UPDATE penstock.cycles SET started_at = %(started)s, committed_at = clock_timestamp(), events_in = %(events_in)s,
        events_out = %(events_out)s, windows = %(windows)s, late = %(late)s, dead = %(dead)s, took = %(took)s,
        dropped = %(dropped)s, changes = %(changes)s, oldest_at = %(oldest)s, watermark = %(watermark)s
    WHERE query_id = %(query)s AND cycle = %(cycle)s
    RETURNING extract(epoch FROM committed_at - planned_at)::float8
                  - coalesce((took ->> 'commit before')::float8, 0) / 1000 AS seconds,
              extract(epoch FROM committed_at - oldest_at)::float8 AS age
)
INSERT INTO penstock.query_totals AS t (query_id, cycles, events_in, events_out, windows, late, dead,
                                        cycle_counts, cycle_seconds, fresh_counts, fresh_seconds)
SELECT %(query)s, 1, %(events_in)s, %(events_out)s, %(windows)s, %(late)s, %(dead)s,
       penstock.count_in(NULL, d.seconds), d.seconds, penstock.count_in(NULL, d.age), coalesce(d.age, 0)
FROM done d
ON CONFLICT (query_id) DO UPDATE SET
    cycles = t.cycles + 1, events_in = t.events_in + excluded.events_in,
    events_out = t.events_out + excluded.events_out, windows = t.windows + excluded.windows,
    late = t.late + excluded.late, dead = t.dead + excluded.dead,
    cycle_counts = penstock.count_in(t.cycle_counts, excluded.cycle_seconds),
    cycle_seconds = t.cycle_seconds + excluded.cycle_seconds,
    -- The excluded row counts a single value; 0 means none.
    fresh_counts = penstock.count_in(t.fresh_counts, nullif(excluded.fresh_seconds, 0)),
    fresh_seconds = t.fresh_seconds + excluded.fresh_seconds

-- name: extend_lease
UPDATE penstock.queries SET lease_until = clock_timestamp() + %(lease)s, poison_search = %(poison_search)s
WHERE id = %(query)s

-- name: fail_cycle
WITH failed AS (
    UPDATE penstock.cycles SET error = %(error)s WHERE query_id = %(query)s AND cycle = %(cycle)s
)
INSERT INTO penstock.query_totals AS t (query_id, failed) VALUES (%(query)s, 1)
ON CONFLICT (query_id) DO UPDATE SET failed = t.failed + 1

-- name: store_poison_search
UPDATE penstock.queries SET poison_search = %(poison_search)s WHERE id = %(query)s AND fence = %(fence)s

-- name: delete_old_cycles
DELETE FROM penstock.cycles WHERE query_id = %(query)s AND cycle < %(cycle)s
