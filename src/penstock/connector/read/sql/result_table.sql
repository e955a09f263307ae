-- name: queries
SELECT name FROM penstock.queries WHERE result IS NOT NULL ORDER BY name

-- name: columns
-- The columns of a view, in order.
SELECT a.attname, format_type(a.atttypid, NULL)
FROM pg_attribute a
WHERE a.attrelid = to_regclass(%(view)s) AND a.attnum > 0 AND NOT a.attisdropped
ORDER BY a.attnum
