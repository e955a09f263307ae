-- name: view
SELECT q.view,
       coalesce((SELECT s.n_live_tup FROM pg_stat_user_tables s
                 WHERE s.relid = to_regclass('penstock.view_' || q.id)), 0)::bigint AS rows,
       coalesce(pg_total_relation_size(to_regclass('penstock.view_' || q.id)), 0)::bigint AS bytes
FROM penstock.queries q WHERE q.id = %(query)s AND q.view IS NOT NULL

-- name: operators
-- Rows that a newer run replaces count until runs are merged. The size of TOASTed data is known without reading it: 1 ms
-- for 600 pieces.
SELECT n.operator, n.name, coalesce(s.rows, 0) AS rows, coalesce(s.bytes, 0) AS bytes
FROM penstock.queries q
CROSS JOIN LATERAL jsonb_array_elements_text(q.view -> 'state_names') WITH ORDINALITY AS n (name, operator)
LEFT JOIN (
    SELECT r.operator, sum(r.rows)::bigint AS rows, sum(octet_length(r.data))::bigint AS bytes
    FROM penstock.state_runs r WHERE r.query_id = %(query)s AND r.is_current GROUP BY r.operator
) s ON s.operator = n.operator
WHERE q.id = %(query)s
ORDER BY n.operator

-- name: state_bytes
SELECT coalesce(sum(octet_length(r.data)), 0)::bigint
FROM penstock.state_runs r WHERE r.query_id = %(query)s AND r.is_current
