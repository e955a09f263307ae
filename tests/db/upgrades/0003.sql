-- A database as the first release left it (schema 3): pg_dump --no-owner --no-privileges --inserts, without comments. Queues by key
-- and by hash with sealed segments; a group in the middle, with dead letters, one of them sent back; a lease that nobody answered.
-- PostgreSQL database dump
-- Dumped from database version 18.4
-- Dumped by pg_dump version 18.4
SET statement_timeout = 0;
SET lock_timeout = 0;
SET idle_in_transaction_session_timeout = 0;
SET client_encoding = 'UTF8';
SET standard_conforming_strings = on;
SELECT pg_catalog.set_config('search_path', '', false);
SET check_function_bodies = false;
SET xmloption = content;
SET client_min_messages = warning;
SET row_security = off;
-- Name: penstock; Type: SCHEMA; Schema: -; Owner: -
CREATE SCHEMA penstock;
-- Name: penstock_history; Type: SCHEMA; Schema: -; Owner: -
CREATE SCHEMA penstock_history;
-- Name: penstock_live; Type: SCHEMA; Schema: -; Owner: -
CREATE SCHEMA penstock_live;
-- Name: add_counts(jsonb, jsonb); Type: FUNCTION; Schema: penstock; Owner: -
CREATE FUNCTION penstock.add_counts(a jsonb, b jsonb) RETURNS jsonb
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    AS $$
    SELECT CASE WHEN a IS NULL THEN b WHEN b IS NULL THEN a ELSE (
        SELECT coalesce(jsonb_object_agg(n.name, n.events), '{}') FROM (
            SELECT e.key AS name, sum(e.value::bigint)::bigint AS events
            FROM (SELECT * FROM jsonb_each_text(a) UNION ALL SELECT * FROM jsonb_each_text(b)) AS e GROUP BY e.key
        ) AS n) END
$$;
-- Name: append_1_2(bigint[], integer[], integer[], integer[], integer[], bytea, interval, uuid, integer, integer[], uuid[], integer[], bigint[], integer[]); Type: FUNCTION; Schema: penstock; Owner: -
CREATE FUNCTION penstock.append_1_2(_partitions bigint[], _counts integer[], _after integer[], _starts integer[], _sizes integer[], _bodies bytea, _skew interval, _flush uuid, _epoch integer, _targets integer[] DEFAULT '{}'::integer[], _hashes uuid[] DEFAULT '{}'::uuid[], _slots integer[] DEFAULT '{}'::integer[], _places bigint[] DEFAULT '{}'::bigint[], _id_segments integer[] DEFAULT '{}'::integer[]) RETURNS TABLE(partition_id bigint, end_offset bigint)
    LANGUAGE plpgsql
    AS $_$
#variable_conflict use_column
DECLARE
_segment integer;
_seen boolean;
_heads bigint[];
BEGIN
PERFORM FROM penstock.partitions p WHERE p.id = ANY(_partitions) ORDER BY p.id FOR NO KEY UPDATE;
IF NOT EXISTS (
SELECT FROM penstock.queues q WHERE q.id = 1 AND q.segment = 2 AND q.epoch = _epoch
) THEN
PERFORM penstock.refuse('the queue has moved on');
END IF;
FOREACH _segment IN ARRAY _id_segments LOOP
EXECUTE format('SELECT EXISTS (SELECT FROM penstock.ids_1_%s i WHERE i.hash = ANY($1))', _segment)
INTO _seen USING _hashes;
IF _seen THEN
RETURN;
END IF;
END LOOP;
IF cardinality(_hashes) > 0 THEN
SELECT array_agg(h.end_offset ORDER BY i.ordinal) INTO _heads
FROM unnest(_partitions) WITH ORDINALITY AS i (partition_id, ordinal)
CROSS JOIN LATERAL (
(SELECT c.end_offset FROM penstock.chunks_1_2 c
WHERE c.partition_id = i.partition_id ORDER BY c.end_offset DESC LIMIT 1)
UNION ALL
SELECT p.sealed_end FROM penstock.partitions p WHERE p.id = i.partition_id
LIMIT 1
) h;
INSERT INTO penstock.ids_1_2 (hash, event_offset)
SELECT n.hash, (_epoch::bigint << 48) + _heads[n.slot] + n.place
FROM unnest(_hashes, _slots, _places) AS n (hash, slot, place);
END IF;
UPDATE penstock.cursors c SET state = 0 WHERE c.partition_id = ANY(_partitions) AND c.state = 1;
RETURN QUERY
INSERT INTO penstock.chunks_1_2 AS k (partition_id, end_offset, event_count, appended_at, target_group, flush_id, body)
SELECT i.partition_id, h.end_offset + i.after, i.event_count, greatest(h.appended_at, clock_timestamp() + _skew),
i.target_group, _flush, substr(_bodies, i.start, i.size)
FROM unnest(_partitions, _counts, _after, _starts, _sizes, _targets)
AS i (partition_id, event_count, after, start, size, target_group)
CROSS JOIN LATERAL (
(SELECT c.end_offset, c.appended_at FROM penstock.chunks_1_2 c
WHERE c.partition_id = i.partition_id ORDER BY c.end_offset DESC LIMIT 1)
UNION ALL
SELECT p.sealed_end, p.sealed_at FROM penstock.partitions p WHERE p.id = i.partition_id
LIMIT 1
) h
RETURNING k.partition_id, k.end_offset;
END
$_$;
-- Name: append_2_2(bigint[], integer[], integer[], integer[], integer[], bytea, interval, uuid, integer, integer[], uuid[], integer[], bigint[], integer[]); Type: FUNCTION; Schema: penstock; Owner: -
CREATE FUNCTION penstock.append_2_2(_partitions bigint[], _counts integer[], _after integer[], _starts integer[], _sizes integer[], _bodies bytea, _skew interval, _flush uuid, _epoch integer, _targets integer[] DEFAULT '{}'::integer[], _hashes uuid[] DEFAULT '{}'::uuid[], _slots integer[] DEFAULT '{}'::integer[], _places bigint[] DEFAULT '{}'::bigint[], _id_segments integer[] DEFAULT '{}'::integer[]) RETURNS TABLE(partition_id bigint, end_offset bigint)
    LANGUAGE plpgsql
    AS $_$
