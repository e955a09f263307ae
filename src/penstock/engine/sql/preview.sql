-- name: newest_rows
-- The rows of a view that changed last.
SELECT to_jsonb(v)::text FROM {view} v ORDER BY v.updated_at DESC LIMIT %s
