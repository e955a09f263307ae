-- The schema of release 0.1.0.

-- Queues, partitions, consumer groups, positions, dead letters. The chunks of a queue are in tables of their own,
-- chunks_<queue>_<segment>, which are created with the queue and when a segment is rolled. In names of columns and tables,
-- a lane is a key partition.

CREATE TABLE penstock.queues (
    id                     integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name                   text NOT NULL UNIQUE,
    partitioning           text NOT NULL CHECK (partitioning IN ('key', 'hash')),
    partition_count        integer CHECK (partition_count > 0),
    epoch                  integer NOT NULL DEFAULT 0,
    segment                integer NOT NULL DEFAULT 1,
    lease_seconds          double precision NOT NULL DEFAULT 300,
    retry_limit            integer NOT NULL DEFAULT 3,
    retry_delay_ms         integer NOT NULL DEFAULT 1000,
    delay_seconds          double precision NOT NULL DEFAULT 0,
    retention_seconds      double precision,
    retention_drops_unread boolean NOT NULL DEFAULT false,
    dedup_window_seconds   double precision NOT NULL,
    max_depth_events       bigint DEFAULT 100000,
    max_event_bytes        integer,
    max_redrives           integer NOT NULL DEFAULT 10,
    lanes_warned_at        timestamptz,
    created_at             timestamptz NOT NULL DEFAULT clock_timestamp(),
    expiry_limit           integer,
    overflow               text NOT NULL DEFAULT 'refuse' CHECK (overflow IN ('refuse', 'shed')),
    away_seconds           double precision DEFAULT 86400,
    key_field              text,
    id_field               text,
    time_field             text,
    -- A partition becomes readable after this time without a push.
    quiet_seconds          double precision NOT NULL DEFAULT 0,
    CHECK ((partitioning = 'hash') = (partition_count IS NOT NULL))
);

-- Every append locks the row of its partition. Only sealing a segment updates it.
CREATE TABLE penstock.partitions (
    id         bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    queue_id   integer NOT NULL REFERENCES penstock.queues ON DELETE CASCADE,
    epoch      integer NOT NULL,
    name       text NOT NULL,
    -- True: the name is the key of all events. False: each event stores its key.
    is_lane    boolean NOT NULL DEFAULT true,
    sealed_end bigint NOT NULL DEFAULT 0,
    sealed_at  timestamptz NOT NULL DEFAULT 'epoch',
    UNIQUE (queue_id, epoch, name)
);

CREATE TABLE penstock.segments (
    queue_id   integer NOT NULL REFERENCES penstock.queues ON DELETE CASCADE,
    segment    integer NOT NULL,
    has_ids    boolean NOT NULL,
    created_at timestamptz NOT NULL,
    sealed_at  timestamptz,
    PRIMARY KEY (queue_id, segment)
);

-- The offsets of a partition in each sealed segment. A lookup by offset reads one table, however many segments exist.
CREATE TABLE penstock.segment_lanes (
    queue_id     integer NOT NULL,
    segment      integer NOT NULL,
    partition_id bigint NOT NULL,
    first_offset bigint NOT NULL,
    end_offset   bigint NOT NULL,
    last_at      timestamptz NOT NULL,
    PRIMARY KEY (partition_id, end_offset),
    FOREIGN KEY (queue_id, segment) REFERENCES penstock.segments ON DELETE CASCADE
);
CREATE INDEX segment_lanes_segment ON penstock.segment_lanes (queue_id, segment);

CREATE TABLE penstock.groups (
    id              integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    queue_id        integer NOT NULL REFERENCES penstock.queues ON DELETE CASCADE,
    name            text NOT NULL,
    epoch           integer NOT NULL,
    subscribed_from text NOT NULL,
    query_id        text,
    -- Events that retention dropped before the group read them.
    dropped         bigint NOT NULL DEFAULT 0,
    created_at      timestamptz NOT NULL DEFAULT clock_timestamp(),
    -- Whether its lag counts for the depth limit of the queue, and the time of its last pop.
    counts          boolean NOT NULL DEFAULT true,
    seen_at         timestamptz NOT NULL DEFAULT clock_timestamp(),
    UNIQUE (queue_id, name)
);

-- The partitions of a group. State 0: active. 1: parked, because it is drained and idle; the next push sets it to 0.
-- 2: held, because the group has not drained the previous epoch. 3: parked at a gate until gate_lanes.wakes_at.
CREATE TABLE penstock.cursors (
    group_id     integer NOT NULL REFERENCES penstock.groups ON DELETE CASCADE,
    partition_id bigint NOT NULL REFERENCES penstock.partitions ON DELETE CASCADE,
    state        smallint NOT NULL DEFAULT 0,
    PRIMARY KEY (group_id, partition_id)
) WITH (fillfactor = 70);
CREATE INDEX cursors_active ON penstock.cursors (group_id, partition_id) WHERE state = 0;
CREATE INDEX cursors_parked ON penstock.cursors (partition_id) WHERE state = 1;
CREATE INDEX cursors_partition ON penstock.cursors (partition_id);

-- The position of a group in a partition. Rows are never updated: each change inserts a version and deletes the previous
-- one. So the newest is the last entry of the index, however many dead versions a long transaction keeps.
CREATE TABLE penstock.positions (
    group_id     integer NOT NULL,
    partition_id bigint NOT NULL,
    version      bigint NOT NULL,
    next_offset  bigint NOT NULL,
    lease_id     uuid,
    lease_end    bigint NOT NULL,
    available_at timestamptz NOT NULL,
    attempts     integer NOT NULL DEFAULT 0,
    -- Offsets from next_offset on that are dead letters and are not delivered again.
    skipped      bigint[] NOT NULL DEFAULT '{}',
    moved_at     timestamptz,
    -- Leases that expired without an ack since next_offset last moved. Events before suspect_end were in such a lease
    -- and are delivered one at a time.
    expiries     integer NOT NULL DEFAULT 0,
    suspect_end  bigint NOT NULL DEFAULT 0,
    PRIMARY KEY (group_id, partition_id, version)
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 10000, autovacuum_vacuum_cost_delay = 0);

CREATE TABLE penstock.dead_letters (
    id              bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    queue_id        integer NOT NULL REFERENCES penstock.queues ON DELETE CASCADE,
    partition_id    bigint NOT NULL,
    event_offset    bigint NOT NULL,
    group_name      text NOT NULL,
    key             text,
    event_id        text,
    event_time      timestamptz,
    appended_at     timestamptz NOT NULL,
    headers         text,
    data            text NOT NULL,
    stage           text NOT NULL,
    error           text NOT NULL,
    traceback       text,
    attempts        integer NOT NULL,
    failed_at       timestamptz NOT NULL,
    first_failed_at timestamptz NOT NULL,
    redrives        integer NOT NULL DEFAULT 0,
    redriven_at     timestamptz,
    history         jsonb NOT NULL DEFAULT '[]'
);
CREATE INDEX dead_letters_waiting ON penstock.dead_letters (queue_id, id) WHERE redriven_at IS NULL;
CREATE INDEX dead_letters_redriven ON penstock.dead_letters (redriven_at) WHERE redriven_at IS NOT NULL;

CREATE TABLE penstock.requests (
    idempotency_key text PRIMARY KEY,
    fingerprint     bytea NOT NULL,
    result          bytea NOT NULL,
    created_at      timestamptz NOT NULL
);
CREATE INDEX requests_created ON penstock.requests (created_at);