#variable_conflict use_column
DECLARE
_segment integer;
_seen boolean;
_heads bigint[];
BEGIN
PERFORM FROM penstock.partitions p WHERE p.id = ANY(_partitions) ORDER BY p.id FOR NO KEY UPDATE;
IF NOT EXISTS (
SELECT FROM penstock.queues q WHERE q.id = 2 AND q.segment = 2 AND q.epoch = _epoch
) THEN
PERFORM penstock.refuse('the queue has moved on');
END IF;
FOREACH _segment IN ARRAY _id_segments LOOP
EXECUTE format('SELECT EXISTS (SELECT FROM penstock.ids_2_%s i WHERE i.hash = ANY($1))', _segment)
INTO _seen USING _hashes;
IF _seen THEN
RETURN;
END IF;
END LOOP;
IF cardinality(_hashes) > 0 THEN
SELECT array_agg(h.end_offset ORDER BY i.ordinal) INTO _heads
FROM unnest(_partitions) WITH ORDINALITY AS i (partition_id, ordinal)
CROSS JOIN LATERAL (
(SELECT c.end_offset FROM penstock.chunks_2_2 c
WHERE c.partition_id = i.partition_id ORDER BY c.end_offset DESC LIMIT 1)
UNION ALL
SELECT p.sealed_end FROM penstock.partitions p WHERE p.id = i.partition_id
LIMIT 1
) h;
INSERT INTO penstock.ids_2_2 (hash, event_offset)
SELECT n.hash, (_epoch::bigint << 48) + _heads[n.slot] + n.place
FROM unnest(_hashes, _slots, _places) AS n (hash, slot, place);
END IF;
UPDATE penstock.cursors c SET state = 0 WHERE c.partition_id = ANY(_partitions) AND c.state = 1;
RETURN QUERY
INSERT INTO penstock.chunks_2_2 AS k (partition_id, end_offset, event_count, appended_at, target_group, flush_id, body)
SELECT i.partition_id, h.end_offset + i.after, i.event_count, greatest(h.appended_at, clock_timestamp() + _skew),
i.target_group, _flush, substr(_bodies, i.start, i.size)
FROM unnest(_partitions, _counts, _after, _starts, _sizes, _targets)
AS i (partition_id, event_count, after, start, size, target_group)
CROSS JOIN LATERAL (
(SELECT c.end_offset, c.appended_at FROM penstock.chunks_2_2 c
WHERE c.partition_id = i.partition_id ORDER BY c.end_offset DESC LIMIT 1)
UNION ALL
SELECT p.sealed_end, p.sealed_at FROM penstock.partitions p WHERE p.id = i.partition_id
LIMIT 1
) h
RETURNING k.partition_id, k.end_offset;
END
$_$;
-- Name: append_3_1(bigint[], integer[], integer[], integer[], integer[], bytea, interval, uuid, integer, integer[], uuid[], integer[], bigint[], integer[]); Type: FUNCTION; Schema: penstock; Owner: -
CREATE FUNCTION penstock.append_3_1(_partitions bigint[], _counts integer[], _after integer[], _starts integer[], _sizes integer[], _bodies bytea, _skew interval, _flush uuid, _epoch integer, _targets integer[] DEFAULT '{}'::integer[], _hashes uuid[] DEFAULT '{}'::uuid[], _slots integer[] DEFAULT '{}'::integer[], _places bigint[] DEFAULT '{}'::bigint[], _id_segments integer[] DEFAULT '{}'::integer[]) RETURNS TABLE(partition_id bigint, end_offset bigint)
    LANGUAGE plpgsql
    AS $_$
#variable_conflict use_column
DECLARE
_segment integer;
_seen boolean;
_heads bigint[];
BEGIN
PERFORM FROM penstock.partitions p WHERE p.id = ANY(_partitions) ORDER BY p.id FOR NO KEY UPDATE;
IF NOT EXISTS (
SELECT FROM penstock.queues q WHERE q.id = 3 AND q.segment = 1 AND q.epoch = _epoch
) THEN
PERFORM penstock.refuse('the queue has moved on');
END IF;
FOREACH _segment IN ARRAY _id_segments LOOP
EXECUTE format('SELECT EXISTS (SELECT FROM penstock.ids_3_%s i WHERE i.hash = ANY($1))', _segment)
INTO _seen USING _hashes;
IF _seen THEN
RETURN;
END IF;
END LOOP;
IF cardinality(_hashes) > 0 THEN
SELECT array_agg(h.end_offset ORDER BY i.ordinal) INTO _heads
FROM unnest(_partitions) WITH ORDINALITY AS i (partition_id, ordinal)
CROSS JOIN LATERAL (
(SELECT c.end_offset FROM penstock.chunks_3_1 c
WHERE c.partition_id = i.partition_id ORDER BY c.end_offset DESC LIMIT 1)
UNION ALL
SELECT p.sealed_end FROM penstock.partitions p WHERE p.id = i.partition_id
LIMIT 1
) h;
INSERT INTO penstock.ids_3_1 (hash, event_offset)
SELECT n.hash, (_epoch::bigint << 48) + _heads[n.slot] + n.place
FROM unnest(_hashes, _slots, _places) AS n (hash, slot, place);
END IF;
UPDATE penstock.cursors c SET state = 0 WHERE c.partition_id = ANY(_partitions) AND c.state = 1;
RETURN QUERY
INSERT INTO penstock.chunks_3_1 AS k (partition_id, end_offset, event_count, appended_at, target_group, flush_id, body)
SELECT i.partition_id, h.end_offset + i.after, i.event_count, greatest(h.appended_at, clock_timestamp() + _skew),
i.target_group, _flush, substr(_bodies, i.start, i.size)
FROM unnest(_partitions, _counts, _after, _starts, _sizes, _targets)
AS i (partition_id, event_count, after, start, size, target_group)
CROSS JOIN LATERAL (
(SELECT c.end_offset, c.appended_at FROM penstock.chunks_3_1 c
WHERE c.partition_id = i.partition_id ORDER BY c.end_offset DESC LIMIT 1)
UNION ALL
SELECT p.sealed_end, p.sealed_at FROM penstock.partitions p WHERE p.id = i.partition_id
LIMIT 1
) h
RETURNING k.partition_id, k.end_offset;
END
$_$;
-- Name: bucket_value(integer); Type: FUNCTION; Schema: penstock; Owner: -
CREATE FUNCTION penstock.bucket_value(bucket integer) RETURNS double precision
    LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
    RETURN CASE WHEN (bucket = 0) THEN (0)::double precision ELSE (((sign((bucket)::double precision) * (2)::double precision) * power((1.02)::double precision, ((abs(bucket) - 10000))::double precision)) / (2.02)::double precision) END;
-- Name: bucket_percentile(jsonb, double precision); Type: FUNCTION; Schema: penstock; Owner: -
CREATE FUNCTION penstock.bucket_percentile(counts jsonb, fraction double precision) RETURNS double precision
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    BEGIN ATOMIC
 SELECT penstock.bucket_value(r.bucket) AS bucket_value
    FROM ( SELECT b.bucket,
             sum(b.events) OVER (ORDER BY b.bucket) AS upto,
             sum(b.events) OVER () AS whole
            FROM ( SELECT (e.key)::integer AS bucket,
                     (e.value)::bigint AS events
                    FROM jsonb_each_text(bucket_percentile.counts) e(key, value)) b) r
   WHERE ((r.upto)::double precision > (bucket_percentile.fraction * ((r.whole - (1)::numeric))::double precision))
   ORDER BY r.bucket
  LIMIT 1;
END;
-- Name: distinct_estimate(bigint[]); Type: FUNCTION; Schema: penstock; Owner: -
CREATE FUNCTION penstock.distinct_estimate(lowest bigint[]) RETURNS bigint
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    AS $$
    SELECT CASE WHEN lowest IS NULL THEN 0 WHEN cardinality(lowest) < 1024 THEN cardinality(lowest)
           ELSE round(1023 / ((lowest[1024]::numeric + 9223372036854775808) / 18446744073709551616))::bigint END
$$;
-- Name: join_moments(double precision[], double precision[]); Type: FUNCTION; Schema: penstock; Owner: -
CREATE FUNCTION penstock.join_moments(a double precision[], b double precision[]) RETURNS double precision[]
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    AS $$
    SELECT CASE WHEN a IS NULL OR a[1] = 0 THEN b WHEN b IS NULL OR b[1] = 0 THEN a
           ELSE ARRAY[a[1] + b[1], a[2] + (b[2] - a[2]) * b[1] / (a[1] + b[1]),
                      a[3] + b[3] + (b[2] - a[2]) ^ 2 * a[1] * b[1] / (a[1] + b[1])] END
$$;
-- Name: lowest(bigint[], bigint[]); Type: FUNCTION; Schema: penstock; Owner: -
CREATE FUNCTION penstock.lowest(a bigint[], b bigint[]) RETURNS bigint[]
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    AS $$
    SELECT CASE WHEN a IS NULL THEN b WHEN b IS NULL THEN a
           ELSE ARRAY(SELECT x FROM unnest(a) AS x UNION SELECT x FROM unnest(b) AS x ORDER BY 1 LIMIT 1024) END
