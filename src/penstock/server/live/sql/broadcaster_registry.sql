-- name: find_query
-- A query that runs on Spark, which may be a materialized view, or one that clients compute.
SELECT id, name, false AS is_client_query, view IS NOT NULL AS is_view FROM penstock.queries WHERE name = %(name)s
UNION ALL
SELECT id, name, true, false FROM penstock.client_queries WHERE name = %(name)s