-- Positions and head offsets of a group, from the open segment of its queue and the sealed ends. SECURITY DEFINER, so
-- that roles which read the views below need no right to read events. The settings keep the plan independent of the
-- statistics of new tables.
CREATE FUNCTION penstock.standing_of(_group integer, _queue integer, _segment integer)
RETURNS TABLE (partition text, partition_id bigint, next_offset bigint, end_offset bigint, leased boolean)
LANGUAGE plpgsql STABLE SECURITY DEFINER
SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off
SET enable_mergejoin = off SET jit = off
AS $$
BEGIN
    RETURN QUERY EXECUTE format('
        SELECT t.name, t.id, p.next_offset,
               coalesce((SELECT k.end_offset FROM penstock.chunks_%s_%s k
                         WHERE k.partition_id = t.id ORDER BY k.end_offset DESC LIMIT 1), t.sealed_end),
               p.lease_id IS NOT NULL AND p.available_at > clock_timestamp()
        FROM penstock.cursors c
        JOIN penstock.partitions t ON t.id = c.partition_id
        CROSS JOIN LATERAL (
            SELECT * FROM penstock.positions p
            WHERE p.group_id = c.group_id AND p.partition_id = c.partition_id ORDER BY p.version DESC LIMIT 1
        ) p
        WHERE c.group_id = $1 AND c.state <> 1', _queue, _segment)
    USING _group;
EXCEPTION WHEN undefined_table THEN
    RETURN; -- the queue was deleted
END
$$;

-- The partitions of a queue with their first offset and the offset after the last.
CREATE FUNCTION penstock.partitions_of(_queue integer, _segment integer)
RETURNS TABLE (partition text, partition_id bigint, first_offset bigint, end_offset bigint)
LANGUAGE plpgsql STABLE SECURITY DEFINER
SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off
SET enable_mergejoin = off SET jit = off
AS $$
BEGIN
    RETURN QUERY EXECUTE format('
        SELECT t.name, t.id,
               coalesce((SELECT l.first_offset FROM penstock.segment_lanes l
                         WHERE l.partition_id = t.id ORDER BY l.end_offset LIMIT 1), t.sealed_end),
               coalesce((SELECT k.end_offset FROM penstock.chunks_%s_%s k
                         WHERE k.partition_id = t.id ORDER BY k.end_offset DESC LIMIT 1), t.sealed_end)
        FROM penstock.partitions t WHERE t.queue_id = $1', _queue, _segment)
    USING _queue;
EXCEPTION WHEN undefined_table THEN
    RETURN;
END
$$;

-- Lag of each group by partition, without parked partitions.
CREATE VIEW penstock.partition_lag AS
SELECT q.name AS queue, g.name AS group_name, s.partition, s.partition_id, s.next_offset, s.end_offset,
       greatest(s.end_offset - s.next_offset, 0) AS lag, s.leased
FROM penstock.queues q
JOIN penstock.groups g ON g.queue_id = q.id
CROSS JOIN LATERAL penstock.standing_of(g.id, q.id, q.segment) s;

-- Ends a statement that was prepared for a previous layout of the queue. The caller reloads the layout and retries.
CREATE FUNCTION penstock.refuse(reason text) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'penstock: %', reason USING ERRCODE = 'PS001';
END
$$;

-- Queries on Spark: their drivers, their progress and their cycles. The results of a query are in tables of its own,
-- state_<query> and history_<query>, which are created with it. The views for users are in schemas of their own.

-- CREATE SCHEMA IF NOT EXISTS would need CREATE on the database even if the schemas exist.
DO $$
BEGIN
    IF to_regnamespace('penstock_live') IS NULL THEN
        CREATE SCHEMA penstock_live;
    END IF;
    IF to_regnamespace('penstock_history') IS NULL THEN
        CREATE SCHEMA penstock_history;
    END IF;
END
$$;

CREATE TABLE penstock.queries (
    id                integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name              text NOT NULL UNIQUE,
    -- The definition that the result depends on, one line for each part, and its hash.
    description       text[] NOT NULL,
    fingerprint       text NOT NULL,
    -- The types of the fields that it reads, when they are known.
    fields            jsonb,
    -- The columns of the result: name, type and expression.
    result            jsonb,
    sink_queue        text,
    -- The number of the last planned cycle. No number is used twice.
    cycle             bigint NOT NULL DEFAULT 0,
    -- The watermark of all partitions: windows that end before it are closed. Used if the query has its own key.
    closed_us         bigint,
    -- Fencing token: only the driver that got the last number may commit.
    fence             bigint NOT NULL DEFAULT 0,
    driver            text,
    lease_until       timestamptz NOT NULL DEFAULT 'epoch',
    -- State of the search for an event that makes every cycle fail.
    suspicion         bytea,
    history_seconds   double precision NOT NULL,
    created_at        timestamptz NOT NULL DEFAULT clock_timestamp(),
    -- A paused query starts no cycles. Drivers that started before stopped_at end.
    is_paused         boolean NOT NULL DEFAULT false,
    stopped_at        timestamptz,
    -- Time of the last decision of its gates. It never goes back.
    gate_time         timestamptz NOT NULL DEFAULT 'epoch'
);

-- Event time of a query in each partition. high_us: the latest event time that was read. floor_us: windows that end
-- before it were closed by the clock of the database.
CREATE TABLE penstock.progress (
    query_id     integer NOT NULL REFERENCES penstock.queries ON DELETE CASCADE,
    partition_id bigint NOT NULL,
    high_us      bigint,
    floor_us     bigint,
    last_at      timestamptz NOT NULL,
    PRIMARY KEY (query_id, partition_id)
) WITH (fillfactor = 50);

-- The ledger: every cycle of every query.
CREATE TABLE penstock.cycles (
    query_id     integer NOT NULL REFERENCES penstock.queries ON DELETE CASCADE,
    cycle        bigint NOT NULL,
    fence        bigint NOT NULL,
    plan         bytea NOT NULL,
    planned      bigint NOT NULL,
    planned_at   timestamptz NOT NULL DEFAULT clock_timestamp(),
    started_at   timestamptz,
    committed_at timestamptz,
    events_in    bigint,
    events_out   bigint,
    windows      bigint,
    late         bigint,
    dead         bigint,
    -- Milliseconds of each phase.
    took         jsonb,
    error        text,
    -- Append time of the oldest event that it read, and the watermark, if windows are closed by event time.
    oldest_at    timestamptz,
    watermark    timestamptz,
    -- Events that Python conditions filtered out.
    dropped      bigint,
    PRIMARY KEY (query_id, cycle)
) WITH (fillfactor = 70);

-- Reports of the tasks of a cycle. A crash of PostgreSQL empties the table; then the cycle is repeated.
CREATE UNLOGGED TABLE penstock.reports (
    query_id integer NOT NULL,
    fence    bigint NOT NULL,
    cycle    bigint NOT NULL,
    stage    integer NOT NULL,
    task     integer NOT NULL,
    attempt  bigint NOT NULL,
    report   bytea NOT NULL,
    PRIMARY KEY (query_id, fence, cycle, stage, task, attempt)
);

CREATE FUNCTION penstock.moment(us bigint) RETURNS timestamptz
LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
RETURN 'epoch'::timestamptz + us * interval '1 microsecond';

CREATE FUNCTION penstock.micros(moment timestamptz) RETURNS bigint
LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
RETURN (extract(epoch FROM moment) * 1000000)::bigint;

-- Casts with the semantics of Spark's TRY_CAST. They return NULL in place of an error, because an error would keep the
-- window from closing for ever. They check the text before they cast it, because PostgreSQL casts constants during
-- planning. They do not call each other, because readers of the views need no USAGE on this schema. If `whole`, text with
-- a decimal point is not a number.
CREATE FUNCTION penstock.as_number(value anyelement, whole boolean) RETURNS numeric
LANGUAGE sql STABLE STRICT PARALLEL SAFE AS $$
    SELECT CASE
        WHEN pg_typeof(value) = 'boolean'::regtype THEN CASE value::text WHEN 'true' THEN 1 ELSE 0 END
        WHEN pg_typeof(value) = 'timestamptz'::regtype THEN extract(epoch FROM value::text::timestamptz)
        WHEN whole AND pg_typeof(value) = 'text'::regtype AND value::text !~ '^\s*[+-]?\d+\s*$' THEN NULL
        WHEN length(value::text) < 1000 AND value::text ~ '^\s*[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d{1,3})?\s*$'
            THEN value::text::numeric
    END
$$;

-- Truncates to an integer; NULL if it exceeds `highest`, the maximum of the type.
CREATE FUNCTION penstock.as_whole(number numeric, highest numeric) RETURNS numeric
LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE AS $$
    SELECT CASE WHEN trunc(number) BETWEEN -highest - 1 AND highest THEN trunc(number) END
$$;

CREATE FUNCTION penstock.as_decimal(number numeric, digits integer, after_point integer) RETURNS numeric
LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE AS $$
    SELECT CASE WHEN abs(n.rounded) < 10::numeric ^ (digits - after_point) THEN n.rounded END
    FROM (SELECT round(number, after_point) AS rounded) AS n
$$;

CREATE FUNCTION penstock.as_double(number numeric) RETURNS double precision
LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE AS $$
    SELECT CASE
        WHEN abs(number) > 1.7976931348623157e308 THEN NULL
        WHEN abs(number) < 5e-324 THEN 0
        ELSE number::double precision
    END
$$;

CREATE FUNCTION penstock.as_boolean(value anyelement) RETURNS boolean
LANGUAGE sql STABLE STRICT PARALLEL SAFE AS $$
    SELECT CASE
        WHEN lower(trim(value::text)) IN ('t', 'true', 'y', 'yes') THEN true
        WHEN lower(trim(value::text)) IN ('f', 'false', 'n', 'no') THEN false
        WHEN value::text ~ '\d' AND (pg_typeof(value) <> 'text'::regtype OR trim(value::text) IN ('0', '1'))
            THEN value::text ~ '[1-9]'
    END
$$;

-- Formats timestamps as Spark does, in UTC.
CREATE FUNCTION penstock.as_text(value anyelement) RETURNS text
LANGUAGE sql STABLE STRICT PARALLEL SAFE AS $$
    SELECT CASE pg_typeof(value)
        WHEN 'timestamptz'::regtype THEN
            regexp_replace(to_char(value::text::timestamptz AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI:SS.US'), '\.?0+$', '')
        ELSE value::text
    END
$$;

-- Numbers are seconds since 1970. Text without a time zone is in UTC.
CREATE FUNCTION penstock.as_moment(value anyelement) RETURNS timestamptz
LANGUAGE plpgsql STABLE STRICT AS $$
DECLARE
    spelt constant text := trim(value::text);
BEGIN
    IF pg_typeof(value) <> ALL ('{text,date,timestamp,timestamptz}'::regtype[]) THEN
        RETURN to_timestamp(spelt::double precision);
    END IF;
    RETURN CASE
        WHEN pg_typeof(value) = 'timestamptz'::regtype THEN spelt::timestamptz
        WHEN pg_typeof(value) = 'text'::regtype AND spelt !~ '^\d{4}-\d{1,2}-\d{1,2}' THEN NULL
        WHEN pg_typeof(value) = ANY ('{text,date,timestamp}'::regtype[]) AND spelt ~ '^[-0-9]+([ T][0-9:.]+)?$'
            THEN (spelt || ' UTC')::timestamptz
        WHEN pg_typeof(value) = 'text'::regtype THEN spelt::timestamptz
    END;
EXCEPTION WHEN data_exception THEN
    RETURN NULL;
END
$$;

-- Adds two doubles. Overflow gives infinity; PostgreSQL's own addition would raise an error.
CREATE FUNCTION penstock.add_doubles(a double precision, b double precision) RETURNS double precision
LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE AS $$
    SELECT CASE WHEN n.total > 1.7976931348623157e308 THEN 'Infinity' WHEN n.total < -1.7976931348623157e308 THEN '-Infinity'
           ELSE n.total::double precision END
    FROM (SELECT a::text::numeric + b::text::numeric AS total) AS n
$$;

-- Mean with 28 digits, like Python's Decimal. A mean that is too small for the scale is 0.
CREATE FUNCTION penstock.mean(total numeric, events bigint) RETURNS numeric
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT CASE WHEN events IS NULL OR events = 0 OR total IS NULL THEN NULL WHEN q = 0 THEN 0
           ELSE trim_scale(round(q, 27 - floor(log(abs(q)))::integer)) END
    FROM (SELECT round(total, 60) / events AS q) AS d
$$;

-- Union of sorted sets; of hashes, the lowest 1,024.
CREATE FUNCTION penstock.set_union(a text[], b text[]) RETURNS text[]
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT CASE WHEN a IS NULL THEN b WHEN b IS NULL THEN a
           ELSE ARRAY(SELECT x FROM unnest(a) AS x UNION SELECT x FROM unnest(b) AS x ORDER BY 1) END
$$;

CREATE FUNCTION penstock.lowest(a bigint[], b bigint[]) RETURNS bigint[]
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT CASE WHEN a IS NULL THEN b WHEN b IS NULL THEN a
           ELSE ARRAY(SELECT x FROM unnest(a) AS x UNION SELECT x FROM unnest(b) AS x ORDER BY 1 LIMIT 1024) END
$$;

-- Estimates the number of distinct values from the lowest 1,024 of their 64-bit hashes.
CREATE FUNCTION penstock.distinct_estimate(lowest bigint[]) RETURNS bigint
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT CASE WHEN lowest IS NULL THEN 0 WHEN cardinality(lowest) < 1024 THEN cardinality(lowest)
           ELSE round(1023 / ((lowest[1024]::numeric + 9223372036854775808) / 18446744073709551616))::bigint END
$$;

-- Adds two maps of counts.
CREATE FUNCTION penstock.add_counts(a jsonb, b jsonb) RETURNS jsonb
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT CASE WHEN a IS NULL THEN b WHEN b IS NULL THEN a ELSE (
        SELECT coalesce(jsonb_object_agg(n.name, n.events), '{}') FROM (
            SELECT e.key AS name, sum(e.value::bigint)::bigint AS events
            FROM (SELECT * FROM jsonb_each_text(a) UNION ALL SELECT * FROM jsonb_each_text(b)) AS e GROUP BY e.key
        ) AS n) END
$$;

CREATE FUNCTION penstock.top_counts(counts jsonb, k integer) RETURNS jsonb
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT coalesce(jsonb_agg(jsonb_build_object('value', t.name, 'count', t.events)
                              ORDER BY t.events DESC, t.name COLLATE "C"), '[]')
    FROM (SELECT e.key AS name, e.value::bigint AS events FROM jsonb_each_text(counts) AS e
          ORDER BY 2 DESC, e.key COLLATE "C" LIMIT k) AS t
$$;

-- Percentiles of values that were counted in buckets of 2 percent. Bucket b contains the values near
-- sign(b) * 1.02^(|b| - 10000); bucket 0 contains the zeros.
CREATE FUNCTION penstock.bucket_value(bucket integer) RETURNS double precision
LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
RETURN CASE WHEN bucket = 0 THEN 0
       ELSE sign(bucket::double precision) * 2 * power(1.02::double precision, abs(bucket) - 10000) / 2.02 END;

-- BEGIN ATOMIC binds the called function at creation, so readers of the views need no USAGE on this schema.
CREATE FUNCTION penstock.bucket_percentile(counts jsonb, fraction double precision) RETURNS double precision
LANGUAGE sql IMMUTABLE PARALLEL SAFE BEGIN ATOMIC
    SELECT penstock.bucket_value(r.bucket) FROM (
        SELECT b.bucket, sum(b.events) OVER (ORDER BY b.bucket) AS upto, sum(b.events) OVER () AS whole
        FROM (SELECT e.key::integer AS bucket, e.value::bigint AS events FROM jsonb_each_text(counts) AS e) AS b
    ) AS r
    WHERE r.upto > fraction * (r.whole - 1) ORDER BY r.bucket LIMIT 1;
END;

-- Merges the moments of two samples: count, mean, sum of squared deviations. Squares that overflow become infinite, and
-- differences whose squares underflow become 0.
CREATE FUNCTION penstock.join_moments(a double precision[], b double precision[]) RETURNS double precision[]
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT CASE WHEN a IS NULL OR a[1] = 0 THEN b WHEN b IS NULL OR b[1] = 0 THEN a
           WHEN greatest(abs(a[2]), abs(b[2])) > 1e120 OR greatest(a[3], b[3]) > 1e300
               THEN ARRAY[a[1] + b[1], 'Infinity', 'Infinity']
           ELSE ARRAY[a[1] + b[1], a[2] + d.apart * b[1] / (a[1] + b[1]),
                      a[3] + b[3] + d.apart * d.apart * a[1] * b[1] / (a[1] + b[1])] END
    FROM (SELECT CASE WHEN abs(b[2] - a[2]) > 1e-150 THEN b[2] - a[2] ELSE 0 END AS apart) AS d
$$;

-- Options of Queen's protocol that the queue itself does not use.
CREATE TABLE penstock.plane_queues (
    queue_id  integer PRIMARY KEY REFERENCES penstock.queues ON DELETE CASCADE,
    namespace text,
    task      text,
    options   jsonb NOT NULL
);

-- Trace messages of consumers about events (Queen's protocol).
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

-- Queries that clients of Queen's protocol compute. They store their state here. Workers share a query, each with the
-- lease of a partition. A name is used either here or in penstock.queries.
CREATE TABLE penstock.shared_queries (
    id           integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name         text NOT NULL UNIQUE,
    source_queue text NOT NULL,
    sink_queue   text,
    config_hash  text NOT NULL,
    -- Its consumer group.
    group_name   text NOT NULL,
    created_at   timestamptz NOT NULL DEFAULT clock_timestamp()
);

CREATE TABLE penstock.shared_state (
    query_id     integer NOT NULL REFERENCES penstock.shared_queries ON DELETE CASCADE,
    partition_id bigint NOT NULL REFERENCES penstock.partitions ON DELETE CASCADE,
    state_key    text COLLATE "C" NOT NULL,
    value        jsonb NOT NULL,
    -- Key and window for the views. Rows without a key are internal state of the client.
    key          text,
    window_start timestamptz,
    window_end   timestamptz,
    updated_at   timestamptz NOT NULL,
    PRIMARY KEY (query_id, partition_id, state_key)
) WITH (fillfactor = 60, autovacuum_vacuum_scale_factor = 0.1, autovacuum_vacuum_cost_delay = 0);
CREATE INDEX shared_state_partition ON penstock.shared_state (partition_id);

-- The state of those queries in the view penstock.state.
CREATE VIEW penstock.shared_open_state AS
SELECT q.name AS query, s.key, s.window_start, s.window_end,
       CASE WHEN s.window_start IS NOT NULL AND s.value ? 'acc' THEN s.value -> 'acc' ELSE s.value END AS value,
       s.updated_at
FROM penstock.shared_state s JOIN penstock.shared_queries q ON q.id = s.query_id
WHERE s.key IS NOT NULL;

-- Open state of all queries. The view is replaced when a query is added or deleted.
CREATE VIEW penstock.state AS
SELECT query, key, window_start, window_end, value, updated_at FROM penstock.shared_open_state;

-- Events that were dropped because a queue was full. Upkeep merges the rows.
CREATE TABLE penstock.shed (
    queue_id integer NOT NULL REFERENCES penstock.queues ON DELETE CASCADE,
    events   bigint NOT NULL,
    shed_at  timestamptz NOT NULL
);
CREATE INDEX shed_queue ON penstock.shed (queue_id);

-- Uploads in progress. Their chunks are in the table of the queue, with the negative id of the upload as partition.
CREATE TABLE penstock.uploads (
    id       bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    queue_id integer NOT NULL REFERENCES penstock.queues ON DELETE CASCADE,
    seen_at  timestamptz NOT NULL,
    -- The writer and the version of the write that it belongs to, if any.
    writer   text,
    version  bigint
);

-- The last write of each writer that numbers its writes, such as a Spark streaming query. A repeated write is detected.
CREATE TABLE penstock.writes (
    queue_id   integer NOT NULL REFERENCES penstock.queues ON DELETE CASCADE,
    writer     text NOT NULL,
    version    bigint NOT NULL,
    -- The run of the writer. A new run may number its writes from the start.
    run        text NOT NULL,
    -- Whether to keep the row for long, because the write may be repeated after days.
    is_kept    boolean NOT NULL,
    events     bigint NOT NULL,
    written_at timestamptz NOT NULL,
    PRIMARY KEY (queue_id, writer)
);

-- Lag of each group. The cost depends on the active partitions, not on the number of events.
CREATE VIEW penstock.lag AS
SELECT q.name AS queue, g.name AS group_name,
       (SELECT count(*) FROM penstock.cursors c WHERE c.group_id = g.id) AS partitions,
       s.partitions_behind, s.lag, s.leases, g.counts, w.seen_at,
       -- A group without pops for long does not count for the depth limit of the queue.
       coalesce(w.seen_at < clock_timestamp() - make_interval(secs => q.away_seconds + q.delay_seconds), false) AS away
FROM penstock.queues q
JOIN penstock.groups g ON g.queue_id = q.id
LEFT JOIN penstock.queries r ON r.name = g.query_id
CROSS JOIN LATERAL (SELECT greatest(g.seen_at, r.lease_until) AS seen_at) w
CROSS JOIN LATERAL (
    SELECT count(*) FILTER (WHERE s.end_offset > s.next_offset) AS partitions_behind,
           coalesce(sum(greatest(s.end_offset - s.next_offset, 0)), 0)::bigint AS lag,
           count(*) FILTER (WHERE s.leased) AS leases
    FROM penstock.standing_of(g.id, q.id, q.segment) s
) s;

-- Events in each queue.
CREATE VIEW penstock.depth AS
SELECT q.name AS queue, d.partitions, d.events, d.appended, q.max_depth_events,
       (SELECT coalesce(sum(s.events), 0)::bigint FROM penstock.shed s WHERE s.queue_id = q.id) AS shed
FROM penstock.queues q
CROSS JOIN LATERAL (
    SELECT count(*) AS partitions, coalesce(sum(p.end_offset - p.first_offset), 0)::bigint AS events,
           coalesce(sum(p.end_offset), 0)::bigint AS appended
    FROM penstock.partitions_of(q.id, q.segment) p
) d;

-- Totals of all cycles of a query, for metrics. The ledger drops old cycles, the totals do not. The histograms of the
-- duration of cycles and of the age of the oldest event at the commit have the bounds of penstock.cycle_bounds().
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

-- Adds a value to a histogram. NULL leaves it unchanged.
CREATE FUNCTION penstock.count_in(counts bigint[], value double precision) RETURNS bigint[]
LANGUAGE sql IMMUTABLE PARALLEL SAFE BEGIN ATOMIC
    SELECT CASE WHEN value IS NULL THEN c.held
           ELSE c.held[:c.place] || (c.held[c.place + 1] + 1) || c.held[c.place + 2:] END
    FROM (SELECT coalesce(nullif(counts, '{}'), array_fill(0::bigint, ARRAY[cardinality(penstock.cycle_bounds()) + 1])) AS held,
                 width_bucket(value, penstock.cycle_bounds()) AS place) AS c;
END;

-- Append time of the oldest unread event of a group. Segments are ordered by time, so only the oldest segment with unread
-- events is read, once for each partition.
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
    RETURN NULL; -- the queue was deleted
END
$$;

CREATE INDEX dead_letters_waiting_group ON penstock.dead_letters (queue_id, group_name) WHERE redriven_at IS NULL;

-- API keys of the server. Only the SHA-256 of the secret is stored. After a rotation the previous secret stays valid for
-- a while.
CREATE TABLE penstock.api_keys (
    id             text PRIMARY KEY,
    name           text NOT NULL,
    roles          text[] NOT NULL,
    -- Patterns: * matches any characters, ? one character.
    queues         text[] NOT NULL,
    hash           bytea NOT NULL,
    previous_hash  bytea,
    previous_until timestamptz,
    created_at     timestamptz NOT NULL DEFAULT clock_timestamp(),
    rotated_at     timestamptz,
    expires_at     timestamptz,
    revoked_at     timestamptz,
    last_used_at   timestamptz
);

-- Audit log: actions of administrators, changes of keys, and refused attempts.
CREATE TABLE penstock.audit (
    id         bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at         timestamptz NOT NULL DEFAULT clock_timestamp(),
    who        text NOT NULL,
    action     text NOT NULL,
    subject    text NOT NULL,
    address    text NOT NULL,
    outcome    text NOT NULL,
    request_id text NOT NULL
);

-- Rate-limit gates: definitions, state of each key partition, and limits that were changed at runtime.

-- The gates of a query, as its stream defines them. amount: capacity or limit. rate: tokens per second.
CREATE TABLE penstock.gate_rules (
    query_id   integer NOT NULL REFERENCES penstock.queries ON DELETE CASCADE,
    gate       smallint NOT NULL,
    kind       text NOT NULL CHECK (kind IN ('token_bucket', 'sliding_window', 'concurrency')),
    amount     numeric NOT NULL,
    rate       numeric,
    window_us  bigint,
    group_name text,
    shared     boolean NOT NULL,
    PRIMARY KEY (query_id, gate)
);

-- The state of a key partition of a query with gates. passed: offsets that are decided. allowed: events that passed.
-- next_at: earliest time at which its first event can pass. wakes_at: the same while its cursor is parked (state 3).
-- wants: number of offsets that its driver buffers. put_back: events that cycles up to this number buffered are no longer
-- buffered.
CREATE TABLE penstock.gate_lanes (
    query_id       integer NOT NULL REFERENCES penstock.queries ON DELETE CASCADE,
    partition_id   bigint NOT NULL,
    key            text NOT NULL,
    passed         bigint NOT NULL DEFAULT 0,
    allowed        bigint NOT NULL DEFAULT 0,
    denied_since   timestamptz,
    next_at        timestamptz,
    wakes_at       timestamptz,
    waits_for_acks boolean NOT NULL DEFAULT false,
    deficit        bigint NOT NULL DEFAULT 0,
    wants          integer NOT NULL,
    decided_at     timestamptz NOT NULL,
    put_back       bigint NOT NULL DEFAULT 0,
    PRIMARY KEY (query_id, partition_id)
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.1, autovacuum_vacuum_cost_delay = 0);
CREATE INDEX gate_lanes_key ON penstock.gate_lanes (query_id, key);
CREATE INDEX gate_lanes_waiting ON penstock.gate_lanes (query_id, wakes_at) WHERE wakes_at IS NOT NULL;

-- The state of a gate for a key partition; partition 0 if all keys share the gate. amount, rate and window_us are those
-- in force at the time of level. Costs are in billionths.
CREATE TABLE penstock.gate_states (
    query_id     integer NOT NULL REFERENCES penstock.queries ON DELETE CASCADE,
    partition_id bigint NOT NULL,
    gate         smallint NOT NULL,
    amount       numeric NOT NULL,
    rate         numeric,
    window_us    bigint,
    at_us        bigint NOT NULL,
    level        numeric,
    grant_times  bigint[],
    grant_costs  bigint[],
    cost_total   numeric NOT NULL DEFAULT 0,
    turn         bigint NOT NULL DEFAULT 0,
    PRIMARY KEY (query_id, partition_id, gate)
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.1, autovacuum_vacuum_cost_delay = 0);

-- Limits that were changed at runtime, by query and key; key '' is for all keys. Gate 0 has the settings of the key as a
-- whole: paused, held until a time, and its weight. The rows survive a reset of the query.
CREATE TABLE penstock.gate_limits (
    query      text NOT NULL,
    key        text NOT NULL,
    gate       smallint NOT NULL,
    amount     numeric CHECK (amount BETWEEN 0.000000001 AND 1000000000),
    rate       numeric CHECK (rate BETWEEN 0.000000001 AND 1000000000),
    window_us  bigint CHECK (window_us > 0),
    weight     integer CHECK (weight > 0),
    paused     boolean,
    hold_until timestamptz CHECK (hold_until BETWEEN '1970-01-01 00:00+00' AND '9000-01-01 00:00+00'),
    changed_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (query, key, gate)
);

-- Tokens in a bucket that had `level` at at_us and is refilled up to its capacity. A hold empties it; the refill starts
-- when the hold ends.
CREATE FUNCTION penstock.tokens(amount numeric, rate numeric, level numeric, at_us bigint, hold_us bigint, now_us bigint)
RETURNS numeric LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN least(amount, CASE WHEN hold_us > least(at_us, now_us) THEN 0 ELSE level END
             + rate * 0.000001 * greatest(now_us - greatest(at_us, hold_us), 0));

-- Settles buckets after limits of these keys of these queries have changed; key '' means all keys and the shared gate,
-- partition 0. Until now a bucket was refilled with its previous limits and holds; from now on the new ones apply. A
-- bucket without a row is full. If a hold empties it, it gets a row. Waiting key partitions are woken. The locked rows of
-- penstock.queries keep drivers from passing events meanwhile. A nested loop finds few partitions by index; for many, it
-- is disabled, because the statistics of the tables may be wrong.
CREATE FUNCTION penstock.settle_gates(names text[], keys text[], holds timestamptz[]) RETURNS void
LANGUAGE plpgsql SET enable_nestloop = on AS $$
BEGIN
    PERFORM FROM penstock.queries WHERE name = ANY(names) ORDER BY id FOR UPDATE;
    UPDATE penstock.queries SET gate_time = greatest(gate_time, clock_timestamp()) WHERE name = ANY(names);
    IF cardinality(names) > 50 OR '' = ANY(keys) THEN
        SET LOCAL enable_nestloop = off;
    END IF;
    EXECUTE $settle$
    WITH changed AS (
        SELECT q.id AS query_id, q.name, penstock.micros(q.gate_time) AS now_us, c.key, max(c.hold_until) AS hold_until
        FROM unnest($1, $2, $3) AS c (name, key, hold_until) JOIN penstock.queries q ON q.name = c.name
        GROUP BY q.id, q.name, q.gate_time, c.key
    ), meant AS (
        SELECT m.query_id, m.name, m.now_us, m.partition_id, m.key, max(m.hold_until) AS hold_until
        FROM (
            SELECT c.*, l.partition_id
            FROM changed c JOIN penstock.gate_lanes l ON l.query_id = c.query_id AND l.key = c.key
            UNION ALL
            SELECT c.query_id, c.name, c.now_us, l.key, c.hold_until, l.partition_id
            FROM changed c JOIN penstock.gate_lanes l ON l.query_id = c.query_id WHERE c.key = ''
            UNION ALL
            SELECT c.*, 0 FROM changed c WHERE c.key = ''
            UNION ALL
            SELECT c.*, t.id
            FROM changed c JOIN penstock.groups g ON g.query_id = c.name
            JOIN penstock.partitions t ON t.queue_id = g.queue_id AND t.epoch = g.epoch AND t.name = c.key
            WHERE c.hold_until IS NOT NULL
            UNION ALL
            SELECT c.query_id, c.name, c.now_us, t.name, c.hold_until, t.id
            FROM changed c JOIN penstock.groups g ON g.query_id = c.name
            JOIN penstock.partitions t ON t.queue_id = g.queue_id AND t.epoch = g.epoch
            WHERE c.hold_until IS NOT NULL AND c.key = ''
        ) m
        GROUP BY m.query_id, m.name, m.now_us, m.partition_id, m.key
    ), in_force AS (
        SELECT m.query_id, m.partition_id, u.gate, coalesce(own.amount, every.amount, u.amount) AS amount,
               coalesce(own.rate, every.rate, u.rate) AS rate, m.now_us, s.level,
               penstock.micros(greatest(lane.hold_until, all_lanes.hold_until, m.hold_until)) AS hold_us,
               m.hold_until IS NOT NULL AS is_held
        FROM meant m
        JOIN penstock.gate_rules u
            ON u.query_id = m.query_id AND u.kind = 'token_bucket' AND u.shared = (m.partition_id = 0)
        LEFT JOIN penstock.gate_states s
            ON s.query_id = m.query_id AND s.partition_id = m.partition_id AND s.gate = u.gate
        LEFT JOIN penstock.gate_limits own ON own.query = m.name AND own.key = m.key AND own.gate = u.gate
        LEFT JOIN penstock.gate_limits every ON every.query = m.name AND every.key = '' AND every.gate = u.gate
        LEFT JOIN penstock.gate_limits lane ON lane.query = m.name AND lane.key = m.key AND lane.gate = 0
        LEFT JOIN penstock.gate_limits all_lanes ON all_lanes.query = m.name AND all_lanes.key = '' AND all_lanes.gate = 0
    ), settled AS (
        UPDATE penstock.gate_states s
        SET level = least(f.amount, penstock.tokens(s.amount, s.rate, s.level, s.at_us, f.hold_us, f.now_us)),
            at_us = greatest(s.at_us, f.now_us), amount = f.amount, rate = f.rate
        FROM in_force f
        WHERE s.query_id = f.query_id AND s.partition_id = f.partition_id AND s.gate = f.gate AND f.level IS NOT NULL
    ), emptied AS (
        INSERT INTO penstock.gate_states (query_id, partition_id, gate, amount, rate, at_us, level)
        SELECT f.query_id, f.partition_id, f.gate, f.amount, f.rate, f.now_us, t.level
        FROM in_force f, penstock.tokens(f.amount, f.rate, f.amount, 0, f.hold_us, f.now_us) AS t (level)
        WHERE f.level IS NULL AND f.is_held AND t.level < f.amount
    ), woken AS (
        UPDATE penstock.gate_lanes l SET wakes_at = NULL, next_at = NULL
        FROM meant m WHERE l.query_id = m.query_id AND l.partition_id = m.partition_id
    )
    UPDATE penstock.cursors c SET state = 0
    FROM meant m JOIN penstock.groups g ON g.query_id = m.name
    WHERE c.group_id = g.id AND c.partition_id = m.partition_id AND c.state = 3
    $settle$ USING names, keys, holds;
END
$$;

-- Settles the buckets and notifies the driver after every change, by the command line or by SQL.
CREATE FUNCTION penstock.gate_limits_changed() RETURNS trigger
LANGUAGE plpgsql AS $$
DECLARE
    names text[];
    keys text[];
    holds timestamptz[];
BEGIN
    CASE TG_OP
        WHEN 'INSERT' THEN
            SELECT array_agg(query), array_agg(key), array_agg(hold_until) INTO names, keys, holds FROM changed;
        WHEN 'DELETE' THEN
            SELECT array_agg(query), array_agg(key), array_agg(hold_until) INTO names, keys, holds FROM former;
        ELSE
            SELECT array_agg(query), array_agg(key), array_agg(hold_until) INTO names, keys, holds
            FROM (TABLE changed UNION ALL TABLE former) c;
    END CASE;
    PERFORM penstock.settle_gates(names, keys, holds);
    -- For more than 50 keys, or a long key, the payload names only the query.
    PERFORM pg_notify('penstock_gates', json_build_array(
        c.name, CASE WHEN octet_length(c.key) < 1000 THEN c.key ELSE '' END)::text)
    FROM (SELECT DISTINCT * FROM unnest(names, CASE WHEN cardinality(names) <= 50 THEN keys END) AS c (name, key)) c;
    -- Drivers before 0.1.0 read only the name.
    PERFORM pg_notify('penstock_gates', name) FROM unnest(names) AS name GROUP BY name;
    PERFORM pg_notify('penstock', queue_id::text) FROM penstock.groups WHERE query_id = ANY(names);
    RETURN NULL;
END
$$;

-- Serializes changes: each locks rows of gate_limits before rows of queries, so two of them could deadlock. TRUNCATE
-- becomes DELETE, so that the trigger sees the removed rows.
CREATE FUNCTION penstock.gate_limits_change() RETURNS trigger
LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_advisory_xact_lock(7812746384131);
    IF TG_OP = 'TRUNCATE' THEN
        DELETE FROM penstock.gate_limits;
    END IF;
    RETURN NULL;
END
$$;

CREATE TRIGGER one_by_one BEFORE INSERT OR UPDATE OR DELETE OR TRUNCATE ON penstock.gate_limits
FOR EACH STATEMENT EXECUTE FUNCTION penstock.gate_limits_change();
CREATE TRIGGER inserted AFTER INSERT ON penstock.gate_limits REFERENCING NEW TABLE AS changed
FOR EACH STATEMENT EXECUTE FUNCTION penstock.gate_limits_changed();
CREATE TRIGGER updated AFTER UPDATE ON penstock.gate_limits REFERENCING OLD TABLE AS former NEW TABLE AS changed
FOR EACH STATEMENT EXECUTE FUNCTION penstock.gate_limits_changed();
CREATE TRIGGER deleted AFTER DELETE ON penstock.gate_limits REFERENCING OLD TABLE AS former
FOR EACH STATEMENT EXECUTE FUNCTION penstock.gate_limits_changed();

-- The current state of every gate for every key.
CREATE VIEW penstock.gates AS
WITH behind AS (
    SELECT r.id AS query_id, s.partition_id, greatest(s.end_offset - s.next_offset, 0) AS backlog
    FROM penstock.queries r
    JOIN penstock.groups g ON g.query_id = r.name
    JOIN penstock.queues q ON q.id = g.queue_id
    CROSS JOIN LATERAL penstock.standing_of(g.id, q.id, q.segment) s
    WHERE EXISTS (SELECT FROM penstock.gate_rules u WHERE u.query_id = r.id)
), flying AS (
    SELECT r.id AS query_id, u.gate, s.partition AS key, greatest(s.end_offset - s.next_offset, 0) AS in_flight
    FROM penstock.queries r
    JOIN penstock.gate_rules u ON u.query_id = r.id AND u.kind = 'concurrency'
    JOIN penstock.queues q ON q.name = r.sink_queue
    JOIN penstock.groups g ON g.queue_id = q.id AND g.name = u.group_name
    CROSS JOIN LATERAL penstock.standing_of(g.id, q.id, q.segment) s
), lanes AS (
    SELECT l.query_id, l.partition_id, l.key, l.allowed, l.denied_since, l.next_at, l.decided_at, coalesce(b.backlog, 0) AS backlog
    FROM penstock.gate_lanes l
    LEFT JOIN behind b ON b.query_id = l.query_id AND b.partition_id = l.partition_id
    UNION ALL
    SELECT l.query_id, 0, NULL, sum(l.allowed)::bigint, min(l.denied_since), min(l.next_at), max(l.decided_at),
           coalesce(sum(b.backlog), 0)::bigint
    FROM penstock.gate_lanes l
    LEFT JOIN behind b ON b.query_id = l.query_id AND b.partition_id = l.partition_id
    GROUP BY l.query_id
)
SELECT r.name AS query, l.key, u.gate, u.kind,
       CASE WHEN u.kind = 'token_bucket' THEN round(penstock.tokens(
           coalesce(s.amount, own.amount, every.amount, u.amount), coalesce(s.rate, own.rate, every.rate, u.rate),
           coalesce(s.level, own.amount, every.amount, u.amount), coalesce(s.at_us, 0),
           penstock.micros(greatest(lane.hold_until, all_lanes.hold_until)), penstock.micros(clock_timestamp())), 9)
       END AS tokens,
       CASE u.kind
           WHEN 'sliding_window' THEN coalesce((
               SELECT sum(n.cost) FROM unnest(s.grant_times, s.grant_costs) AS n (at_us, cost)
               WHERE n.at_us >= penstock.micros(clock_timestamp())
                   - coalesce(own.window_us, every.window_us, u.window_us)), 0) / 1000000000
           WHEN 'concurrency' THEN coalesce(f.in_flight, 0) END AS used,
       coalesce(own.amount, every.amount, u.amount) AS "limit",
       coalesce(own.rate, every.rate, u.rate) AS rate,
       coalesce(own.window_us, every.window_us, u.window_us) / 1000000.0 AS window_seconds,
       l.allowed AS allowed_total, coalesce(s.cost_total, 0) AS cost_total, l.denied_since,
       CASE WHEN l.denied_since IS NOT NULL THEN l.next_at END AS next_at, l.backlog,
       coalesce(lane.paused, all_lanes.paused, false) AS paused,
       CASE WHEN greatest(lane.hold_until, all_lanes.hold_until) > clock_timestamp()
           THEN greatest(lane.hold_until, all_lanes.hold_until) END AS hold_until,
       l.decided_at AS updated_at
FROM penstock.gate_rules u
JOIN penstock.queries r ON r.id = u.query_id
JOIN lanes l ON l.query_id = u.query_id AND (l.partition_id = 0) = u.shared
LEFT JOIN penstock.gate_states s ON s.query_id = u.query_id AND s.partition_id = l.partition_id AND s.gate = u.gate
LEFT JOIN flying f ON f.query_id = u.query_id AND f.gate = u.gate AND f.key = l.key
LEFT JOIN penstock.gate_limits own ON own.query = r.name AND own.key = l.key AND own.gate = u.gate
LEFT JOIN penstock.gate_limits every ON every.query = r.name AND every.key = '' AND every.gate = u.gate
LEFT JOIN penstock.gate_limits lane ON lane.query = r.name AND lane.key = l.key AND lane.gate = 0
LEFT JOIN penstock.gate_limits all_lanes ON all_lanes.query = r.name AND all_lanes.key = '' AND all_lanes.gate = 0;

-- The position of each source. It is written in the transaction of the push.
CREATE TABLE penstock.sources (
    name       text PRIMARY KEY,
    kind       text NOT NULL,
    queue      text NOT NULL,
    -- Position in the format of the source. NULL before the first read.
    position   jsonb,
    events     bigint NOT NULL DEFAULT 0,
    -- Lines that are not valid events. They became dead letters.
    rejected   bigint NOT NULL DEFAULT 0,
    updated_at timestamptz NOT NULL DEFAULT clock_timestamp()
) WITH (fillfactor = 50);

-- Alert rules on the results of a query, which are events in a queue.
CREATE TABLE penstock.rules (
    name       text PRIMARY KEY,
    queue      text NOT NULL,
    alerts     text NOT NULL,
    definition jsonb NOT NULL,
    created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    updated_at timestamptz NOT NULL DEFAULT clock_timestamp()
);

-- The state of a rule for each key: whether it fires, since when, and the last windows.
CREATE TABLE penstock.rule_states (
    rule       text NOT NULL REFERENCES penstock.rules ON DELETE CASCADE,
    key        text COLLATE "C" NOT NULL,
    is_firing  boolean NOT NULL,
    since      timestamptz,
    seen_at    timestamptz NOT NULL,
    state      jsonb NOT NULL,
    PRIMARY KEY (rule, key)
) WITH (fillfactor = 60);
CREATE INDEX rule_states_firing ON penstock.rule_states (rule) WHERE is_firing;

-- These functions create and drop the tables of a segment with the rights of the owner of the schema, so the role of a
-- server owns nothing. Names consist of numbers.
CREATE FUNCTION penstock.make_segment(_queue integer, _segment integer) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    IF NOT EXISTS (SELECT FROM penstock.segments s WHERE s.queue_id = _queue AND s.segment = _segment) THEN
        RAISE EXCEPTION 'queue % has no segment %', _queue, _segment;
    END IF;
    EXECUTE format('
        CREATE TABLE penstock.chunks_%1$s_%2$s (
            partition_id bigint NOT NULL,
            end_offset   bigint NOT NULL,
            event_count  integer NOT NULL,
            appended_at  timestamptz NOT NULL,
            target_group integer,
            flush_id     uuid NOT NULL,
            body         bytea NOT NULL,
            PRIMARY KEY (partition_id, end_offset)
        )', _queue, _segment);
    -- Chunks are compressed already.
    EXECUTE format('ALTER TABLE penstock.chunks_%s_%s ALTER COLUMN body SET STORAGE EXTERNAL', _queue, _segment);
    -- The hash covers the key and the id, so a lookup needs no partition.
    EXECUTE format('CREATE TABLE penstock.ids_%s_%s (hash uuid NOT NULL, event_offset bigint NOT NULL)', _queue, _segment);
    EXECUTE format('CREATE INDEX ids_%1$s_%2$s_hash ON penstock.ids_%1$s_%2$s (hash)', _queue, _segment);
    PERFORM penstock.make_append(_queue, _segment);
END
$$;

-- Creates the function that appends chunks to a segment: one call, one transaction, one round trip. Each statement has a
-- new snapshot, so the heads are read after the partitions are locked. Plans are kept for the session. _after: number of
-- events of the call in the partition up to the end of the chunk. _starts and _sizes: the chunk in _bodies. _slots and
-- _places: the index of the chunk whose partition an id belongs to, and its distance from the head. _at: the append time,
-- if the caller has decided it. If one of the ids exists, the function writes and returns nothing, and the caller appends
-- step by step.
CREATE FUNCTION penstock.make_append(_queue integer, _segment integer) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    _suffix text := format('%s_%s', _queue, _segment);
    _text text := $text$
CREATE OR REPLACE FUNCTION penstock.append_{suffix}(
    _partitions bigint[], _counts integer[], _after integer[], _starts integer[], _sizes integer[], _bodies bytea,
    _skew interval, _flush uuid, _epoch integer,
    _targets integer[] = '{}', _hashes uuid[] = '{}', _slots integer[] = '{}', _places bigint[] = '{}',
    _id_segments integer[] = '{}', _at timestamptz = NULL
) RETURNS TABLE (partition_id bigint, end_offset bigint) LANGUAGE plpgsql AS $append$
#variable_conflict use_column
DECLARE
    _segment integer;
    _seen boolean;
    _heads bigint[];
BEGIN
    -- Always in the order of ids, so that two pushes cannot deadlock.
    PERFORM FROM penstock.partitions p WHERE p.id = ANY(_partitions) ORDER BY p.id FOR NO KEY UPDATE;
    IF NOT EXISTS (
        SELECT FROM penstock.queues q WHERE q.id = {queue} AND q.segment = {segment} AND q.epoch = _epoch
    ) THEN
        PERFORM penstock.refuse('the queue has moved on');
    END IF;
    FOREACH _segment IN ARRAY _id_segments LOOP
        EXECUTE format('SELECT EXISTS (SELECT FROM penstock.ids_{queue}_%s i WHERE i.hash = ANY($1))', _segment)
        INTO _seen USING _hashes;
        IF _seen THEN
            RETURN;
        END IF;
    END LOOP;
    IF cardinality(_hashes) > 0 THEN
        SELECT array_agg(h.end_offset ORDER BY i.ordinal) INTO _heads
        FROM unnest(_partitions) WITH ORDINALITY AS i (partition_id, ordinal)
        CROSS JOIN LATERAL (
            (SELECT c.end_offset FROM {chunks} c
             WHERE c.partition_id = i.partition_id ORDER BY c.end_offset DESC LIMIT 1)
            UNION ALL
            SELECT p.sealed_end FROM penstock.partitions p WHERE p.id = i.partition_id
            LIMIT 1
        ) h;
        INSERT INTO {ids} (hash, event_offset)
        -- The epoch is in the high bits, because the key may be in another partition later.
        SELECT n.hash, (_epoch::bigint << 48) + _heads[n.slot] + n.place
        FROM unnest(_hashes, _slots, _places) AS n (hash, slot, place);
    END IF;
    UPDATE penstock.cursors c SET state = 0 WHERE c.partition_id = ANY(_partitions) AND c.state = 1;
    RETURN QUERY
    INSERT INTO {chunks} AS k (partition_id, end_offset, event_count, appended_at, target_group, flush_id, body)
    SELECT i.partition_id, h.end_offset + i.after, i.event_count, greatest(h.appended_at, coalesce(_at, clock_timestamp() + _skew)),
           i.target_group, _flush, substr(_bodies, i.start, i.size)
    FROM unnest(_partitions, _counts, _after, _starts, _sizes, _targets)
        AS i (partition_id, event_count, after, start, size, target_group)
    CROSS JOIN LATERAL (
        (SELECT c.end_offset, c.appended_at FROM {chunks} c
         WHERE c.partition_id = i.partition_id ORDER BY c.end_offset DESC LIMIT 1)
        UNION ALL
        SELECT p.sealed_end, p.sealed_at FROM penstock.partitions p WHERE p.id = i.partition_id
        LIMIT 1
    ) h
    RETURNING k.partition_id, k.end_offset;
END
$append$
$text$;
BEGIN
    _text := replace(_text, '{chunks}', 'penstock.chunks_' || _suffix);
    _text := replace(_text, '{ids}', 'penstock.ids_' || _suffix);
    _text := replace(_text, '{suffix}', _suffix);
    _text := replace(_text, '{queue}', _queue::text);
    EXECUTE replace(_text, '{segment}', _segment::text);
END
$$;

CREATE FUNCTION penstock.drop_chunks(_queue integer, _segment integer) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    EXECUTE format('DROP TABLE IF EXISTS penstock.chunks_%s_%s', _queue, _segment);
END
$$;

CREATE FUNCTION penstock.drop_ids(_queue integer, _segment integer) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    EXECUTE format('DROP TABLE IF EXISTS penstock.ids_%s_%s', _queue, _segment);
END
$$;

CREATE FUNCTION penstock.drop_append(_queue integer, _segment integer) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    EXECUTE format('DROP FUNCTION IF EXISTS penstock.append_%s_%s', _queue, _segment);
END
$$;

REVOKE EXECUTE ON FUNCTION penstock.make_segment(integer, integer), penstock.make_append(integer, integer),
    penstock.drop_chunks(integer, integer), penstock.drop_ids(integer, integer), penstock.drop_append(integer, integer)
FROM PUBLIC;

-- Totals of each sink over all processes that ran it, and its state, for metrics and SQL.
CREATE TABLE penstock.sink_totals (
    group_id     integer PRIMARY KEY REFERENCES penstock.groups ON DELETE CASCADE,
    guarantee    text NOT NULL,
    written      bigint NOT NULL DEFAULT 0,
    batches      bigint NOT NULL DEFAULT 0,
    retries      bigint NOT NULL DEFAULT 0,
    busy         bigint NOT NULL DEFAULT 0,
    dead_letters bigint NOT NULL DEFAULT 0,
    lost         bigint NOT NULL DEFAULT 0,
    is_running   boolean NOT NULL,
    -- Whether its circuit breaker is open.
    is_resting   boolean NOT NULL,
    error        text,
    updated_at   timestamptz NOT NULL DEFAULT clock_timestamp()
) WITH (fillfactor = 50);

-- A sink without an update for 30 seconds is not running.
CREATE VIEW penstock.sinks AS
SELECT q.name AS queue, g.name AS sink, t.guarantee, t.written, t.batches, t.retries, t.busy, t.dead_letters, t.lost,
       t.is_running AND t.updated_at > clock_timestamp() - interval '30 seconds' AS running,
       t.is_resting AS resting, t.error, s.lag, t.updated_at
FROM penstock.sink_totals t
JOIN penstock.groups g ON g.id = t.group_id
JOIN penstock.queues q ON q.id = g.queue_id
CROSS JOIN LATERAL (
    SELECT coalesce(sum(greatest(s.end_offset - s.next_offset, 0)), 0)::bigint AS lag
    FROM penstock.standing_of(g.id, q.id, q.segment) s
) s;
