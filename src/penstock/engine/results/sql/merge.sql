-- Times are copied as microseconds and converted where they are used. A function would be called for each row, and text
-- takes longer to read.

-- name: create_staging_table
-- A cycle's partial aggregates are copied here. The table is temporary and empty after each commit.
CREATE TEMPORARY TABLE IF NOT EXISTS part_{id} (
    key text COLLATE "C" NOT NULL, start_us bigint NOT NULL, end_us bigint NOT NULL, is_late boolean NOT NULL,
    partition_id bigint NOT NULL, {staged}
) ON COMMIT DELETE ROWS

-- name: copy_partials
COPY part_{id} (key, start_us, end_us, is_late, partition_id, {names}) FROM STDIN (FORMAT csv)

-- name: merge_open
-- Merges the partials of windows that stay open.
INSERT INTO penstock.state_{id} AS s (key, window_start, window_end, partition_id, {names}, updated_at)
SELECT p.key, {start}, {end}, p.partition_id, {reads}, %(now)s
FROM part_{id} p
LEFT JOIN unnest(%(partitions)s::bigint[], %(ends)s::bigint[]) AS b (partition_id, end_us)
    ON b.partition_id = p.partition_id
WHERE p.is_late = %(late)s AND (b.end_us IS NULL OR p.end_us > b.end_us)
ON CONFLICT (window_end, key, window_start) DO UPDATE SET
    partition_id = greatest(s.partition_id, excluded.partition_id), {merges}, updated_at = excluded.updated_at

-- name: move_open_sessions
-- Moves the rows of open sessions that were extended or merged.
WITH old AS (
    DELETE FROM penstock.state_{id} s
    USING unnest(%(keys)s::text[], %(old_starts)s::bigint[], %(old_ends)s::bigint[], %(starts)s::bigint[],
                 %(ends)s::bigint[]) AS m (key, old_start_us, old_end_us, start_us, end_us)
    WHERE s.key = m.key AND s.window_start = penstock.moment(m.old_start_us)
      AND s.window_end = penstock.moment(m.old_end_us)
    RETURNING s.key, m.start_us, m.end_us, s.partition_id, {old_names}
)
INSERT INTO penstock.state_{id} AS s (key, window_start, window_end, partition_id, {names}, updated_at)
SELECT o.key, penstock.moment(o.start_us), penstock.moment(o.end_us), o.partition_id, {moved_names}, %(now)s FROM old o
ON CONFLICT (window_end, key, window_start) DO UPDATE SET
    partition_id = greatest(s.partition_id, excluded.partition_id), {merges}, updated_at = excluded.updated_at

-- name: move_closed_sessions
-- Moves the rows of closed sessions that were extended or merged: to the open windows if the new session is open.
-- Returns the events of the old sessions, so that consumers learn which session replaces them.
WITH old AS (
    DELETE FROM penstock.history_{id} s
    USING unnest(%(keys)s::text[], %(old_starts)s::bigint[], %(old_ends)s::bigint[], %(starts)s::bigint[],
                 %(ends)s::bigint[], %(partitions)s::bigint[], %(open)s::boolean[])
        AS m (key, old_start_us, old_end_us, start_us, end_us, partition_id, is_open)
    WHERE s.key = m.key AND s.window_start = penstock.moment(m.old_start_us)
      AND s.window_end = penstock.moment(m.old_end_us)
    RETURNING s.key, penstock.moment(m.start_us) AS window_start, penstock.moment(m.end_us) AS window_end,
              m.partition_id, m.is_open, s.revision, {event} AS event, {old_names}
), opened AS (
    INSERT INTO penstock.state_{id} AS s (key, window_start, window_end, partition_id, {names}, updated_at)
    SELECT o.key, o.window_start, o.window_end, o.partition_id, {moved_names}, %(now)s FROM old o WHERE o.is_open
    ON CONFLICT (window_end, key, window_start) DO UPDATE SET
        partition_id = greatest(s.partition_id, excluded.partition_id), {merges}, updated_at = excluded.updated_at
), moved AS (
    INSERT INTO penstock.history_{id} AS s (key, window_start, window_end, {names}, closed_at, revision)
    SELECT o.key, o.window_start, o.window_end, {moved_names}, %(now)s, o.revision FROM old o WHERE NOT o.is_open
    ON CONFLICT (window_end, key, window_start) DO UPDATE SET
        {merges}, closed_at = excluded.closed_at, revision = greatest(s.revision, excluded.revision)
)
SELECT o.key, o.revision + 1 AS revision, o.event,
       json_build_object('window_start', o.window_start, 'window_end', o.window_end)::text AS replaced_by