$$;
-- Name: mean(numeric, bigint); Type: FUNCTION; Schema: penstock; Owner: -
CREATE FUNCTION penstock.mean(total numeric, events bigint) RETURNS numeric
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    AS $$
    SELECT CASE WHEN events IS NULL OR events = 0 OR total IS NULL THEN NULL WHEN total = 0 THEN 0
           ELSE trim_scale(round(q, 27 - floor(log(abs(q)))::integer)) END
    FROM (SELECT round(total, 60) / events AS q) AS d
$$;
-- Name: micros(timestamp with time zone); Type: FUNCTION; Schema: penstock; Owner: -
CREATE FUNCTION penstock.micros(moment timestamp with time zone) RETURNS bigint
    LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
    RETURN ((EXTRACT(epoch FROM moment) * (1000000)::numeric))::bigint;
-- Name: moment(bigint); Type: FUNCTION; Schema: penstock; Owner: -
CREATE FUNCTION penstock.moment(us bigint) RETURNS timestamp with time zone
    LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
    RETURN ('1970-01-01 00:00:00+00'::timestamp with time zone + ((us)::double precision * '00:00:00.000001'::interval));
-- Name: partitions_of(integer, integer); Type: FUNCTION; Schema: penstock; Owner: -
CREATE FUNCTION penstock.partitions_of(_queue integer, _segment integer) RETURNS TABLE(partition text, partition_id bigint, first_offset bigint, end_offset bigint)
    LANGUAGE plpgsql STABLE SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    SET enable_hashjoin TO 'off'
    SET enable_mergejoin TO 'off'
    SET jit TO 'off'
    AS $_$
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
$_$;
-- Name: refuse(text); Type: FUNCTION; Schema: penstock; Owner: -
CREATE FUNCTION penstock.refuse(reason text) RETURNS boolean
    LANGUAGE plpgsql
    AS $$
BEGIN
    RAISE EXCEPTION 'penstock: %', reason USING ERRCODE = 'PS001';
END
$$;
-- Name: set_union(text[], text[]); Type: FUNCTION; Schema: penstock; Owner: -
CREATE FUNCTION penstock.set_union(a text[], b text[]) RETURNS text[]
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    AS $$
    SELECT CASE WHEN a IS NULL THEN b WHEN b IS NULL THEN a
           ELSE ARRAY(SELECT x FROM unnest(a) AS x UNION SELECT x FROM unnest(b) AS x ORDER BY 1) END
$$;
-- Name: standing_of(integer, integer, integer); Type: FUNCTION; Schema: penstock; Owner: -
CREATE FUNCTION penstock.standing_of(_group integer, _queue integer, _segment integer) RETURNS TABLE(partition text, partition_id bigint, next_offset bigint, end_offset bigint, leased boolean)
    LANGUAGE plpgsql STABLE SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    SET enable_hashjoin TO 'off'
    SET enable_mergejoin TO 'off'
    SET jit TO 'off'
    AS $_$
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
    RETURN; -- deleted meanwhile
END
$_$;
-- Name: top_counts(jsonb, integer); Type: FUNCTION; Schema: penstock; Owner: -
CREATE FUNCTION penstock.top_counts(counts jsonb, k integer) RETURNS jsonb
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    AS $$
    SELECT coalesce(jsonb_agg(jsonb_build_object('value', t.name, 'count', t.events)
                              ORDER BY t.events DESC, t.name COLLATE "C"), '[]')
    FROM (SELECT e.key AS name, e.value::bigint AS events FROM jsonb_each_text(counts) AS e
          ORDER BY 2 DESC, e.key COLLATE "C" LIMIT k) AS t
$$;
SET default_tablespace = '';
SET default_table_access_method = heap;
-- Name: chunks_1_1; Type: TABLE; Schema: penstock; Owner: -
CREATE TABLE penstock.chunks_1_1 (
    partition_id bigint NOT NULL,
    end_offset bigint NOT NULL,
    event_count integer NOT NULL,
    appended_at timestamp with time zone NOT NULL,
    target_group integer,
    flush_id uuid NOT NULL,
    body bytea NOT NULL
);
ALTER TABLE ONLY penstock.chunks_1_1 ALTER COLUMN body SET STORAGE EXTERNAL;
-- Name: chunks_1_2; Type: TABLE; Schema: penstock; Owner: -
CREATE TABLE penstock.chunks_1_2 (
    partition_id bigint NOT NULL,
    end_offset bigint NOT NULL,
    event_count integer NOT NULL,
    appended_at timestamp with time zone NOT NULL,
    target_group integer,
    flush_id uuid NOT NULL,
    body bytea NOT NULL
);
ALTER TABLE ONLY penstock.chunks_1_2 ALTER COLUMN body SET STORAGE EXTERNAL;
-- Name: chunks_2_1; Type: TABLE; Schema: penstock; Owner: -
CREATE TABLE penstock.chunks_2_1 (
    partition_id bigint NOT NULL,
    end_offset bigint NOT NULL,
    event_count integer NOT NULL,
    appended_at timestamp with time zone NOT NULL,
    target_group integer,
    flush_id uuid NOT NULL,
    body bytea NOT NULL
);
ALTER TABLE ONLY penstock.chunks_2_1 ALTER COLUMN body SET STORAGE EXTERNAL;
-- Name: chunks_2_2; Type: TABLE; Schema: penstock; Owner: -
CREATE TABLE penstock.chunks_2_2 (
    partition_id bigint NOT NULL,
    end_offset bigint NOT NULL,
    event_count integer NOT NULL,
    appended_at timestamp with time zone NOT NULL,
    target_group integer,
    flush_id uuid NOT NULL,
    body bytea NOT NULL
);
ALTER TABLE ONLY penstock.chunks_2_2 ALTER COLUMN body SET STORAGE EXTERNAL;
-- Name: chunks_3_1; Type: TABLE; Schema: penstock; Owner: -
CREATE TABLE penstock.chunks_3_1 (
    partition_id bigint NOT NULL,
    end_offset bigint NOT NULL,
    event_count integer NOT NULL,
    appended_at timestamp with time zone NOT NULL,
    target_group integer,
    flush_id uuid NOT NULL,
    body bytea NOT NULL
);
ALTER TABLE ONLY penstock.chunks_3_1 ALTER COLUMN body SET STORAGE EXTERNAL;
-- Name: cursors; Type: TABLE; Schema: penstock; Owner: -
CREATE TABLE penstock.cursors (
    group_id integer NOT NULL,
    partition_id bigint NOT NULL,
    state smallint DEFAULT 0 NOT NULL
)
WITH (fillfactor='70');
-- Name: cycles; Type: TABLE; Schema: penstock; Owner: -
CREATE TABLE penstock.cycles (
    query_id integer NOT NULL,
    cycle bigint NOT NULL,
    fence bigint NOT NULL,
    plan bytea NOT NULL,
    planned bigint NOT NULL,
    planned_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    started_at timestamp with time zone,
    committed_at timestamp with time zone,
    events_in bigint,
    events_out bigint,
    windows bigint,
    late bigint,
    dead bigint,
    took jsonb,
    error text
)
WITH (fillfactor='70');
-- Name: dead_letters; Type: TABLE; Schema: penstock; Owner: -
CREATE TABLE penstock.dead_letters (
    id bigint NOT NULL,
    queue_id integer NOT NULL,
    partition_id bigint NOT NULL,
    event_offset bigint NOT NULL,
    group_name text NOT NULL,
    key text,
    event_id text,
    event_time timestamp with time zone,
    appended_at timestamp with time zone NOT NULL,
    headers text,
    data text NOT NULL,
    stage text NOT NULL,
    error text NOT NULL,
    traceback text,
    attempts integer NOT NULL,
    failed_at timestamp with time zone NOT NULL,
    first_failed_at timestamp with time zone NOT NULL,
    redrives integer DEFAULT 0 NOT NULL,
    redriven_at timestamp with time zone,
    history jsonb DEFAULT '[]'::jsonb NOT NULL
);
-- Name: dead_letters_id_seq; Type: SEQUENCE; Schema: penstock; Owner: -
ALTER TABLE penstock.dead_letters ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME penstock.dead_letters_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);
-- Name: queues; Type: TABLE; Schema: penstock; Owner: -
CREATE TABLE penstock.queues (
    id integer NOT NULL,
    name text NOT NULL,
    partitioning text NOT NULL,
    partition_count integer,
    epoch integer DEFAULT 0 NOT NULL,
    segment integer DEFAULT 1 NOT NULL,
    lease_seconds double precision DEFAULT 300 NOT NULL,
    retry_limit integer DEFAULT 3 NOT NULL,
    retry_delay_ms integer DEFAULT 1000 NOT NULL,
    delay_seconds double precision DEFAULT 0 NOT NULL,
    retention_seconds double precision,
    retention_drops_unread boolean DEFAULT false NOT NULL,
    dedup_window_seconds double precision NOT NULL,
    max_depth_events bigint,
    max_event_bytes integer,
    max_redrives integer DEFAULT 10 NOT NULL,
    lanes_warned_at timestamp with time zone,
    created_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    expiry_limit integer,
    CONSTRAINT queues_check CHECK (((partitioning = 'hash'::text) = (partition_count IS NOT NULL))),
    CONSTRAINT queues_partition_count_check CHECK ((partition_count > 0)),
    CONSTRAINT queues_partitioning_check CHECK ((partitioning = ANY (ARRAY['key'::text, 'hash'::text])))
);
-- Name: depth; Type: VIEW; Schema: penstock; Owner: -
CREATE VIEW penstock.depth AS
 SELECT q.name AS queue,
    d.partitions,
    d.events,
    d.appended
   FROM (penstock.queues q
     CROSS JOIN LATERAL ( SELECT count(*) AS partitions,
            (COALESCE(sum((p.end_offset - p.first_offset)), (0)::numeric))::bigint AS events,
            (COALESCE(sum(p.end_offset), (0)::numeric))::bigint AS appended
           FROM penstock.partitions_of(q.id, q.segment) p(partition, partition_id, first_offset, end_offset)) d);
