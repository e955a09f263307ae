-- name: lag
-- The number of unread events, and whether the query has a table of open windows.
SELECT (
    SELECT coalesce(sum(greatest(s.end_offset - s.next_offset, 0)), 0)::bigint
    FROM penstock.groups g
    JOIN penstock.queues u ON u.id = g.queue_id
    CROSS JOIN LATERAL penstock.partition_progress(g.id, u.id, u.segment) s
    WHERE g.query_id = q.name
), q.result IS NOT NULL
FROM penstock.queries q WHERE q.id = %(query)s

-- name: open_windows
SELECT count(*) FROM penstock.state_{id}
