-- name: visible_tables
-- The tables and views with the columns that this login can read.
SELECT n.nspname, c.relname, array_agg(a.attname::text ORDER BY a.attnum),
       array_agg(format_type(a.atttypid, a.atttypmod) ORDER BY a.attnum)
FROM pg_namespace n
JOIN pg_class c ON c.relnamespace = n.oid AND c.relkind IN ('r', 'p', 'v', 'm')
JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
WHERE n.nspname IN ('penstock', 'penstock_live', 'penstock_history') AND has_column_privilege(c.oid, a.attnum, 'SELECT')
GROUP BY n.nspname, c.relname
ORDER BY array_position(ARRAY['penstock_live', 'penstock_history', 'penstock'], n.nspname::text), c.relname

-- name: terminate
-- A role may terminate its own backends.
SELECT pg_terminate_backend(a.pid) FROM pg_stat_activity a WHERE a.pid = %(pid)s AND a.usename = session_user
