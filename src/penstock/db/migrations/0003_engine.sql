-- Queries on Spark: who runs them, how far they are, what each cycle did. What a query computes lies in tables of its
-- own, state_<query> and history_<query>, made with it; the views that people read are in schemas of their own.

-- Asked first, because CREATE SCHEMA IF NOT EXISTS needs a right that the owner of the schemas may not have.
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
    -- What its result depends on, a line a part, and the hash of that.
    description       text[] NOT NULL,
    fingerprint       text NOT NULL,
    -- The types of the fields it reads, once they are known.
    fields            jsonb,
    -- The columns of its result: name, type and how it is computed.
    result            jsonb,
    sink_queue        text,
    -- The number of the last cycle that was planned, so that none is used twice.
    cycle             bigint NOT NULL DEFAULT 0,
    -- Windows that end before it are closed, whatever the partition (only where keys are not the queue's).
    closed_us         bigint,
    -- Who may commit: the driver that was given this number last.
    fence             bigint NOT NULL DEFAULT 0,
    driver            text,
    lease_until       timestamptz NOT NULL DEFAULT 'epoch',
    -- Where an event is looked for that no cycle survives.
    suspicion         bytea,
    history_seconds   double precision NOT NULL,
    created_at        timestamptz NOT NULL DEFAULT clock_timestamp()
);

-- How far the time of a partition has come, as a query sees it. high_us: the latest event time that was read.
-- floor_us: windows that end before it were closed by the clock.
CREATE TABLE penstock.progress (
    query_id     integer NOT NULL REFERENCES penstock.queries ON DELETE CASCADE,
    partition_id bigint NOT NULL,
    high_us      bigint,
    floor_us     bigint,
    last_at      timestamptz NOT NULL,
    PRIMARY KEY (query_id, partition_id)
) WITH (fillfactor = 50);

-- The ledger: each cycle of each query.
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
    -- Milliseconds of each part.
    took         jsonb,
    error        text,
    PRIMARY KEY (query_id, cycle)
) WITH (fillfactor = 70);

-- What the tasks of a cycle say beside their data. A crash empties it, and then the cycle is done again.
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

-- A mean to 28 digits, as Python's Decimal gives it.
CREATE FUNCTION penstock.mean(total numeric, events bigint) RETURNS numeric
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT CASE WHEN events IS NULL OR events = 0 OR total IS NULL THEN NULL WHEN total = 0 THEN 0
           ELSE trim_scale(round(q, 27 - floor(log(abs(q)))::integer)) END
    FROM (SELECT round(total, 60) / events AS q) AS d
$$;

-- Several sorted sets as one; of hashes, the lowest 1,024.
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

-- How many different values stand behind the lowest 1,024 of their hashes, which fall evenly on 64 bits.
CREATE FUNCTION penstock.distinct_estimate(lowest bigint[]) RETURNS bigint
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT CASE WHEN lowest IS NULL THEN 0 WHEN cardinality(lowest) < 1024 THEN cardinality(lowest)
           ELSE round(1023 / ((lowest[1024]::numeric + 9223372036854775808) / 18446744073709551616))::bigint END
$$;

-- Counts by name, added up.
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

-- Of values that were counted in buckets 2 percent wide: the one that this part of them does not exceed. Bucket b
-- holds what is around sign * 1.02^(|b| - 10000), and 0 the zeros.
CREATE FUNCTION penstock.bucket_value(bucket integer) RETURNS double precision
LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
RETURN CASE WHEN bucket = 0 THEN 0
       ELSE sign(bucket::double precision) * 2 * power(1.02::double precision, abs(bucket) - 10000) / 2.02 END;

-- Bound when it is made, so that who may only read the views need not find the other function.
CREATE FUNCTION penstock.bucket_percentile(counts jsonb, fraction double precision) RETURNS double precision
LANGUAGE sql IMMUTABLE PARALLEL SAFE BEGIN ATOMIC
    SELECT penstock.bucket_value(r.bucket) FROM (
        SELECT b.bucket, sum(b.events) OVER (ORDER BY b.bucket) AS upto, sum(b.events) OVER () AS whole
        FROM (SELECT e.key::integer AS bucket, e.value::bigint AS events FROM jsonb_each_text(counts) AS e) AS b
    ) AS r
    WHERE r.upto > fraction * (r.whole - 1) ORDER BY r.bucket LIMIT 1;
END;

-- Moments of two samples as those of both: count, mean, sum of squared deviations.
CREATE FUNCTION penstock.join_moments(a double precision[], b double precision[]) RETURNS double precision[]
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT CASE WHEN a IS NULL OR a[1] = 0 THEN b WHEN b IS NULL OR b[1] = 0 THEN a
           ELSE ARRAY[a[1] + b[1], a[2] + (b[2] - a[2]) * b[1] / (a[1] + b[1]),
                      a[3] + b[3] + (b[2] - a[2]) ^ 2 * a[1] * b[1] / (a[1] + b[1])] END
$$;

-- Everything that is open, of all queries; made anew whenever a query comes or goes.
CREATE VIEW penstock.state AS
SELECT NULL::text AS query, NULL::text AS key, NULL::timestamptz AS window_start, NULL::timestamptz AS window_end,
       NULL::jsonb AS value, NULL::timestamptz AS updated_at
WHERE false;