-- Name: groups; Type: TABLE; Schema: penstock; Owner: -
CREATE TABLE penstock.groups (
    id integer NOT NULL,
    queue_id integer NOT NULL,
    name text NOT NULL,
    epoch integer NOT NULL,
    subscribed_from text NOT NULL,
    query_id text,
    dropped bigint DEFAULT 0 NOT NULL,
    created_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL
);
-- Name: groups_id_seq; Type: SEQUENCE; Schema: penstock; Owner: -
ALTER TABLE penstock.groups ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME penstock.groups_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);
-- Name: ids_1_1; Type: TABLE; Schema: penstock; Owner: -
CREATE TABLE penstock.ids_1_1 (
    hash uuid NOT NULL,
    event_offset bigint NOT NULL
);
-- Name: ids_1_2; Type: TABLE; Schema: penstock; Owner: -
CREATE TABLE penstock.ids_1_2 (
    hash uuid NOT NULL,
    event_offset bigint NOT NULL
);
-- Name: ids_2_1; Type: TABLE; Schema: penstock; Owner: -
CREATE TABLE penstock.ids_2_1 (
    hash uuid NOT NULL,
    event_offset bigint NOT NULL
);
-- Name: ids_2_2; Type: TABLE; Schema: penstock; Owner: -
CREATE TABLE penstock.ids_2_2 (
    hash uuid NOT NULL,
    event_offset bigint NOT NULL
);
-- Name: ids_3_1; Type: TABLE; Schema: penstock; Owner: -
CREATE TABLE penstock.ids_3_1 (
    hash uuid NOT NULL,
    event_offset bigint NOT NULL
);
-- Name: lag; Type: VIEW; Schema: penstock; Owner: -
CREATE VIEW penstock.lag AS
 SELECT q.name AS queue,
    g.name AS group_name,
    ( SELECT count(*) AS count
           FROM penstock.cursors c
          WHERE (c.group_id = g.id)) AS partitions,
    s.partitions_behind,
    s.lag,
    s.leases
   FROM ((penstock.queues q
     JOIN penstock.groups g ON ((g.queue_id = q.id)))
     CROSS JOIN LATERAL ( SELECT count(*) FILTER (WHERE (s_1.end_offset > s_1.next_offset)) AS partitions_behind,
            (COALESCE(sum(GREATEST((s_1.end_offset - s_1.next_offset), (0)::bigint)), (0)::numeric))::bigint AS lag,
            count(*) FILTER (WHERE s_1.leased) AS leases
           FROM penstock.standing_of(g.id, q.id, q.segment) s_1(partition, partition_id, next_offset, end_offset, leased)) s);
-- Name: migrations; Type: TABLE; Schema: penstock; Owner: -
CREATE TABLE penstock.migrations (
    version integer NOT NULL,
    name text NOT NULL,
    checksum text NOT NULL,
    applied_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL
);
-- Name: partition_lag; Type: VIEW; Schema: penstock; Owner: -
CREATE VIEW penstock.partition_lag AS
 SELECT q.name AS queue,
    g.name AS group_name,
    s.partition,
    s.partition_id,
    s.next_offset,
    s.end_offset,
    GREATEST((s.end_offset - s.next_offset), (0)::bigint) AS lag,
    s.leased
   FROM ((penstock.queues q
     JOIN penstock.groups g ON ((g.queue_id = q.id)))
     CROSS JOIN LATERAL penstock.standing_of(g.id, q.id, q.segment) s(partition, partition_id, next_offset, end_offset, leased));