FROM old o

-- name: reassign_partitions
-- After the partitioning of the queue changed: assigns open windows to the partition that their key is in now.
UPDATE penstock.state_{id} s SET partition_id = p.partition_id
FROM part_{id} p
WHERE s.key = p.key AND s.window_start = {start} AND s.window_end = {end} AND s.partition_id < p.partition_id

-- name: has_global_windows
SELECT EXISTS (SELECT FROM penstock.state_{id} s WHERE s.partition_id = 0)

-- name: close_windows
-- Moves the windows that end at or before the given time of their partition to the history, merged with the partials of
-- the cycle.
WITH b AS MATERIALIZED (
    SELECT * FROM unnest(%(partitions)s::bigint[], %(end_times)s::timestamptz[], %(ends)s::bigint[])
        AS b (partition_id, end_time, end_us)
), gone AS (
    DELETE FROM penstock.state_{id} s USING b
    WHERE s.partition_id = b.partition_id AND s.window_end <= b.end_time AND s.window_end <= %(latest)s
    RETURNING s.key, s.window_start, s.window_end, {old_names}
), fresh AS (
    SELECT p.key, {start} AS window_start, {end} AS window_end, {named_reads}
    FROM part_{id} p JOIN b ON b.partition_id = p.partition_id
    WHERE NOT p.is_late AND p.end_us <= b.end_us
)
INSERT INTO penstock.history_{id} AS s (key, window_start, window_end, {names}, closed_at)
SELECT coalesce(g.key, f.key), coalesce(g.window_start, f.window_start), coalesce(g.window_end, f.window_end),
       {joined}, %(now)s
FROM gone g FULL JOIN fresh f
    ON f.key = g.key AND f.window_start = g.window_start AND f.window_end = g.window_end
ORDER BY 3, 1, 2
{conflict}
RETURNING s.key, s.revision, {event} AS event, {hidden_end} AS hidden_end

-- name: correct_closed
-- Merges the partials of late events into closed windows.
INSERT INTO penstock.history_{id} AS s (key, window_start, window_end, {names}, closed_at)
SELECT p.key, {start}, {end}, {reads}, %(now)s
FROM part_{id} p
JOIN unnest(%(partitions)s::bigint[], %(ends)s::bigint[]) AS b (partition_id, end_us)
    ON b.partition_id = p.partition_id
WHERE p.is_late AND p.end_us <= b.end_us
{conflict}
RETURNING s.key, s.revision, {event} AS event, {hidden_end} AS hidden_end

-- name: correct_on_conflict
-- The window was closed before: corrects it.
ON CONFLICT (window_end, key, window_start) DO UPDATE SET
    {merges}, closed_at = excluded.closed_at, revision = s.revision + 1

-- name: idle_partitions
-- Idle partitions with an open window that the clock can close.
SELECT DISTINCT s.partition_id FROM penstock.state_{id} s
LEFT JOIN penstock.progress r ON r.query_id = %(query)s AND r.partition_id = s.partition_id
WHERE s.window_end <= %(now)s - %(idle)s - %(wait)s AND coalesce(r.last_at, 'epoch') <= %(now)s - %(idle)s

-- name: last_window_ends
-- The end of the last open window of each partition.
SELECT s.partition_id, penstock.micros(max(s.window_end)) AS end_us FROM penstock.state_{id} s GROUP BY s.partition_id

-- name: delete_old_history
DELETE FROM penstock.history_{id} WHERE closed_at < statement_timestamp() - make_interval(secs => %(seconds)s)

-- name: show_partials
-- The partials as results, for a preview.
SELECT nullif(s.key, '') AS key, s.window_start, s.window_end, {finals}
FROM (
    SELECT p.key, {start} AS window_start, {end} AS window_end, {named_reads} FROM part_{id} p
) s
ORDER BY s.window_start, s.key
