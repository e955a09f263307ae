-- name: ledger_vitals
-- Events read and written per second by all queries in the last minutes, in steps, and their mean freshness.
SELECT (extract(epoch FROM s.at) * 1000)::bigint AS at,
       (sum(s.events_in) / %(step)s)::float8 AS read,
       (sum(s.events_out) / %(step)s)::float8 AS results,
       avg(s.age)::float8 AS freshness
FROM penstock.queries q
CROSS JOIN LATERAL (
    SELECT to_timestamp(floor(extract(epoch FROM n.committed_at) / %(step)s) * %(step)s + %(step)s) AS at,
           n.events_in, n.events_out, extract(epoch FROM n.committed_at - n.oldest_at) AS age
    FROM (
        SELECT c.committed_at, c.events_in, c.events_out, c.oldest_at FROM penstock.cycles c
        WHERE c.query_id = q.id ORDER BY c.cycle DESC LIMIT 1000
    ) n
    WHERE n.committed_at > clock_timestamp() - make_interval(secs => %(seconds)s)
) s
GROUP BY s.at ORDER BY s.at