-- Name: partitions; Type: TABLE; Schema: penstock; Owner: -
CREATE TABLE penstock.partitions (
    id bigint NOT NULL,
    queue_id integer NOT NULL,
    epoch integer NOT NULL,
    name text NOT NULL,
    is_lane boolean DEFAULT true NOT NULL,
    sealed_end bigint DEFAULT 0 NOT NULL,
    sealed_at timestamp with time zone DEFAULT '1970-01-01 00:00:00+00'::timestamp with time zone NOT NULL
);
-- Name: partitions_id_seq; Type: SEQUENCE; Schema: penstock; Owner: -
ALTER TABLE penstock.partitions ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME penstock.partitions_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);
-- Name: positions; Type: TABLE; Schema: penstock; Owner: -
CREATE TABLE penstock.positions (
    group_id integer NOT NULL,
    partition_id bigint NOT NULL,
    version bigint NOT NULL,
    next_offset bigint NOT NULL,
    lease_id uuid,
    lease_end bigint NOT NULL,
    available_at timestamp with time zone NOT NULL,
    attempts integer DEFAULT 0 NOT NULL,
    skipped bigint[] DEFAULT '{}'::bigint[] NOT NULL,
    moved_at timestamp with time zone,
    expiries integer DEFAULT 0 NOT NULL,
    suspect_end bigint DEFAULT 0 NOT NULL
)
WITH (autovacuum_vacuum_scale_factor='0', autovacuum_vacuum_threshold='10000', autovacuum_vacuum_cost_delay='0');
-- Name: progress; Type: TABLE; Schema: penstock; Owner: -
CREATE TABLE penstock.progress (
    query_id integer NOT NULL,
    partition_id bigint NOT NULL,
    high_us bigint,
    floor_us bigint,
    last_at timestamp with time zone NOT NULL
)
WITH (fillfactor='50');
-- Name: queries; Type: TABLE; Schema: penstock; Owner: -
CREATE TABLE penstock.queries (
    id integer NOT NULL,
    name text NOT NULL,
    description text[] NOT NULL,
    fingerprint text NOT NULL,
    fields jsonb,
    result jsonb,
    sink_queue text,
    cycle bigint DEFAULT 0 NOT NULL,
    closed_us bigint,
    fence bigint DEFAULT 0 NOT NULL,
    driver text,
    lease_until timestamp with time zone DEFAULT '1970-01-01 00:00:00+00'::timestamp with time zone NOT NULL,
    suspicion bytea,
    history_seconds double precision NOT NULL,
    created_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL
);
-- Name: queries_id_seq; Type: SEQUENCE; Schema: penstock; Owner: -
ALTER TABLE penstock.queries ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME penstock.queries_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);
-- Name: queues_id_seq; Type: SEQUENCE; Schema: penstock; Owner: -
ALTER TABLE penstock.queues ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME penstock.queues_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);
-- Name: reports; Type: TABLE; Schema: penstock; Owner: -
CREATE UNLOGGED TABLE penstock.reports (
    query_id integer NOT NULL,
    fence bigint NOT NULL,
    cycle bigint NOT NULL,
    stage integer NOT NULL,
    task integer NOT NULL,
    attempt bigint NOT NULL,
    report bytea NOT NULL
);
-- Name: requests; Type: TABLE; Schema: penstock; Owner: -
CREATE TABLE penstock.requests (
    idempotency_key text NOT NULL,
    fingerprint bytea NOT NULL,
    result bytea NOT NULL,
    created_at timestamp with time zone NOT NULL
);
-- Name: segment_lanes; Type: TABLE; Schema: penstock; Owner: -
CREATE TABLE penstock.segment_lanes (
    queue_id integer NOT NULL,
    segment integer NOT NULL,
    partition_id bigint NOT NULL,
    first_offset bigint NOT NULL,
    end_offset bigint NOT NULL,
    last_at timestamp with time zone NOT NULL
);
-- Name: segments; Type: TABLE; Schema: penstock; Owner: -
CREATE TABLE penstock.segments (
    queue_id integer NOT NULL,
    segment integer NOT NULL,
    has_ids boolean NOT NULL,
    created_at timestamp with time zone NOT NULL,
    sealed_at timestamp with time zone
);
-- Name: state; Type: VIEW; Schema: penstock; Owner: -
CREATE VIEW penstock.state AS
 SELECT NULL::text AS query,
    NULL::text AS key,
    NULL::timestamp with time zone AS window_start,
    NULL::timestamp with time zone AS window_end,
    NULL::jsonb AS value,
    NULL::timestamp with time zone AS updated_at
  WHERE false;
-- Data for Name: chunks_1_1; Type: TABLE DATA; Schema: penstock; Owner: -
INSERT INTO penstock.chunks_1_1 VALUES
	(1, 5, 5, '2025-11-15 19:11:32.872933+00', NULL, '66afa92a-1bcf-4fc9-913d-7721efbd3db6', '\x007ce07aa8470000009505c095a76164612d302d30a76164612d302d31a76164612d302d32a76164612d302d33a76164612d302d34c09581a168a13181a168a13181a168a13181a168a13181a168a1317b2270617274223a302c2269223a307d0a7b2270617274223a302c2269223a317d0a7b2270617274223a302c2269223a327d0a7b2270617274223a302c2269223a337d0a7b2270617274223a302c2269223a347d'),
	(2, 5, 5, '2025-11-15 19:11:32.952308+00', NULL, 'd9f7c431-3e06-404c-a221-1a9b17a60a7a', '\x00c1dc856e470000009505c095a7626f622d302d30a7626f622d302d31a7626f622d302d32a7626f622d302d33a7626f622d302d34c09581a168a13181a168a13181a168a13181a168a13181a168a1317b2270617274223a302c2269223a307d0a7b2270617274223a302c2269223a317d0a7b2270617274223a302c2269223a327d0a7b2270617274223a302c2269223a337d0a7b2270617274223a302c2269223a347d'),
	(1, 10, 5, '2025-11-15 19:11:32.959132+00', NULL, 'bd26197b-1cab-4214-b7a2-df432c3ddef0', '\x0062a7bfd6470000009505c095a76164612d312d30a76164612d312d31a76164612d312d32a76164612d312d33a76164612d312d34c09581a168a13181a168a13181a168a13181a168a13181a168a1317b2270617274223a312c2269223a307d0a7b2270617274223a312c2269223a317d0a7b2270617274223a312c2269223a327d0a7b2270617274223a312c2269223a337d0a7b2270617274223a312c2269223a347d'),
	(2, 10, 5, '2025-11-15 19:11:32.960836+00', NULL, 'b06bba6a-a773-49af-b7bf-cb31909740c6', '\x00df9b4010470000009505c095a7626f622d312d30a7626f622d312d31a7626f622d312d32a7626f622d312d33a7626f622d312d34c09581a168a13181a168a13181a168a13181a168a13181a168a1317b2270617274223a312c2269223a307d0a7b2270617274223a312c2269223a317d0a7b2270617274223a312c2269223a327d0a7b2270617274223a312c2269223a337d0a7b2270617274223a312c2269223a347d'),
	(1, 15, 5, '2025-11-15 19:11:32.974305+00', NULL, '678479ca-dc9d-4fc4-a0a3-c4262b3dcc58', '\x00406ef055470000009505c095a76164612d322d30a76164612d322d31a76164612d322d32a76164612d322d33a76164612d322d34c09581a168a13181a168a13181a168a13181a168a13181a168a1317b2270617274223a322c2269223a307d0a7b2270617274223a322c2269223a317d0a7b2270617274223a322c2269223a327d0a7b2270617274223a322c2269223a337d0a7b2270617274223a322c2269223a347d'),
	(2, 15, 5, '2025-11-15 19:11:32.982913+00', NULL, '6f3bb417-830c-4309-8930-b8433fc72e73', '\x00fd520f93470000009505c095a7626f622d322d30a7626f622d322d31a7626f622d322d32a7626f622d322d33a7626f622d322d34c09581a168a13181a168a13181a168a13181a168a13181a168a1317b2270617274223a322c2269223a307d0a7b2270617274223a322c2269223a317d0a7b2270617274223a322c2269223a327d0a7b2270617274223a322c2269223a337d0a7b2270617274223a322c2269223a347d'),
	(1, 16, 1, '2025-11-15 19:11:33.48291+00', 1, '401fab0a-e049-4f21-b2f0-576cdb44168e', '\x00b610a6f52a0000009501c091a76164612d302d33c09182a168a131b470656e73746f636b2d646561642d6c6574746572a1317b2270617274223a302c2269223a337d');
-- Data for Name: chunks_1_2; Type: TABLE DATA; Schema: penstock; Owner: -
INSERT INTO penstock.chunks_1_2 VALUES
	(1, 21, 5, '2025-11-15 19:11:34.291121+00', NULL, 'a23b92a9-1b52-489e-a6f5-13b2bc0ed5e8', '\x003f459e8b2e0000009505c095a76164612d332d30a76164612d332d31a76164612d332d32a76164612d332d33a76164612d332d34c0c07b2270617274223a332c2269223a307d0a7b2270617274223a332c2269223a317d0a7b2270617274223a332c2269223a327d0a7b2270617274223a332c2269223a337d0a7b2270617274223a332c2269223a347d');
