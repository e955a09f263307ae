-- name: lock_catalog
-- The same lock as in penstock.engine: a name belongs to a query on Spark or to one of clients, never to both.
SELECT pg_advisory_xact_lock(7812746384129)

-- name: find_spark_query
SELECT id FROM penstock.queries WHERE name = %(name)s

-- name: find
SELECT id, config_hash, source_queue FROM penstock.client_queries WHERE name = %(name)s FOR UPDATE

-- name: create
INSERT INTO penstock.client_queries (name, source_queue, sink_queue, config_hash, group_name)
VALUES (%(name)s, %(source)s, %(sink)s, %(hash)s, %(group)s)
RETURNING id, config_hash, source_queue

-- name: update
UPDATE penstock.client_queries SET source_queue = %(source)s, sink_queue = %(sink)s, config_hash = %(hash)s
WHERE id = %(query)s
  AND (source_queue, sink_queue, config_hash) IS DISTINCT FROM (%(source)s::text, %(sink)s::text, %(hash)s::text)

-- name: delete_state
DELETE FROM penstock.client_query_state WHERE query_id = %(query)s
