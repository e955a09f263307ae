-- name: due
-- The timers that are due, up to the one that exceeds max_bytes. Those that an open transaction changes are left out.
SELECT s.queue, s.queue_id, s.key, s.version, s.event_id, s.event_key, s.data, s.headers
FROM (
    SELECT d.*, sum(octet_length(d.data)) OVER (ORDER BY d.due_at, d.queue_id, d.key ROWS UNBOUNDED PRECEDING) AS total
    FROM (
        SELECT q.name AS queue, t.queue_id, t.key, t.version, t.due_at, t.event_id, t.event_key, t.data::text AS data,
               t.headers
        FROM penstock.timers t JOIN penstock.queues q ON q.id = t.queue_id
        -- A subquery, because an index cannot be searched for a volatile function.
        WHERE t.due_at <= (SELECT clock_timestamp() + %(skew)s) AND t.queue_id <> ALL(%(skipped)s::integer[])
        ORDER BY t.due_at, t.queue_id, t.key LIMIT %(limit)s FOR UPDATE OF t SKIP LOCKED
    ) d
) s
WHERE s.total - octet_length(s.data) <= %(max_bytes)s
ORDER BY s.due_at, s.queue_id, s.key

-- name: delete
-- A timer that was replaced has another version. One that another transaction has locked is left out, not waited for.
DELETE FROM penstock.timers WHERE ctid = ANY(ARRAY(
    SELECT t.ctid FROM penstock.timers t
    JOIN unnest(%(keys)s::text[], %(versions)s::bigint[]) AS w (key, version) ON t.key = w.key AND t.version = w.version
    WHERE t.queue_id = %(queue)s FOR UPDATE OF t SKIP LOCKED
))

-- name: seconds_to_next
SELECT extract(epoch FROM min(due_at) - clock_timestamp() - %(skew)s)::double precision FROM penstock.timers
WHERE queue_id <> ALL(%(skipped)s::integer[])
