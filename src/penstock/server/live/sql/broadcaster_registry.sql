-- name: find_query
-- A query that runs on Spark, or one that clients compute.
SELECT id, name, false AS is_client_query FROM penstock.queries WHERE name = %(name)s
UNION ALL
SELECT id, name, true FROM penstock.client_queries WHERE name = %(name)s
