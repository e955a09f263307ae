-- name: view
SELECT q.view,
       coalesce((SELECT s.n_live_tup FROM pg_stat_user_tables s
                 WHERE s.relid = to_regclass('penstock.view_' || q.id)), 0)::bigint AS rows,
       coalesce(pg_total_relation_size(to_regclass('penstock.view_' || q.id)), 0)::bigint AS bytes
FROM penstock.queries q WHERE q.id = %(query)s AND q.view IS NOT NULL

-- name: operators
-- Rows that a newer run replaces count until runs are merged. The size of TOASTed data is known without reading it.
SELECT r.operator, sum(r.rows)::bigint AS rows, sum(octet_length(r.data))::bigint AS bytes
FROM penstock.view_runs r WHERE r.query_id = %(query)s AND r.is_current GROUP BY r.operator ORDER BY r.operator