-- Data for Name: chunks_2_1; Type: TABLE DATA; Schema: penstock; Owner: -
INSERT INTO penstock.chunks_2_1 VALUES
	(4, 29, 29, '2025-11-15 19:11:33.116628+00', NULL, '8dc048c7-b79b-4ec8-81c3-2106bff699d4', '\x0128b52ffd646000ed030082841018b0a50d0c3806526c80ca6b4d98635a5a929494791b164e0acaf0397429a8e6552e6474e29ac2aba96434a729643583c273e8d25a6bfdd53ffdd15f584000cc2c081c00800820171004990122801c200c10010882cc0011400e10068800044166800820c742185745403e9019c802f281cc408a95d6c7a3850920ffc221'),
	(3, 21, 21, '2025-11-15 19:11:33.116728+00', NULL, '8dc048c7-b79b-4ec8-81c3-2106bff699d4', '\x0128b52ffd6404004d0300e403470000009515dc0015a26b34a26b35a26b36c0c0c07b226e223a347d0a35363131323338393230353637333233343934303136377d0a7b226e223a34387d1400800820171004990122805c40106406880072014190192002c801c25848035940de95d61bcf1206d168927a');
-- Data for Name: chunks_2_2; Type: TABLE DATA; Schema: penstock; Owner: -
-- Data for Name: chunks_3_1; Type: TABLE DATA; Schema: penstock; Owner: -
-- Data for Name: cursors; Type: TABLE DATA; Schema: penstock; Owner: -
INSERT INTO penstock.cursors VALUES
	(1, 1, 0),
	(1, 2, 0),
	(2, 3, 0),
	(2, 4, 0);
-- Data for Name: cycles; Type: TABLE DATA; Schema: penstock; Owner: -
-- Data for Name: dead_letters; Type: TABLE DATA; Schema: penstock; Owner: -
INSERT INTO penstock.dead_letters OVERRIDING SYSTEM VALUE VALUES
	(2, 1, 2, 0, 'mail', 'bob', 'bob-0-0', NULL, '2025-11-15 19:11:32.952308+00', '{"h":"1"}', '{"part":0,"i":0}', 'consumer', 'sent back', NULL, 1, '2025-11-15 19:11:33.435815+00', '2025-11-15 19:11:33.435815+00', 0, NULL, '[]'),
	(3, 1, 2, 1, 'mail', 'bob', 'bob-0-1', NULL, '2025-11-15 19:11:32.952308+00', '{"h":"1"}', '{"part":0,"i":1}', 'consumer', 'sent back', NULL, 1, '2025-11-15 19:11:33.441149+00', '2025-11-15 19:11:33.441149+00', 0, NULL, '[]'),
	(1, 1, 1, 3, 'mail', 'ada', 'ada-0-3', NULL, '2025-11-15 19:11:32.872933+00', '{"h":"1"}', '{"part":0,"i":3}', 'consumer', 'no good', NULL, 1, '2025-11-15 19:11:33.343717+00', '2025-11-15 19:11:33.343717+00', 1, '2025-11-15 19:11:33.498272+00', '[]');
-- Data for Name: groups; Type: TABLE DATA; Schema: penstock; Owner: -
INSERT INTO penstock.groups OVERRIDING SYSTEM VALUE VALUES
	(1, 1, 'mail', 0, 'beginning', NULL, 0, '2025-11-15 19:11:33.161324+00'),
	(2, 2, 'sums', 0, 'beginning', NULL, 0, '2025-11-15 19:11:33.527367+00');
-- Data for Name: ids_1_1; Type: TABLE DATA; Schema: penstock; Owner: -
INSERT INTO penstock.ids_1_1 VALUES
	('028abe3d-8aeb-d10b-782d-e41c476f0456', 0),
	('ff45978f-5c41-6fc1-643b-c0fb5f6c15bd', 1),
	('da5cedf7-84c6-a6c1-b70b-4f6b57bb5897', 2),
	('ff40bbda-389c-27c2-4087-4cc99cced870', 3),
	('b59d254e-7fbc-9fa3-667f-f2a4dc43cb59', 4),
	('faf7f7a0-b4c0-165d-3eb3-60777e86df80', 0),
	('001c8c4d-a503-3f14-dd9e-b37b37d464f1', 1),
	('1868cbbb-d366-70c4-ed26-1d614a9df590', 2),
	('8b372f85-7aeb-eb92-1511-881973048fff', 3),
	('6aa85854-485c-4a57-2db3-c58502618584', 4),
	('32f449a6-0eb4-6086-da6f-84ce2dc895a2', 5),
	('43d2e672-d27a-4a1e-6407-412c5fbc39bc', 6),
	('0fdec6af-1537-412a-6fc1-8e2475c5a4cc', 7),
	('fe881608-fa40-b6d7-7bf2-c1f5fef6e364', 8),
	('d8a1a412-f065-9485-c16b-3ba97dec9da4', 9),
	('4375ce8e-6879-2b4d-c811-179d0ec92e38', 5),
	('7f7f0c4a-11f7-32f1-9ce5-4ee4c9291807', 6),
	('566f8150-1885-6ce2-3312-4f5c6ec2f3c2', 7),
	('c7ba6f07-a6c7-929e-9324-4f32ebed6ea3', 8),
	('916297cb-f0b9-12e8-be45-59fefeae30f9', 9),
	('ee72ebbb-c657-9ee4-a0a8-04baa0905f92', 10),
	('62f31abb-99b6-5269-3530-50cc653af5db', 11),
	('1a1ed68f-8d64-bf96-ec7d-cb7c910b131e', 12),
	('2725fa5f-cd62-9935-0d36-a70402094cc8', 13),
	('fe9e1c4f-a4f1-4c74-0b6f-bfa966b40d55', 14),
	('7f3286b5-e5bf-bd7e-10a3-cf7522cdfe3d', 10),
	('453a4b21-26b7-5688-3830-f0e00fd17bfa', 11),
	('5eae4046-d240-b5ad-7d27-755564a71bfb', 12),
	('6787b4f0-c04e-a82a-d283-0512a0005cfb', 13),
	('ec0f4f89-5e3d-9d10-a5ae-62347c2a2123', 14);
-- Data for Name: ids_1_2; Type: TABLE DATA; Schema: penstock; Owner: -
INSERT INTO penstock.ids_1_2 VALUES
	('9915712d-c074-38ee-9b4f-64137e09fe48', 16),
	('664e4ef3-e540-f83b-f824-d25e02684daa', 17),
	('5b521977-1968-6545-0306-ca5024822feb', 18),
	('04ca57dc-0cac-5014-7190-929d0ea96ddc', 19),
	('07d1bb87-fa71-e4af-5d1e-3a9380870514', 20);
-- Data for Name: ids_2_1; Type: TABLE DATA; Schema: penstock; Owner: -
-- Data for Name: ids_2_2; Type: TABLE DATA; Schema: penstock; Owner: -
-- Data for Name: ids_3_1; Type: TABLE DATA; Schema: penstock; Owner: -
-- Data for Name: migrations; Type: TABLE DATA; Schema: penstock; Owner: -
INSERT INTO penstock.migrations VALUES
	(1, 'log', '86b0cf30c273175e5516412782d6dcff77af5a578528d632b3b7496a80eb8aa2', '2025-11-15 19:11:32.412403+00'),
	(2, 'log_more', '1801c2507bad56b41a41aa2f235a3a6b0399c6f283556e2e8e7025dffd29e60a', '2025-11-15 19:11:32.498248+00'),
	(3, 'engine', 'f697699451bad20d17af0b7dc754c45e3943ee3baad9b6f1f5dcab48004c6b5e', '2025-11-15 19:11:32.641871+00');
-- Data for Name: partitions; Type: TABLE DATA; Schema: penstock; Owner: -
INSERT INTO penstock.partitions OVERRIDING SYSTEM VALUE VALUES
	(1, 1, 0, 'ada', true, 16, '2025-11-15 19:11:33.48291+00'),
	(2, 1, 0, 'bob', true, 15, '2025-11-15 19:11:32.982913+00'),
	(3, 2, 0, '0', false, 21, '2025-11-15 19:11:33.116728+00'),
	(4, 2, 0, '1', false, 29, '2025-11-15 19:11:33.116628+00');
