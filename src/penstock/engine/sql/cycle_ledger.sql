-- name: cycles
-- The newest cycles of a query; optionally only failed ones.
SELECT c.cycle, c.planned, c.planned_at, c.started_at, c.committed_at, c.events_in, c.events_out, c.windows, c.late,
       c.dead, c.dropped, c.took, c.error, c.oldest_at, c.watermark
FROM penstock.cycles c
WHERE c.query_id = %(query)s AND (NOT %(failed)s OR c.error IS NOT NULL)
  AND (%(before)s::bigint IS NULL OR c.cycle < %(before)s)
ORDER BY c.cycle DESC
LIMIT %(limit)s

-- name: activity
-- The totals of the recent cycles, and the number of open windows.
SELECT (SELECT count(*) FROM penstock.state s WHERE s.query = q.name) AS open_windows,
       q.result IS NOT NULL AS has_result, q.lease_until, q.history_seconds,
       a.cycles, a.events_in, a.windows, a.late, a.dead, a.failed, w.watermark
FROM penstock.queries q
CROSS JOIN LATERAL (
    SELECT count(*) FILTER (WHERE c.committed_at IS NOT NULL) AS cycles, coalesce(sum(c.events_in), 0)::bigint AS events_in,
           coalesce(sum(c.windows), 0)::bigint AS windows, coalesce(sum(c.late), 0)::bigint AS late,
           coalesce(sum(c.dead), 0)::bigint AS dead, count(*) FILTER (WHERE c.error IS NOT NULL) AS failed
    FROM (SELECT * FROM penstock.cycles c WHERE c.query_id = q.id ORDER BY c.cycle DESC LIMIT 10000) c
    WHERE c.planned_at > clock_timestamp() - %(span)s
) a
LEFT JOIN LATERAL (
    -- A cycle that only closes windows has no watermark, but one of the last hundred has.
    SELECT n.watermark FROM (
        SELECT c.watermark FROM penstock.cycles c WHERE c.query_id = q.id ORDER BY c.cycle DESC LIMIT 100
    ) n WHERE n.watermark IS NOT NULL LIMIT 1
) w ON true
WHERE q.id = %(query)s

-- name: since_planned
-- The age of a cycle's plan in nanoseconds, by the database's clock.
SELECT (greatest(extract(epoch FROM clock_timestamp() - planned_at), 0) * 1000000000)::bigint
FROM penstock.cycles WHERE query_id = %(query)s AND cycle = %(cycle)s
