-- Times are copied as microseconds, and made timestamps where they are used: neither a function, which PostgreSQL would
-- call for each, nor text, which takes long to read.

-- name: stage
-- Where a cycle's partials are copied to; of this session alone, and empty again after each commit.
CREATE TEMPORARY TABLE IF NOT EXISTS part_{id} (
    key text COLLATE "C" NOT NULL, ws bigint NOT NULL, we bigint NOT NULL, late boolean NOT NULL, p bigint NOT NULL,
    {staged}
) ON COMMIT DELETE ROWS

-- name: copy
COPY part_{id} (key, ws, we, late, p, {names}) FROM STDIN (FORMAT csv)

-- name: keep_open
-- What goes into windows that stay open.
INSERT INTO penstock.state_{id} AS s (key, window_start, window_end, partition_id, {names}, updated_at)
SELECT p.key, {start}, {end}, p.p, {reads}, %(now)s
FROM part_{id} p
LEFT JOIN unnest(%(partitions)s::bigint[], %(bounds)s::bigint[]) AS b (partition_id, bound) ON b.partition_id = p.p
WHERE p.late = %(late)s AND (b.bound IS NULL OR p.we > b.bound)
ON CONFLICT (window_end, key, window_start) DO UPDATE SET
    partition_id = greatest(s.partition_id, excluded.partition_id), {merges}, updated_at = excluded.updated_at

-- name: move_spans
-- Sessions that have grown or grown together: the row goes over to the new span.
WITH old AS (
    DELETE FROM penstock.state_{id} s
    USING unnest(%(keys)s::text[], %(old_starts)s::bigint[], %(old_ends)s::bigint[], %(starts)s::bigint[],
                 %(ends)s::bigint[]) AS m (key, old_ws, old_we, ws, we)
    WHERE s.key = m.key AND s.window_start = penstock.moment(m.old_ws) AND s.window_end = penstock.moment(m.old_we)
    RETURNING s.key, m.ws, m.we, s.partition_id, {old_names}
)
INSERT INTO penstock.state_{id} AS s (key, window_start, window_end, partition_id, {names}, updated_at)
SELECT o.key, penstock.moment(o.ws), penstock.moment(o.we), o.partition_id, {moved_names}, %(now)s FROM old o
ON CONFLICT (window_end, key, window_start) DO UPDATE SET
    partition_id = greatest(s.partition_id, excluded.partition_id), {merges}, updated_at = excluded.updated_at

-- name: take_back
-- Sessions that were closed and have grown, or grown together with others: the row goes over to the new span, among the
-- open ones where that is still open. Who was told of the old span is told what has become of it.
WITH old AS (
    DELETE FROM penstock.history_{id} s
    USING unnest(%(keys)s::text[], %(old_starts)s::bigint[], %(old_ends)s::bigint[], %(starts)s::bigint[],
                 %(ends)s::bigint[], %(partitions)s::bigint[], %(open)s::boolean[])
        AS m (key, old_ws, old_we, ws, we, p, is_open)
    WHERE s.key = m.key AND s.window_start = penstock.moment(m.old_ws) AND s.window_end = penstock.moment(m.old_we)
    RETURNING s.key, penstock.moment(m.ws) AS window_start, penstock.moment(m.we) AS window_end, m.p, m.is_open,
              s.revision, {line} AS line, {old_names}
), opened AS (
    INSERT INTO penstock.state_{id} AS s (key, window_start, window_end, partition_id, {names}, updated_at)
    SELECT o.key, o.window_start, o.window_end, o.p, {moved_names}, %(now)s FROM old o WHERE o.is_open
    ON CONFLICT (window_end, key, window_start) DO UPDATE SET
        partition_id = greatest(s.partition_id, excluded.partition_id), {merges}, updated_at = excluded.updated_at
), moved AS (
    INSERT INTO penstock.history_{id} AS s (key, window_start, window_end, {names}, closed_at, revision)
    SELECT o.key, o.window_start, o.window_end, {moved_names}, %(now)s, o.revision FROM old o WHERE NOT o.is_open
    ON CONFLICT (window_end, key, window_start) DO UPDATE SET
        {merges}, closed_at = excluded.closed_at, revision = greatest(s.revision, excluded.revision)
)
SELECT o.key, o.revision + 1, o.line,
       json_build_object('window_start', o.window_start, 'window_end', o.window_end)::text