-- Data for Name: positions; Type: TABLE DATA; Schema: penstock; Owner: -
INSERT INTO penstock.positions VALUES
	(1, 1, 3, 4, NULL, 4, '1970-01-01 00:00:00+00', 0, '{}', '2025-11-15 19:11:33.367145+00', 0, 0),
	(1, 2, 2, 2, NULL, 2, '1970-01-01 00:00:00+00', 0, '{}', '2025-11-15 19:11:33.449841+00', 0, 0),
	(2, 4, 0, 0, NULL, 0, '1970-01-01 00:00:00+00', 0, '{}', '2025-11-15 19:11:33.552941+00', 0, 0),
	(2, 3, 1, 0, 'a95b78ce-4274-4c52-a890-e1d8e6628bb0', 10, '2025-11-15 19:16:33.583317+00', 0, '{}', '2025-11-15 19:11:33.583317+00', 0, 0);
-- Data for Name: progress; Type: TABLE DATA; Schema: penstock; Owner: -
-- Data for Name: queries; Type: TABLE DATA; Schema: penstock; Owner: -
-- Data for Name: queues; Type: TABLE DATA; Schema: penstock; Owner: -
INSERT INTO penstock.queues OVERRIDING SYSTEM VALUE VALUES
	(3, 'empty', 'key', NULL, 0, 1, 300, 3, 1000, 0, NULL, false, 3600, NULL, NULL, 10, NULL, '2025-11-15 19:11:33.607252+00', NULL),
	(1, 'jobs', 'key', NULL, 0, 2, 60, 0, 1000, 0, NULL, false, 3600, NULL, NULL, 10, NULL, '2025-11-15 19:11:32.704893+00', NULL),
	(2, 'clicks', 'hash', 2, 0, 2, 300, 3, 1000, 0, NULL, false, 0, NULL, NULL, 10, NULL, '2025-11-15 19:11:33.009443+00', NULL);
-- Data for Name: reports; Type: TABLE DATA; Schema: penstock; Owner: -
-- Data for Name: requests; Type: TABLE DATA; Schema: penstock; Owner: -
-- Data for Name: segment_lanes; Type: TABLE DATA; Schema: penstock; Owner: -
INSERT INTO penstock.segment_lanes VALUES
	(1, 1, 1, 0, 16, '2025-11-15 19:11:33.48291+00'),
	(1, 1, 2, 0, 15, '2025-11-15 19:11:32.982913+00'),
	(2, 1, 3, 0, 21, '2025-11-15 19:11:33.116728+00'),
	(2, 1, 4, 0, 29, '2025-11-15 19:11:33.116628+00');
-- Data for Name: segments; Type: TABLE DATA; Schema: penstock; Owner: -
INSERT INTO penstock.segments VALUES
	(3, 1, true, '2025-11-15 19:11:33.621953+00', NULL),
	(1, 1, true, '2025-11-15 19:11:32.726788+00', '2025-11-15 19:11:34.006264+00'),
	(1, 2, true, '2025-11-15 19:11:34.044403+00', NULL),
	(2, 1, true, '2025-11-15 19:11:33.014827+00', '2025-11-15 19:11:34.159769+00'),
	(2, 2, true, '2025-11-15 19:11:34.193163+00', NULL);
-- Name: dead_letters_id_seq; Type: SEQUENCE SET; Schema: penstock; Owner: -
SELECT pg_catalog.setval('penstock.dead_letters_id_seq', 3, true);
-- Name: groups_id_seq; Type: SEQUENCE SET; Schema: penstock; Owner: -
SELECT pg_catalog.setval('penstock.groups_id_seq', 2, true);
-- Name: partitions_id_seq; Type: SEQUENCE SET; Schema: penstock; Owner: -
SELECT pg_catalog.setval('penstock.partitions_id_seq', 4, true);
-- Name: queries_id_seq; Type: SEQUENCE SET; Schema: penstock; Owner: -
SELECT pg_catalog.setval('penstock.queries_id_seq', 1, false);
-- Name: queues_id_seq; Type: SEQUENCE SET; Schema: penstock; Owner: -
SELECT pg_catalog.setval('penstock.queues_id_seq', 3, true);
-- Name: chunks_1_1 chunks_1_1_pkey; Type: CONSTRAINT; Schema: penstock; Owner: -
ALTER TABLE ONLY penstock.chunks_1_1
    ADD CONSTRAINT chunks_1_1_pkey PRIMARY KEY (partition_id, end_offset);
-- Name: chunks_1_2 chunks_1_2_pkey; Type: CONSTRAINT; Schema: penstock; Owner: -
ALTER TABLE ONLY penstock.chunks_1_2
    ADD CONSTRAINT chunks_1_2_pkey PRIMARY KEY (partition_id, end_offset);
-- Name: chunks_2_1 chunks_2_1_pkey; Type: CONSTRAINT; Schema: penstock; Owner: -
ALTER TABLE ONLY penstock.chunks_2_1
    ADD CONSTRAINT chunks_2_1_pkey PRIMARY KEY (partition_id, end_offset);
-- Name: chunks_2_2 chunks_2_2_pkey; Type: CONSTRAINT; Schema: penstock; Owner: -
ALTER TABLE ONLY penstock.chunks_2_2
    ADD CONSTRAINT chunks_2_2_pkey PRIMARY KEY (partition_id, end_offset);
-- Name: chunks_3_1 chunks_3_1_pkey; Type: CONSTRAINT; Schema: penstock; Owner: -
ALTER TABLE ONLY penstock.chunks_3_1
    ADD CONSTRAINT chunks_3_1_pkey PRIMARY KEY (partition_id, end_offset);
-- Name: cursors cursors_pkey; Type: CONSTRAINT; Schema: penstock; Owner: -
ALTER TABLE ONLY penstock.cursors
    ADD CONSTRAINT cursors_pkey PRIMARY KEY (group_id, partition_id);
-- Name: cycles cycles_pkey; Type: CONSTRAINT; Schema: penstock; Owner: -
ALTER TABLE ONLY penstock.cycles
    ADD CONSTRAINT cycles_pkey PRIMARY KEY (query_id, cycle);
-- Name: dead_letters dead_letters_pkey; Type: CONSTRAINT; Schema: penstock; Owner: -
ALTER TABLE ONLY penstock.dead_letters
    ADD CONSTRAINT dead_letters_pkey PRIMARY KEY (id);
-- Name: groups groups_pkey; Type: CONSTRAINT; Schema: penstock; Owner: -
ALTER TABLE ONLY penstock.groups
    ADD CONSTRAINT groups_pkey PRIMARY KEY (id);
-- Name: groups groups_queue_id_name_key; Type: CONSTRAINT; Schema: penstock; Owner: -
ALTER TABLE ONLY penstock.groups
    ADD CONSTRAINT groups_queue_id_name_key UNIQUE (queue_id, name);
-- Name: migrations migrations_pkey; Type: CONSTRAINT; Schema: penstock; Owner: -
ALTER TABLE ONLY penstock.migrations
    ADD CONSTRAINT migrations_pkey PRIMARY KEY (version);
-- Name: partitions partitions_pkey; Type: CONSTRAINT; Schema: penstock; Owner: -
ALTER TABLE ONLY penstock.partitions
    ADD CONSTRAINT partitions_pkey PRIMARY KEY (id);
-- Name: partitions partitions_queue_id_epoch_name_key; Type: CONSTRAINT; Schema: penstock; Owner: -
ALTER TABLE ONLY penstock.partitions
    ADD CONSTRAINT partitions_queue_id_epoch_name_key UNIQUE (queue_id, epoch, name);
