-- name: find
SELECT q.id, q.name, q.description, q.fingerprint, q.sink_queue, q.view, clock_timestamp()
FROM penstock.queries q WHERE q.name = %(name)s

-- name: readers
-- The views that read a view, with the columns that they read, and the types of all columns of the view that is read.
SELECT r.name, r.view -> 'reads' -> q.name AS fields,
       coalesce((SELECT jsonb_object_agg(c ->> 'name', c ->> 'spark_type')
                 FROM jsonb_array_elements(q.view -> 'columns') c), '{}') AS types
FROM penstock.queries q JOIN penstock.queries r ON r.view -> 'reads' ? q.name
WHERE q.name = %(name)s ORDER BY r.name
