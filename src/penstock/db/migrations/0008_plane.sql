-- The message plane: what its clients tell of queues, their traces, and their streams.

-- A partition is read when nothing was pushed to it for so long.
ALTER TABLE penstock.queues ADD COLUMN quiet_seconds double precision NOT NULL DEFAULT 0;

-- What clients of the message plane tell of a queue and the queue itself has no use for.
CREATE TABLE penstock.plane_queues (
    queue_id  integer PRIMARY KEY REFERENCES penstock.queues ON DELETE CASCADE,
    namespace text,
    task      text,
    options   jsonb NOT NULL
);

-- What consumers note about events on their way.
CREATE TABLE penstock.traces (
    id           bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    partition_id bigint NOT NULL REFERENCES penstock.partitions ON DELETE CASCADE,
    event_offset bigint NOT NULL,
    event_id     text NOT NULL,
    group_name   text NOT NULL,
    kind         text NOT NULL,
    data         jsonb NOT NULL,
    names        text[] NOT NULL,
    created_at   timestamptz NOT NULL DEFAULT clock_timestamp()
);
CREATE INDEX traces_event ON penstock.traces (partition_id, event_id, id);
CREATE INDEX traces_created ON penstock.traces (created_at);

CREATE TABLE penstock.trace_names (
    name     text NOT NULL,
    trace_id bigint NOT NULL REFERENCES penstock.traces ON DELETE CASCADE,
    PRIMARY KEY (name, trace_id)
);
CREATE INDEX trace_names_trace ON penstock.trace_names (trace_id);

-- Queries of other languages' clients, which compute for themselves and keep their state here: many workers share one,
-- each under the lease of a partition. A name is of these or of penstock.queries, never of both.
CREATE TABLE penstock.shared_queries (
    id           integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name         text NOT NULL UNIQUE,
    source_queue text NOT NULL,
    sink_queue   text,
    config_hash  text NOT NULL,
    -- The group that it reads as.
    group_name   text NOT NULL,
    created_at   timestamptz NOT NULL DEFAULT clock_timestamp()
);

CREATE TABLE penstock.shared_state (
    query_id     integer NOT NULL REFERENCES penstock.shared_queries ON DELETE CASCADE,
    partition_id bigint NOT NULL REFERENCES penstock.partitions ON DELETE CASCADE,
    state_key    text COLLATE "C" NOT NULL,
    value        jsonb NOT NULL,
    -- What of it is for people: the key and its window. No key: it is the client's own bookkeeping.
    key          text,
    window_start timestamptz,
    window_end   timestamptz,
    updated_at   timestamptz NOT NULL,
    PRIMARY KEY (query_id, partition_id, state_key)
) WITH (fillfactor = 60, autovacuum_vacuum_scale_factor = 0.1, autovacuum_vacuum_cost_delay = 0);
CREATE INDEX shared_state_partition ON penstock.shared_state (partition_id);

-- The part of the view over all open state that is theirs.
CREATE VIEW penstock.shared_open_state AS
SELECT q.name AS query, s.key, s.window_start, s.window_end,
       CASE WHEN s.window_start IS NOT NULL AND s.value ? 'acc' THEN s.value -> 'acc' ELSE s.value END AS value,
       s.updated_at
FROM penstock.shared_state s JOIN penstock.shared_queries q ON q.id = s.query_id
WHERE s.key IS NOT NULL;

DO $$
DECLARE
    _parts text;
BEGIN
    SELECT string_agg((q.result ->> 'part') || ' UNION ALL ', '' ORDER BY q.id) INTO _parts
    FROM penstock.queries q WHERE q.result IS NOT NULL;
    EXECUTE 'CREATE OR REPLACE VIEW penstock.state AS ' || coalesce(_parts, '')
        || 'SELECT query, key, window_start, window_end, value, updated_at FROM penstock.shared_open_state';
END
$$;
