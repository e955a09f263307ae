-- name: list
SELECT name, statement, saved_by, saved_at FROM penstock.saved_statements ORDER BY lower(name), name LIMIT 500

-- name: save
INSERT INTO penstock.saved_statements (name, statement, saved_by) VALUES (%(name)s, %(statement)s, %(saved_by)s)
ON CONFLICT (name) DO UPDATE SET statement = excluded.statement, saved_by = excluded.saved_by, saved_at = excluded.saved_at

-- name: delete
DELETE FROM penstock.saved_statements WHERE name = %(name)s
