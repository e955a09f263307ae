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

-- name: create_current_view
-- One row per key: the latest window that has begun, or else the first that will begin.
CREATE VIEW penstock_live.{view} AS
SELECT {keys}, s.window_start, s.window_end, {finals}, s.updated_at
FROM (
    SELECT DISTINCT ON (s.key) s.* FROM penstock.state_{id} s
    WHERE {of_window}
    ORDER BY s.key, CASE WHEN s.window_start > statement_timestamp() THEN s.window_start END NULLS FIRST,
             s.window_end DESC
) s{where}

-- name: create_current_sliding_view
-- One row per key: the latest sliding window that has ended, whose values do not grow any more. A key without events in
-- it has the next window, in which it is new. The time is that of the latest event, or of the clock while the query runs
-- and no events come. An event from the future does not count.
CREATE VIEW penstock_live.{view} AS
WITH ended AS MATERIALIZED (
    SELECT date_bin({slide}, t.time - {size}, 'epoch'::timestamptz) + {size} AS window_end
    FROM penstock.queries q
    LEFT JOIN LATERAL (
        SELECT c.committed_at FROM penstock.cycles c
        WHERE c.query_id = q.id AND (c.committed_at IS NULL OR c.events_in > 0) ORDER BY c.cycle DESC LIMIT 1
    ) c ON true
    CROSS JOIN LATERAL (
        SELECT CASE
            WHEN q.lease_until > statement_timestamp() AND NOT q.is_paused
                AND c.committed_at < statement_timestamp() - {idle} THEN statement_timestamp()
            ELSE least('epoch'::timestamptz + max(p.high_us) * interval '1 microsecond', statement_timestamp())
        END AS time
        FROM penstock.progress p WHERE p.query_id = q.id AND p.high_us IS NOT NULL
        HAVING count(*) > 0
    ) t
    WHERE q.id = {id}
)
SELECT {keys}, s.window_start, s.window_end, {finals}, s.updated_at
FROM (
    SELECT DISTINCT ON (s.key) s.*
    FROM (
        SELECT s.key, s.window_start, s.window_end, {names}, s.updated_at FROM penstock.state_{id} s
        WHERE s.window_end IN ((SELECT e.window_end FROM ended e), (SELECT e.window_end + {slide} FROM ended e))
        UNION ALL
        SELECT s.key, s.window_start, s.window_end, {names}, s.closed_at FROM penstock.history_{id} s
        WHERE s.window_end IN ((SELECT e.window_end FROM ended e), (SELECT e.window_end + {slide} FROM ended e))
    ) s
    WHERE {of_window}
    ORDER BY s.key, s.window_end
) s{where}

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

-- name: drop_current_view
DROP VIEW IF EXISTS penstock_live.{view}

-- name: drop_tables
DROP TABLE IF EXISTS penstock.state_{id}, penstock.history_{id}, penstock.waiting_{id}