FROM old o

-- name: follow
-- The partitioning of the queue has changed: windows that are open go over to the partition that their key is in now.
UPDATE penstock.state_{id} s SET partition_id = p.p
FROM part_{id} p
WHERE s.key = p.key AND s.window_start = {start} AND s.window_end = {end} AND s.partition_id < p.p

-- name: has_keyless
SELECT EXISTS (SELECT FROM penstock.state_{id} s WHERE s.partition_id = 0)

-- name: close
-- Windows whose time has come, with what the cycle adds to them: out of the live rows, into the history. For each
-- partition, those close that end at a time or before it.
WITH b AS MATERIALIZED (
    SELECT * FROM unnest(%(partitions)s::bigint[], %(closed)s::timestamptz[], %(bounds)s::bigint[])
        AS b (partition_id, closed, bound)
), gone AS (
    DELETE FROM penstock.state_{id} s USING b
    WHERE s.partition_id = b.partition_id AND s.window_end <= b.closed AND s.window_end <= %(latest)s
    RETURNING s.key, s.window_start, s.window_end, {old_names}
), fresh AS (
    SELECT p.key, {start} AS window_start, {end} AS window_end, {named_reads}
    FROM part_{id} p JOIN b ON b.partition_id = p.p
    WHERE NOT p.late AND p.we <= b.bound
)
INSERT INTO penstock.history_{id} AS s (key, window_start, window_end, {names}, closed_at)
SELECT coalesce(g.key, f.key), coalesce(g.window_start, f.window_start), coalesce(g.window_end, f.window_end),
       {joined}, %(now)s
FROM gone g FULL JOIN fresh f
    ON f.key = g.key AND f.window_start = g.window_start AND f.window_end = g.window_end
ORDER BY 3, 1, 2
{conflict}
RETURNING s.key, s.revision, {line}, {untold_end}

-- name: reopen
-- What comes late for a window that is closed corrects it.
INSERT INTO penstock.history_{id} AS s (key, window_start, window_end, {names}, closed_at)
SELECT p.key, {start}, {end}, {reads}, %(now)s
FROM part_{id} p
JOIN unnest(%(partitions)s::bigint[], %(bounds)s::bigint[]) AS b (partition_id, bound) ON b.partition_id = p.p
WHERE p.late AND p.we <= b.bound
{conflict}
RETURNING s.key, s.revision, {line}, {untold_end}

-- name: idle_partitions
-- Partitions that hold open a window that the clock would close.
SELECT DISTINCT s.partition_id FROM penstock.state_{id} s
LEFT JOIN penstock.progress r ON r.query_id = %(query)s AND r.partition_id = s.partition_id
WHERE s.window_end <= %(now)s - %(idle)s - %(wait)s AND coalesce(r.last_at, 'epoch') <= %(now)s - %(idle)s

-- name: last_ends
-- For each partition, the end of the last window that is open.
SELECT s.partition_id, penstock.micros(max(s.window_end)) FROM penstock.state_{id} s GROUP BY s.partition_id

-- name: forget_history
DELETE FROM penstock.history_{id} WHERE closed_at < statement_timestamp() - make_interval(secs => %(seconds)s)

-- name: show
-- Partials as results, for who only looks.
SELECT nullif(s.key, '') AS key, s.window_start, s.window_end, {finals}
FROM (
    SELECT p.key, {start} AS window_start, {end} AS window_end, {named_reads} FROM part_{id} p
) s
ORDER BY s.window_start, s.key

-- name: correct
-- A window that was closed before is corrected.
ON CONFLICT (window_end, key, window_start) DO UPDATE SET
    {merges}, closed_at = excluded.closed_at, revision = s.revision + 1