-- Name: positions positions_pkey; Type: CONSTRAINT; Schema: penstock; Owner: -
ALTER TABLE ONLY penstock.positions
    ADD CONSTRAINT positions_pkey PRIMARY KEY (group_id, partition_id, version);
-- Name: progress progress_pkey; Type: CONSTRAINT; Schema: penstock; Owner: -
ALTER TABLE ONLY penstock.progress
    ADD CONSTRAINT progress_pkey PRIMARY KEY (query_id, partition_id);
-- Name: queries queries_name_key; Type: CONSTRAINT; Schema: penstock; Owner: -
ALTER TABLE ONLY penstock.queries
    ADD CONSTRAINT queries_name_key UNIQUE (name);
-- Name: queries queries_pkey; Type: CONSTRAINT; Schema: penstock; Owner: -
ALTER TABLE ONLY penstock.queries
    ADD CONSTRAINT queries_pkey PRIMARY KEY (id);
-- Name: queues queues_name_key; Type: CONSTRAINT; Schema: penstock; Owner: -
ALTER TABLE ONLY penstock.queues
    ADD CONSTRAINT queues_name_key UNIQUE (name);
-- Name: queues queues_pkey; Type: CONSTRAINT; Schema: penstock; Owner: -
ALTER TABLE ONLY penstock.queues
    ADD CONSTRAINT queues_pkey PRIMARY KEY (id);
-- Name: reports reports_pkey; Type: CONSTRAINT; Schema: penstock; Owner: -
ALTER TABLE ONLY penstock.reports
    ADD CONSTRAINT reports_pkey PRIMARY KEY (query_id, fence, cycle, stage, task, attempt);
-- Name: requests requests_pkey; Type: CONSTRAINT; Schema: penstock; Owner: -
ALTER TABLE ONLY penstock.requests
    ADD CONSTRAINT requests_pkey PRIMARY KEY (idempotency_key);
-- Name: segment_lanes segment_lanes_pkey; Type: CONSTRAINT; Schema: penstock; Owner: -
ALTER TABLE ONLY penstock.segment_lanes
    ADD CONSTRAINT segment_lanes_pkey PRIMARY KEY (partition_id, end_offset);
-- Name: segments segments_pkey; Type: CONSTRAINT; Schema: penstock; Owner: -
ALTER TABLE ONLY penstock.segments
    ADD CONSTRAINT segments_pkey PRIMARY KEY (queue_id, segment);
-- Name: cursors_active; Type: INDEX; Schema: penstock; Owner: -
CREATE INDEX cursors_active ON penstock.cursors USING btree (group_id, partition_id) WHERE (state = 0);
-- Name: cursors_parked; Type: INDEX; Schema: penstock; Owner: -
CREATE INDEX cursors_parked ON penstock.cursors USING btree (partition_id) WHERE (state = 1);
-- Name: cursors_partition; Type: INDEX; Schema: penstock; Owner: -
CREATE INDEX cursors_partition ON penstock.cursors USING btree (partition_id);
-- Name: dead_letters_redriven; Type: INDEX; Schema: penstock; Owner: -
CREATE INDEX dead_letters_redriven ON penstock.dead_letters USING btree (redriven_at) WHERE (redriven_at IS NOT NULL);
-- Name: dead_letters_waiting; Type: INDEX; Schema: penstock; Owner: -
CREATE INDEX dead_letters_waiting ON penstock.dead_letters USING btree (queue_id, id) WHERE (redriven_at IS NULL);
-- Name: ids_1_1_hash; Type: INDEX; Schema: penstock; Owner: -
CREATE INDEX ids_1_1_hash ON penstock.ids_1_1 USING btree (hash);
-- Name: ids_1_2_hash; Type: INDEX; Schema: penstock; Owner: -
CREATE INDEX ids_1_2_hash ON penstock.ids_1_2 USING btree (hash);
-- Name: ids_2_1_hash; Type: INDEX; Schema: penstock; Owner: -
CREATE INDEX ids_2_1_hash ON penstock.ids_2_1 USING btree (hash);
-- Name: ids_2_2_hash; Type: INDEX; Schema: penstock; Owner: -
CREATE INDEX ids_2_2_hash ON penstock.ids_2_2 USING btree (hash);
-- Name: ids_3_1_hash; Type: INDEX; Schema: penstock; Owner: -
CREATE INDEX ids_3_1_hash ON penstock.ids_3_1 USING btree (hash);
-- Name: requests_created; Type: INDEX; Schema: penstock; Owner: -
CREATE INDEX requests_created ON penstock.requests USING btree (created_at);
-- Name: segment_lanes_segment; Type: INDEX; Schema: penstock; Owner: -
CREATE INDEX segment_lanes_segment ON penstock.segment_lanes USING btree (queue_id, segment);
-- Name: cursors cursors_group_id_fkey; Type: FK CONSTRAINT; Schema: penstock; Owner: -
ALTER TABLE ONLY penstock.cursors
    ADD CONSTRAINT cursors_group_id_fkey FOREIGN KEY (group_id) REFERENCES penstock.groups(id) ON DELETE CASCADE;
-- Name: cursors cursors_partition_id_fkey; Type: FK CONSTRAINT; Schema: penstock; Owner: -
ALTER TABLE ONLY penstock.cursors
    ADD CONSTRAINT cursors_partition_id_fkey FOREIGN KEY (partition_id) REFERENCES penstock.partitions(id) ON DELETE CASCADE;
-- Name: cycles cycles_query_id_fkey; Type: FK CONSTRAINT; Schema: penstock; Owner: -
ALTER TABLE ONLY penstock.cycles
    ADD CONSTRAINT cycles_query_id_fkey FOREIGN KEY (query_id) REFERENCES penstock.queries(id) ON DELETE CASCADE;
-- Name: dead_letters dead_letters_queue_id_fkey; Type: FK CONSTRAINT; Schema: penstock; Owner: -
ALTER TABLE ONLY penstock.dead_letters
    ADD CONSTRAINT dead_letters_queue_id_fkey FOREIGN KEY (queue_id) REFERENCES penstock.queues(id) ON DELETE CASCADE;
-- Name: groups groups_queue_id_fkey; Type: FK CONSTRAINT; Schema: penstock; Owner: -
ALTER TABLE ONLY penstock.groups
    ADD CONSTRAINT groups_queue_id_fkey FOREIGN KEY (queue_id) REFERENCES penstock.queues(id) ON DELETE CASCADE;
-- Name: partitions partitions_queue_id_fkey; Type: FK CONSTRAINT; Schema: penstock; Owner: -
ALTER TABLE ONLY penstock.partitions
    ADD CONSTRAINT partitions_queue_id_fkey FOREIGN KEY (queue_id) REFERENCES penstock.queues(id) ON DELETE CASCADE;
-- Name: progress progress_query_id_fkey; Type: FK CONSTRAINT; Schema: penstock; Owner: -
ALTER TABLE ONLY penstock.progress
    ADD CONSTRAINT progress_query_id_fkey FOREIGN KEY (query_id) REFERENCES penstock.queries(id) ON DELETE CASCADE;
-- Name: segment_lanes segment_lanes_queue_id_segment_fkey; Type: FK CONSTRAINT; Schema: penstock; Owner: -
ALTER TABLE ONLY penstock.segment_lanes
    ADD CONSTRAINT segment_lanes_queue_id_segment_fkey FOREIGN KEY (queue_id, segment) REFERENCES penstock.segments(queue_id, segment) ON DELETE CASCADE;
-- Name: segments segments_queue_id_fkey; Type: FK CONSTRAINT; Schema: penstock; Owner: -
ALTER TABLE ONLY penstock.segments
    ADD CONSTRAINT segments_queue_id_fkey FOREIGN KEY (queue_id) REFERENCES penstock.queues(id) ON DELETE CASCADE;
-- PostgreSQL database dump complete
