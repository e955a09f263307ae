-- The state of a stream-stream join: events of both inputs that may still find a match in the other one.

-- name: create
CREATE TABLE IF NOT EXISTS penstock.waiting_{id} (
    id           bigint GENERATED ALWAYS AS IDENTITY,
    -- 0: left input, 1: right input.
    side         smallint NOT NULL,
    key          text COLLATE "C" NOT NULL,
    time_us      bigint NOT NULL,
    partition_id bigint NOT NULL,
    event_offset bigint NOT NULL,
    event_key    text,
    line         text NOT NULL,
    -- Whether the event has found a match; maintained only for left rows of an outer join.
    is_matched   boolean NOT NULL,
    PRIMARY KEY (key, side, time_us, id)
) WITH (autovacuum_vacuum_scale_factor = 0.1, autovacuum_vacuum_cost_delay = 0)

-- name: index_unmatched
-- Unmatched left rows, in the order in which they are emitted.
CREATE INDEX IF NOT EXISTS waiting_{id}_alone ON penstock.waiting_{id} (time_us, id) WHERE side = 0 AND NOT is_matched

-- name: index_others
-- All other rows, in the order in which they expire.
CREATE INDEX IF NOT EXISTS waiting_{id}_rest ON penstock.waiting_{id} (side, time_us) WHERE side = 1 OR is_matched

-- name: create_staging_table
-- A temporary table for the new rows of a cycle.
CREATE TEMPORARY TABLE IF NOT EXISTS fresh_{id} (
    side smallint NOT NULL, key text COLLATE "C" NOT NULL, time_us bigint NOT NULL, partition_id bigint NOT NULL,
    event_offset bigint NOT NULL, event_key text, line text NOT NULL, is_matched boolean NOT NULL
) ON COMMIT DELETE ROWS

-- name: copy_rows
COPY fresh_{id} (side, key, time_us, partition_id, event_offset, event_key, line, is_matched) FROM STDIN (FORMAT csv)

-- name: insert_staged
INSERT INTO penstock.waiting_{id}
    (side, key, time_us, partition_id, event_offset, event_key, line, is_matched)
SELECT f.side, f.key, f.time_us, f.partition_id, f.event_offset, f.event_key, f.line, f.is_matched
FROM fresh_{id} f

-- name: mark_matched
UPDATE penstock.waiting_{id} w SET is_matched = true
FROM unnest(%(keys)s::text[], %(times)s::bigint[], %(ids)s::bigint[]) AS m (key, time_us, id)
WHERE w.key = m.key AND w.side = 0 AND w.time_us = m.time_us AND w.id = m.id AND NOT w.is_matched

-- name: prefer_index_scans
-- Expired rows are found in the order of an index, also if the statistics of a table that was just filled favour a sort.
SELECT set_config('enable_seqscan', 'off', false), set_config('enable_bitmapscan', 'off', false)

-- name: delete_expired
-- The oldest expired rows of each kind, with a limit, so that no other rows are read. In an outer join, the limit of
-- unmatched left rows is the number that the cycle has emitted.
DELETE FROM penstock.waiting_{id} e
WHERE e.ctid = ANY (ARRAY(
    (
        SELECT w.ctid FROM penstock.waiting_{id} w
        WHERE w.side = 1 AND w.time_us < %(watermark)s::bigint - %(before)s::bigint
        ORDER BY w.time_us LIMIT %(limit)s
    )
    UNION ALL
    (
        SELECT w.ctid FROM penstock.waiting_{id} w
        WHERE w.side = 0 AND w.is_matched AND w.time_us < %(watermark)s::bigint - %(after)s::bigint
        ORDER BY w.time_us LIMIT %(limit)s
    )
    UNION ALL
    (
        SELECT w.ctid FROM penstock.waiting_{id} w
        WHERE w.side = 0 AND NOT w.is_matched AND w.time_us < %(watermark)s::bigint - %(after)s::bigint
        ORDER BY w.time_us, w.id LIMIT %(unmatched)s
    )
))

-- name: delete_all_expired
-- All expired rows, except unmatched left rows of an outer join, which are not emitted yet.
DELETE FROM penstock.waiting_{id} w
WHERE (w.side = 1 AND w.time_us < %(watermark)s::bigint - %(before)s::bigint)
   OR (w.side = 0 AND w.time_us < %(watermark)s::bigint - %(after)s::bigint AND (w.is_matched OR NOT %(is_outer)s))

-- name: find_partners
-- The rows of some keys within time ranges that have not expired.
SELECT w.side, w.key, w.time_us, w.id, w.event_key, w.line
FROM unnest(%(keys)s::text[], %(sides)s::bigint[], %(lows)s::bigint[], %(highs)s::bigint[]) AS k (key, side, low, high)
JOIN penstock.queries q ON q.id = %(query)s
JOIN penstock.waiting_{id} w ON w.key = k.key AND w.side = k.side AND w.time_us BETWEEN k.low AND k.high
WHERE q.closed_us IS NULL
   OR w.time_us >= q.closed_us - CASE w.side WHEN 0 THEN %(after)s ELSE %(before)s END::bigint
ORDER BY w.key, w.side, w.time_us, w.id

-- name: expired_rows
-- The oldest expired left rows without a match.
SELECT w.partition_id, w.event_offset, w.event_key, w.time_us, w.line
FROM penstock.waiting_{id} w
WHERE w.side = 0 AND NOT w.is_matched
  AND w.time_us < (SELECT q.closed_us - %(after)s::bigint FROM penstock.queries q WHERE q.id = %(query)s)
ORDER BY w.time_us, w.id LIMIT %(limit)s

-- name: count_expired
-- The number of expired left rows without a match, counted up to a limit.
SELECT count(*) FROM (
    SELECT FROM penstock.waiting_{id} w
    WHERE w.side = 0 AND NOT w.is_matched
      AND w.time_us < (SELECT q.closed_us - %(after)s::bigint FROM penstock.queries q WHERE q.id = %(query)s)
    LIMIT %(limit)s
) AS found

-- name: find_queue
SELECT queue_id FROM penstock.partitions WHERE id = %(partition)s

-- name: last_end
-- The watermark at which all rows have expired.
SELECT max(w.time_us + CASE w.side WHEN 0 THEN %(after)s ELSE %(before)s END::bigint) + 1 FROM penstock.waiting_{id} w

-- name: due
-- Whether the wall clock lets an unmatched left row expire, because all partitions are idle.
SELECT EXISTS (
    SELECT FROM penstock.waiting_{id} w
    WHERE w.side = 0 AND NOT w.is_matched
      AND w.time_us < penstock.micros(statement_timestamp() - %(idle)s - %(wait)s) - %(after)s::bigint
)
AND NOT EXISTS (
    SELECT FROM penstock.progress r
    WHERE r.query_id = %(query)s AND r.last_at > clock_timestamp() - %(idle)s
)
