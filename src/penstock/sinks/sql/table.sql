-- name: columns
-- The columns of a table.
SELECT a.attname AS name,
       coalesce(a.attnum = ANY (k.conkey), false) AS is_primary_key,
       a.atthasdef OR a.attidentity <> '' AS has_default,
       a.attgenerated = '' AND a.attidentity <> 'a' AS is_writable
FROM pg_attribute a
LEFT JOIN pg_constraint k ON k.conrelid = a.attrelid AND k.contype = 'p'
WHERE a.attrelid = to_regclass(%s) AND a.attnum > 0 AND NOT a.attisdropped
ORDER BY a.attnum

-- name: delete
DELETE FROM {table} t USING jsonb_populate_recordset(NULL::{table}, %s::jsonb) d WHERE {same_key}

-- name: insert
INSERT INTO {table} ({columns})
SELECT {columns} FROM jsonb_populate_recordset(NULL::{table}, %s::jsonb)

-- name: replace
ON CONFLICT ({key}) DO UPDATE SET ({others}) = ROW({excluded})

-- name: keep
ON CONFLICT ({key}) DO NOTHING
