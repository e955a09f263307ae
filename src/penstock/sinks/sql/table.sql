-- name: columns
-- The columns of a table, which of them make up its primary key, have a default, and can be written.
SELECT a.attname, coalesce(a.attnum = ANY (k.conkey), false), a.atthasdef OR a.attidentity <> '',
       a.attgenerated = '' AND a.attidentity <> 'a'
FROM pg_attribute a
LEFT JOIN pg_constraint k ON k.conrelid = a.attrelid AND k.contype = 'p'
WHERE a.attrelid = to_regclass(%s) AND a.attnum > 0 AND NOT a.attisdropped
ORDER BY a.attnum

-- name: insert
INSERT INTO {table} ({columns})
SELECT {columns} FROM jsonb_populate_recordset(NULL::{table}, %s::jsonb)

-- name: replace
ON CONFLICT ({key}) DO UPDATE SET ({others}) = ROW({excluded})

-- name: keep
ON CONFLICT ({key}) DO NOTHING
