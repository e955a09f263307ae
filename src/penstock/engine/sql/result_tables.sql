-- name: create_state
CREATE TABLE penstock.state_{id} (
    key          text COLLATE "C" NOT NULL,
    window_start timestamptz NOT NULL,
    window_end   timestamptz NOT NULL,
    -- The partition whose watermark closes the window; 0 for the watermark of all partitions.
    partition_id bigint NOT NULL,
    {definitions},
    updated_at   timestamptz NOT NULL,
    PRIMARY KEY (window_end, key, window_start)
) WITH (fillfactor = 60, autovacuum_vacuum_scale_factor = 0.1, autovacuum_vacuum_cost_delay = 0)

-- name: index_state_keys
CREATE INDEX state_{id}_key ON penstock.state_{id} (key)

-- name: create_history
CREATE TABLE penstock.history_{id} (
    key          text COLLATE "C" NOT NULL,
    window_start timestamptz NOT NULL,
    window_end   timestamptz NOT NULL,
    {definitions},
    closed_at    timestamptz NOT NULL,
    -- How often late events corrected the window.
    revision     integer NOT NULL DEFAULT 0,
    PRIMARY KEY (window_end, key, window_start)
)

-- name: index_history
-- Rows are inserted in the order of this column, so a small BRIN index finds the old ones.
CREATE INDEX history_{id}_closed ON penstock.history_{id} USING brin (closed_at)

-- name: index_history_keys
CREATE INDEX IF NOT EXISTS history_{id}_key ON penstock.history_{id} (key, window_end)

-- name: check_output
-- Checks the output expressions when the query is created and not when a window closes.
SELECT {event} FROM penstock.history_{id} s WHERE false

-- name: create_live_view
CREATE OR REPLACE VIEW penstock_live.{view} AS
SELECT {keys}, s.window_start, s.window_end, {finals}, s.updated_at FROM penstock.state_{id} s{where}

-- name: create_history_view
-- Closed windows and open ones.
CREATE OR REPLACE VIEW penstock_history.{view} AS
SELECT {keys}, s.window_start, s.window_end, {finals}, s.closed_at AS updated_at, false AS is_open, s.revision
FROM penstock.history_{id} s{where}
UNION ALL
SELECT {keys}, s.window_start, s.window_end, {finals}, s.updated_at, true, 0 FROM penstock.state_{id} s{where}

-- name: create_all_states
CREATE OR REPLACE VIEW penstock.state AS
{parts}

-- name: state_part
SELECT {name}::text AS query, nullif(s.key, '') COLLATE "default" AS key, s.window_start, s.window_end,
       {value} AS value, s.updated_at
FROM penstock.state_{id} s

-- name: shared_state_part
-- The windows of queries that clients in other languages compute.
SELECT query, key, window_start, window_end, value, updated_at FROM penstock.client_query_open_state

-- name: drop_views
DROP VIEW IF EXISTS penstock_live.{view}, penstock_history.{view}

-- name: drop_tables
DROP TABLE IF EXISTS penstock.state_{id}, penstock.history_{id}, penstock.waiting_{id}
