-- What all cycles of a query came to, for metrics: the ledger forgets, these do not. Counts by how long a cycle took, and
-- by how old its oldest event was when its result could be seen, are for the ranges of penstock.cycle_bounds().

ALTER TABLE penstock.cycles
    -- When the oldest event that it read was appended, and up to where event time had come, where windows are closed by it.
    ADD COLUMN oldest_at timestamptz,
    ADD COLUMN watermark timestamptz;

CREATE TABLE penstock.query_totals (
    query_id      integer PRIMARY KEY REFERENCES penstock.queries ON DELETE CASCADE,
    cycles        bigint NOT NULL DEFAULT 0,
    failed        bigint NOT NULL DEFAULT 0,
    events_in     bigint NOT NULL DEFAULT 0,
    events_out    bigint NOT NULL DEFAULT 0,
    windows       bigint NOT NULL DEFAULT 0,
    late          bigint NOT NULL DEFAULT 0,
    dead          bigint NOT NULL DEFAULT 0,
    cycle_counts  bigint[] NOT NULL DEFAULT '{}',
    cycle_seconds double precision NOT NULL DEFAULT 0,
    fresh_counts  bigint[] NOT NULL DEFAULT '{}',
    fresh_seconds double precision NOT NULL DEFAULT 0
) WITH (fillfactor = 50);

CREATE FUNCTION penstock.cycle_bounds() RETURNS double precision[]
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN ARRAY[0.05, 0.1, 0.2, 0.3, 0.5, 0.75, 1, 1.5, 2, 3, 5, 10, 30, 60, 300]::double precision[];

-- Counts with one more in the range of a value; of no value, as they were.
CREATE FUNCTION penstock.count_in(counts bigint[], value double precision) RETURNS bigint[]
LANGUAGE sql IMMUTABLE PARALLEL SAFE BEGIN ATOMIC
    SELECT CASE WHEN value IS NULL THEN c.held
           ELSE c.held[:c.place] || (c.held[c.place + 1] + 1) || c.held[c.place + 2:] END
    FROM (SELECT coalesce(nullif(counts, '{}'), array_fill(0::bigint, ARRAY[cardinality(penstock.cycle_bounds()) + 1])) AS held,
                 width_bucket(value, penstock.cycle_bounds()) AS place) AS c;
END;

-- When the oldest event that a group has yet to read was appended. Segments follow each other in time, so only the oldest
-- that holds something unread is looked into, once for each partition.
CREATE FUNCTION penstock.oldest_unread(_group integer, _queue integer, _segment integer) RETURNS timestamptz
LANGUAGE plpgsql STABLE SECURITY DEFINER
SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off
SET enable_mergejoin = off SET jit = off
AS $$
DECLARE
    _oldest integer;
    _partitions bigint[];
    _starts bigint[];
    _found timestamptz;
BEGIN
    SELECT w.segment, array_agg(w.partition_id), array_agg(w.next_offset) INTO _oldest, _partitions, _starts
    FROM (
        SELECT s.partition_id, s.next_offset, coalesce((
            SELECT l.segment FROM penstock.segment_lanes l
            WHERE l.partition_id = s.partition_id AND l.end_offset > s.next_offset ORDER BY l.end_offset LIMIT 1
        ), _segment) AS segment
        FROM penstock.standing_of(_group, _queue, _segment) s WHERE s.end_offset > s.next_offset
    ) w
    GROUP BY w.segment ORDER BY w.segment LIMIT 1;
    IF _oldest IS NULL THEN
        RETURN NULL;
    END IF;
    EXECUTE format('
        SELECT min(k.appended_at) FROM unnest($1, $2) AS w (partition_id, start)
        CROSS JOIN LATERAL (
            SELECT c.appended_at FROM penstock.chunks_%s_%s c
            WHERE c.partition_id = w.partition_id AND c.end_offset > w.start ORDER BY c.end_offset LIMIT 1
        ) k', _queue, _oldest)
    INTO _found USING _partitions, _starts;
    RETURN _found;
EXCEPTION WHEN undefined_table THEN
    RETURN NULL; -- deleted meanwhile
END
$$;

CREATE INDEX dead_letters_waiting_group ON penstock.dead_letters (queue_id, group_name) WHERE redriven_at IS NULL;
