-- What waits in a join of streams: events of either side that one of the other may still come for.

-- name: create
CREATE TABLE IF NOT EXISTS penstock.waiting_{id} (
    id           bigint GENERATED ALWAYS AS IDENTITY,
    -- 0: of the left, 1: of the right.
    side         smallint NOT NULL,
    key          text COLLATE "C" NOT NULL,
    time_us      bigint NOT NULL,
    partition_id bigint NOT NULL,
    event_offset bigint NOT NULL,
    event_key    text,
    line         text NOT NULL,
    -- Whether it is in a pair already; minded only where events of the left without one are sent on.
    is_matched   boolean NOT NULL,
    PRIMARY KEY (key, side, time_us, id)
) WITH (autovacuum_vacuum_scale_factor = 0.1, autovacuum_vacuum_cost_delay = 0)

-- name: index_alone
-- Events of the left that are in no pair, in the order in which they are sent on.
CREATE INDEX IF NOT EXISTS waiting_{id}_alone ON penstock.waiting_{id} (time_us, id) WHERE side = 0 AND NOT is_matched

-- name: index_rest
-- All others, in the order in which they expire.
CREATE INDEX IF NOT EXISTS waiting_{id}_rest ON penstock.waiting_{id} (side, time_us) WHERE side = 1 OR is_matched

-- name: drop_times
-- A version before had both in one index.
DROP INDEX IF EXISTS penstock.waiting_{id}_times

-- name: drop
DROP TABLE IF EXISTS penstock.waiting_{id}

-- name: stage
-- Where a cycle's events are copied to; of this session alone, and empty again after each commit.
CREATE TEMPORARY TABLE IF NOT EXISTS fresh_{id} (
    side smallint NOT NULL, key text COLLATE "C" NOT NULL, time_us bigint NOT NULL, partition_id bigint NOT NULL,
    event_offset bigint NOT NULL, event_key text, line text NOT NULL, is_matched boolean NOT NULL
) ON COMMIT DELETE ROWS

-- name: copy
COPY fresh_{id} (side, key, time_us, partition_id, event_offset, event_key, line, is_matched) FROM STDIN (FORMAT csv)

-- name: keep
INSERT INTO penstock.waiting_{id}
    (side, key, time_us, partition_id, event_offset, event_key, line, is_matched)
SELECT f.side, f.key, f.time_us, f.partition_id, f.event_offset, f.event_key, f.line, f.is_matched
FROM fresh_{id} f

-- name: match
-- Events of the left that have found one.
UPDATE penstock.waiting_{id} w SET is_matched = true
FROM unnest(%(keys)s::text[], %(times)s::bigint[], %(ids)s::bigint[]) AS m (key, time_us, id)
WHERE w.key = m.key AND w.side = 0 AND w.time_us = m.time_us AND w.id = m.id AND NOT w.is_matched

-- name: look_up
-- What leaves is found in the order of an index, also where the statistics, of a table that was just filled, say that
-- there is too little to sort for that.
SELECT set_config('enable_seqscan', 'off', false), set_config('enable_bitmapscan', 'off', false)

-- name: expire
-- Nothing that still may come can be joined with these: so many of each kind, the oldest, and no more rows are looked at
-- than leave. Where what of the left is in no pair is sent on, that is what this cycle has sent: the first of `alone`.
DELETE FROM penstock.waiting_{id} e
WHERE e.ctid = ANY (ARRAY(
    (
        SELECT w.ctid FROM penstock.waiting_{id} w
        WHERE w.side = 1 AND w.time_us < %(closed)s::bigint - %(before)s::bigint
        ORDER BY w.time_us LIMIT %(most)s
    )
    UNION ALL
    (
        SELECT w.ctid FROM penstock.waiting_{id} w
        WHERE w.side = 0 AND w.is_matched AND w.time_us < %(closed)s::bigint - %(after)s::bigint
        ORDER BY w.time_us LIMIT %(most)s
    )
    UNION ALL
    (
        SELECT w.ctid FROM penstock.waiting_{id} w
        WHERE w.side = 0 AND NOT w.is_matched AND w.time_us < %(closed)s::bigint - %(after)s::bigint
        ORDER BY w.time_us, w.id LIMIT %(alone)s
    )
))

-- name: flush
-- All that has expired, but for what is yet to be sent on.
DELETE FROM penstock.waiting_{id} w
WHERE (w.side = 1 AND w.time_us < %(closed)s::bigint - %(before)s::bigint)
   OR (w.side = 0 AND w.time_us < %(closed)s::bigint - %(after)s::bigint AND (w.is_matched OR NOT %(sends_alone)s))

-- name: partners
-- What waits for some keys within ranges of time, but for what has expired.
SELECT w.side, w.key, w.time_us, w.id, w.event_key, w.line
FROM unnest(%(keys)s::text[], %(sides)s::bigint[], %(lows)s::bigint[], %(highs)s::bigint[]) AS k (key, side, low, high)
JOIN penstock.queries q ON q.id = %(query)s
JOIN penstock.waiting_{id} w ON w.key = k.key AND w.side = k.side AND w.time_us BETWEEN k.low AND k.high
WHERE w.time_us >= coalesce(q.closed_us, w.time_us) - CASE w.side WHEN 0 THEN %(after)s ELSE %(before)s END::bigint
ORDER BY w.key, w.side, w.time_us, w.id

-- name: alone
-- Events of the left that have expired and are in no pair, so many of them, the oldest.
SELECT w.partition_id, w.event_offset, w.event_key, w.time_us, w.line
FROM penstock.waiting_{id} w
WHERE w.side = 0 AND NOT w.is_matched
  AND w.time_us < (SELECT q.closed_us - %(after)s::bigint FROM penstock.queries q WHERE q.id = %(query)s)
ORDER BY w.time_us, w.id LIMIT %(limit)s

-- name: expired
-- How many events of the left have expired and are in no pair; not counted any further than to a limit.
SELECT count(*) FROM (
    SELECT FROM penstock.waiting_{id} w
    WHERE w.side = 0 AND NOT w.is_matched
      AND w.time_us < (SELECT q.closed_us - %(after)s::bigint FROM penstock.queries q WHERE q.id = %(query)s)
    LIMIT %(limit)s
) AS found

-- name: queue_of
SELECT queue_id FROM penstock.partitions WHERE id = %(partition)s

-- name: last_end
-- Up to where time has to come for everything to expire.
SELECT max(w.time_us + CASE w.side WHEN 0 THEN %(after)s ELSE %(before)s END::bigint) + 1 FROM penstock.waiting_{id} w

-- name: due
-- Whether the clock would let an event of the left expire in no pair because all is quiet.
SELECT EXISTS (
    SELECT FROM penstock.waiting_{id} w
    WHERE w.side = 0 AND NOT w.is_matched
      AND w.time_us < penstock.micros(statement_timestamp() - %(idle)s - %(wait)s) - %(after)s::bigint
)
AND NOT EXISTS (
    SELECT FROM penstock.progress r
    WHERE r.query_id = %(query)s AND r.last_at > clock_timestamp() - %(idle)s
)
