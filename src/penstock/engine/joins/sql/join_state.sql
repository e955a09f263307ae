-- The state of a stream-stream join is stored in runs of one operator. Part 0 has the left rows, part 1 the right ones, and
-- part 2 which left rows of an outer join have found no match.

-- name: delete_expired_runs
-- Runs of which all rows have expired. What the newer runs of unmatched rows say overrides the older ones, so none goes
-- before an older one that stays.
WITH staying AS MATERIALIZED (
    SELECT r.shard, min(r.sequence) AS oldest
    FROM penstock.state_runs r
    WHERE r.query_id = %(query)s AND r.part = 2 AND r.is_current AND r.max_us >= %(left)s::bigint
    GROUP BY r.shard
)
DELETE FROM penstock.state_runs r
USING (VALUES (0, %(left)s::bigint), (1, %(right)s), (2, %(left)s)) AS l (part, since_us)
WHERE r.query_id = %(query)s AND r.part = l.part AND r.is_current AND r.max_us < l.since_us
  AND (r.part < 2 OR NOT EXISTS (SELECT FROM staying s WHERE s.shard = r.shard AND s.oldest < r.sequence))

-- name: last_end
-- The watermark at which all rows have expired.
SELECT max(r.max_us + CASE r.part WHEN 0 THEN %(after)s ELSE %(before)s END::bigint) + 1
FROM penstock.state_runs r WHERE r.query_id = %(query)s AND r.part < 2 AND r.is_current

-- name: expired
-- The time before which left rows have expired, and whether there may be one that has found no match.
SELECT q.closed_us - %(after)s::bigint, EXISTS (
    SELECT FROM penstock.state_runs r
    WHERE r.query_id = q.id AND r.part = 2 AND r.is_current AND r.min_us < q.closed_us - %(after)s::bigint
)
FROM penstock.queries q WHERE q.id = %(query)s

-- name: due
-- The time before which the wall clock lets left rows expire, because all partitions are idle, and whether there may be
-- one that has found no match.
SELECT d.until_us, EXISTS (
    SELECT FROM penstock.state_runs r
    WHERE r.query_id = %(query)s AND r.part = 2 AND r.is_current AND r.min_us < d.until_us
) AND NOT EXISTS (
    SELECT FROM penstock.progress p WHERE p.query_id = %(query)s AND p.last_at > clock_timestamp() - %(idle)s
)
FROM (SELECT penstock.micros(statement_timestamp() - %(idle)s - %(wait)s) - %(after)s::bigint AS until_us) d

-- name: find_queue
SELECT queue_id FROM penstock.partitions WHERE id = %(partition)s
