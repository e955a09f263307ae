-- name: find
-- Names are read as in a statement: in quotes as they are, else in lower case, without a schema along the search path.
SELECT n.nspname, c.relname
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE c.oid = to_regclass(%s)
