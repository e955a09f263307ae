-- name: find
-- to_regclass reads a name as a statement does: case folding, quotes and the search path.
SELECT n.nspname, c.relname
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE c.oid = to_regclass(%s)
