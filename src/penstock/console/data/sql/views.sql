-- Materialized views: their definition, and what changes while they run.

-- name: sizes
-- The number of rows is PostgreSQL's estimate. The size of TOASTed state is known without reading it. Rows of the state
-- that a newer run replaces count until runs are merged.
SELECT q.id, coalesce(pg_stat_get_live_tuples(to_regclass('penstock.view_' || q.id)), 0)::bigint AS rows,
       coalesce(pg_total_relation_size(to_regclass('penstock.view_' || q.id)), 0)::bigint AS bytes,
       coalesce(s.rows, 0)::bigint AS state_rows, coalesce(s.bytes, 0)::bigint AS state_bytes, c.changes
FROM penstock.queries q
LEFT JOIN (
    SELECT r.query_id, sum(r.rows) AS rows, sum(octet_length(r.data)) AS bytes
    FROM penstock.state_runs r WHERE r.is_current GROUP BY r.query_id
) s ON s.query_id = q.id
CROSS JOIN LATERAL (
    SELECT coalesce(sum(n.changes), 0)::bigint AS changes
    FROM (
        SELECT c.changes, c.committed_at FROM penstock.cycles c
        WHERE c.query_id = q.id ORDER BY c.cycle DESC LIMIT 500
    ) n
    WHERE n.committed_at > clock_timestamp() - %(period)s
) c
WHERE q.view IS NOT NULL

-- name: definition
SELECT q.id, q.view FROM penstock.queries q
WHERE q.name = %(name)s AND q.view IS NOT NULL AND coalesce((q.view -> 'is_shown')::boolean, true)

-- name: names
-- Which of some queries are views. New versions of views, which are not shown yet, are not among them.
SELECT q.name FROM penstock.queries q
WHERE q.name = ANY(%(names)s::text[]) AND q.view IS NOT NULL AND coalesce((q.view -> 'is_shown')::boolean, true)

-- name: changes
-- The changes of the last cycles.
SELECT coalesce(sum(n.changes), 0)::bigint
FROM (
    SELECT c.changes, c.committed_at FROM penstock.cycles c
    WHERE c.query_id = %(query)s ORDER BY c.cycle DESC LIMIT 500
) n
WHERE n.committed_at > clock_timestamp() - %(period)s
