-- name: create_table
CREATE TABLE IF NOT EXISTS penstock.view_{id} (
    {definitions},
    updated_at timestamptz NOT NULL
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.1, autovacuum_vacuum_cost_delay = 0)

-- name: create_key
-- A key may have nulls, which a primary key may not.
CREATE UNIQUE INDEX IF NOT EXISTS view_{id}_key ON penstock.view_{id} ({key}) NULLS NOT DISTINCT

-- name: create_index
CREATE INDEX IF NOT EXISTS {name} ON penstock.view_{id} ({columns})

-- name: create_view
CREATE OR REPLACE VIEW penstock_live.{view} AS SELECT {columns}, t.updated_at FROM penstock.view_{id} t

-- name: drop_view
DROP VIEW IF EXISTS penstock_live.{view}

-- name: drop_table
DROP TABLE IF EXISTS penstock.view_{id}

-- name: create_staging_table
-- The changes of a cycle are copied here. ``__mask`` has a bit for each column of the key that is null.
CREATE TEMPORARY TABLE IF NOT EXISTS view_changes_{id} ({staged}, __mask bigint NOT NULL, __is_delete boolean NOT NULL)
ON COMMIT DELETE ROWS

-- name: copy_changes
COPY view_changes_{id} ({names}, __mask, __is_delete) FROM STDIN (FORMAT csv)

-- name: delete_rows
-- The index is used only if the condition says for each column of the key whether it is null.
DELETE FROM penstock.view_{id} t USING view_changes_{id} c
WHERE c.__is_delete AND c.__mask = %(mask)s AND {same_key}

-- name: upsert_rows
-- Rows in the order of the index touch each of its pages once.
INSERT INTO penstock.view_{id} ({names}, updated_at)
SELECT {values}, %(now)s FROM view_changes_{id} c WHERE NOT c.__is_delete
ORDER BY {order}
ON CONFLICT ({key}) DO UPDATE SET {updates}, updated_at = excluded.updated_at

-- name: insert_rows
INSERT INTO penstock.view_{id} ({names}, updated_at)
SELECT {values}, %(now)s FROM view_changes_{id} c WHERE NOT c.__is_delete
