-- A database of release 0.1.0 (schema 18), upgraded from the first schema: pg_dump --no-owner --no-privileges --rows-per-insert=1000,
-- without blank lines. Queues partitioned by key and by hash with sealed segments; a group in the middle, with dead letters, one of them
-- replayed; a lease that expired without an ack.
-- PostgreSQL database dump
-- Dumped from database version 18.4
-- Dumped by pg_dump version 18.4
SET statement_timeout = 0;
SET lock_timeout = 0;
SET idle_in_transaction_session_timeout = 0;
SET transaction_timeout = 0;
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
-- Name: add_doubles(double precision, double precision); Type: FUNCTION; Schema: penstock; Owner: -
CREATE FUNCTION penstock.add_doubles(a double precision, b double precision) RETURNS double precision
    LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
    AS $$
    SELECT CASE WHEN n.total > 1.7976931348623157e308 THEN 'Infinity' WHEN n.total < -1.7976931348623157e308 THEN '-Infinity'
           ELSE n.total::double precision END
    FROM (SELECT a::text::numeric + b::text::numeric AS total) AS n
$$;
-- Name: as_boolean(anyelement); Type: FUNCTION; Schema: penstock; Owner: -
CREATE FUNCTION penstock.as_boolean(value anyelement) RETURNS boolean
    LANGUAGE sql STABLE STRICT PARALLEL SAFE
    AS $$
    SELECT CASE
        WHEN lower(trim(value::text)) IN ('t', 'true', 'y', 'yes') THEN true
        WHEN lower(trim(value::text)) IN ('f', 'false', 'n', 'no') THEN false
        WHEN value::text ~ '\d' AND (pg_typeof(value) <> 'text'::regtype OR trim(value::text) IN ('0', '1'))
            THEN value::text ~ '[1-9]'
    END
$$;
-- Name: as_decimal(numeric, integer, integer); Type: FUNCTION; Schema: penstock; Owner: -
CREATE FUNCTION penstock.as_decimal(number numeric, digits integer, after_point integer) RETURNS numeric
    LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
    AS $$
    SELECT CASE WHEN abs(n.rounded) < 10::numeric ^ (digits - after_point) THEN n.rounded END
    FROM (SELECT round(number, after_point) AS rounded) AS n
$$;
-- Name: as_double(numeric); Type: FUNCTION; Schema: penstock; Owner: -
CREATE FUNCTION penstock.as_double(number numeric) RETURNS double precision
    LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
    AS $$
    SELECT CASE
        WHEN abs(number) > 1.7976931348623157e308 THEN NULL
        WHEN abs(number) < 5e-324 THEN 0
        ELSE number::double precision
    END
$$;
-- Name: as_moment(anyelement); Type: FUNCTION; Schema: penstock; Owner: -
CREATE FUNCTION penstock.as_moment(value anyelement) RETURNS timestamp with time zone
    LANGUAGE plpgsql STABLE STRICT
    AS $_$
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
$_$;
-- Name: as_number(anyelement, boolean); Type: FUNCTION; Schema: penstock; Owner: -
CREATE FUNCTION penstock.as_number(value anyelement, whole boolean) RETURNS numeric
    LANGUAGE sql STABLE STRICT PARALLEL SAFE
    AS $_$
    SELECT CASE
        WHEN pg_typeof(value) = 'boolean'::regtype THEN CASE value::text WHEN 'true' THEN 1 ELSE 0 END
        WHEN pg_typeof(value) = 'timestamptz'::regtype THEN extract(epoch FROM value::text::timestamptz)
        WHEN whole AND pg_typeof(value) = 'text'::regtype AND value::text !~ '^\s*[+-]?\d+\s*$' THEN NULL
        WHEN length(value::text) < 1000 AND value::text ~ '^\s*[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d{1,3})?\s*$'
            THEN value::text::numeric
    END
$_$;
-- Name: as_text(anyelement); Type: FUNCTION; Schema: penstock; Owner: -
CREATE FUNCTION penstock.as_text(value anyelement) RETURNS text
    LANGUAGE sql STABLE STRICT PARALLEL SAFE
    AS $_$
    SELECT CASE pg_typeof(value)
        WHEN 'timestamptz'::regtype THEN
            regexp_replace(to_char(value::text::timestamptz AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI:SS.US'), '\.?0+$', '')
        ELSE value::text
    END
$_$;
-- Name: as_whole(numeric, numeric); Type: FUNCTION; Schema: penstock; Owner: -
CREATE FUNCTION penstock.as_whole(number numeric, highest numeric) RETURNS numeric
    LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
    AS $$
    SELECT CASE WHEN trunc(number) BETWEEN -highest - 1 AND highest THEN trunc(number) END
$$;
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
-- Name: cycle_bounds(); Type: FUNCTION; Schema: penstock; Owner: -
CREATE FUNCTION penstock.cycle_bounds() RETURNS double precision[]
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN ARRAY[(0.05)::double precision, (0.1)::double precision, (0.2)::double precision, (0.3)::double precision, (0.5)::double precision, (0.75)::double precision, (1)::double precision, (1.5)::double precision, (2)::double precision, (3)::double precision, (5)::double precision, (10)::double precision, (30)::double precision, (60)::double precision, (300)::double precision];
-- Name: count_in(bigint[], double precision); Type: FUNCTION; Schema: penstock; Owner: -
CREATE FUNCTION penstock.count_in(counts bigint[], value double precision) RETURNS bigint[]
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    BEGIN ATOMIC
 SELECT
         CASE
             WHEN (count_in.value IS NULL) THEN c.held
             ELSE ((c.held[:c.place] || (c.held[(c.place + 1)] + 1)) || c.held[(c.place + 2):])
         END AS "case"
    FROM ( SELECT COALESCE(NULLIF(count_in.counts, '{}'::bigint[]), array_fill((0)::bigint, ARRAY[(cardinality(penstock.cycle_bounds()) + 1)])) AS held,
             width_bucket(count_in.value, penstock.cycle_bounds()) AS place) c;
END;
-- Name: distinct_estimate(bigint[]); Type: FUNCTION; Schema: penstock; Owner: -
CREATE FUNCTION penstock.distinct_estimate(lowest bigint[]) RETURNS bigint
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    AS $$
    SELECT CASE WHEN lowest IS NULL THEN 0 WHEN cardinality(lowest) < 1024 THEN cardinality(lowest)
           ELSE round(1023 / ((lowest[1024]::numeric + 9223372036854775808) / 18446744073709551616))::bigint END
$$;
-- Name: drop_append(integer, integer); Type: FUNCTION; Schema: penstock; Owner: -
CREATE FUNCTION penstock.drop_append(_queue integer, _segment integer) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
BEGIN
    EXECUTE format('DROP FUNCTION IF EXISTS penstock.append_%s_%s', _queue, _segment);
END
$$;
-- Name: drop_chunks(integer, integer); Type: FUNCTION; Schema: penstock; Owner: -
CREATE FUNCTION penstock.drop_chunks(_queue integer, _segment integer) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
BEGIN
    EXECUTE format('DROP TABLE IF EXISTS penstock.chunks_%s_%s', _queue, _segment);
END
$$;
-- Name: drop_ids(integer, integer); Type: FUNCTION; Schema: penstock; Owner: -
CREATE FUNCTION penstock.drop_ids(_queue integer, _segment integer) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
BEGIN
    EXECUTE format('DROP TABLE IF EXISTS penstock.ids_%s_%s', _queue, _segment);
END
$$;
-- Name: gate_limits_change(); Type: FUNCTION; Schema: penstock; Owner: -
CREATE FUNCTION penstock.gate_limits_change() RETURNS trigger
    LANGUAGE plpgsql
    AS $$
BEGIN
    PERFORM pg_advisory_xact_lock(7812746384131);
    IF TG_OP = 'TRUNCATE' THEN
        DELETE FROM penstock.gate_limits;
    END IF;
    RETURN NULL;
END
$$;
-- Name: gate_limits_changed(); Type: FUNCTION; Schema: penstock; Owner: -
CREATE FUNCTION penstock.gate_limits_changed() RETURNS trigger
    LANGUAGE plpgsql
    AS $$
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
    -- Of many keys, or of one that is long, the driver hears no more than that there was something.
    PERFORM pg_notify('penstock_gates', json_build_array(
        c.name, CASE WHEN octet_length(c.key) < 1000 THEN c.key ELSE '' END)::text)
    FROM (SELECT DISTINCT * FROM unnest(names, CASE WHEN cardinality(names) <= 50 THEN keys END) AS c (name, key)) c;
    -- Drivers of earlier versions hear the name alone.
    PERFORM pg_notify('penstock_gates', name) FROM unnest(names) AS name GROUP BY name;
    PERFORM pg_notify('penstock', queue_id::text) FROM penstock.groups WHERE query_id = ANY(names);
    RETURN NULL;
END
$$;
-- Name: join_moments(double precision[], double precision[]); Type: FUNCTION; Schema: penstock; Owner: -
CREATE FUNCTION penstock.join_moments(a double precision[], b double precision[]) RETURNS double precision[]
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    AS $$
    SELECT CASE WHEN a IS NULL OR a[1] = 0 THEN b WHEN b IS NULL OR b[1] = 0 THEN a
           WHEN greatest(abs(a[2]), abs(b[2])) > 1e120 OR greatest(a[3], b[3]) > 1e300
               THEN ARRAY[a[1] + b[1], 'Infinity', 'Infinity']
           ELSE ARRAY[a[1] + b[1], a[2] + d.apart * b[1] / (a[1] + b[1]),
                      a[3] + b[3] + d.apart * d.apart * a[1] * b[1] / (a[1] + b[1])] END
    FROM (SELECT CASE WHEN abs(b[2] - a[2]) > 1e-150 THEN b[2] - a[2] ELSE 0 END AS apart) AS d
$$;
-- Name: lowest(bigint[], bigint[]); Type: FUNCTION; Schema: penstock; Owner: -
CREATE FUNCTION penstock.lowest(a bigint[], b bigint[]) RETURNS bigint[]
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    AS $$
    SELECT CASE WHEN a IS NULL THEN b WHEN b IS NULL THEN a
           ELSE ARRAY(SELECT x FROM unnest(a) AS x UNION SELECT x FROM unnest(b) AS x ORDER BY 1 LIMIT 1024) END
$$;
-- Name: make_append(integer, integer); Type: FUNCTION; Schema: penstock; Owner: -
CREATE FUNCTION penstock.make_append(_queue integer, _segment integer) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $_$
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
    -- In id order everywhere, so that two pushes can never wait for each other.
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
        -- With the epoch above the offset: the partition of the key may be another one by the time it is found.
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
$_$;
-- Name: make_segment(integer, integer); Type: FUNCTION; Schema: penstock; Owner: -
CREATE FUNCTION penstock.make_segment(_queue integer, _segment integer) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $_$
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
    -- It is compressed already: PostgreSQL need not try again.
    EXECUTE format('ALTER TABLE penstock.chunks_%s_%s ALTER COLUMN body SET STORAGE EXTERNAL', _queue, _segment);
    -- The hash is of the key and the id, so it is found whatever the partition.
    EXECUTE format('CREATE TABLE penstock.ids_%s_%s (hash uuid NOT NULL, event_offset bigint NOT NULL)', _queue, _segment);
    EXECUTE format('CREATE INDEX ids_%1$s_%2$s_hash ON penstock.ids_%1$s_%2$s (hash)', _queue, _segment);
    PERFORM penstock.make_append(_queue, _segment);
END
$_$;
-- Name: mean(numeric, bigint); Type: FUNCTION; Schema: penstock; Owner: -
CREATE FUNCTION penstock.mean(total numeric, events bigint) RETURNS numeric
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    AS $$
    SELECT CASE WHEN events IS NULL OR events = 0 OR total IS NULL THEN NULL WHEN q = 0 THEN 0
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
-- Name: oldest_unread(integer, integer, integer); Type: FUNCTION; Schema: penstock; Owner: -
CREATE FUNCTION penstock.oldest_unread(_group integer, _queue integer, _segment integer) RETURNS timestamp with time zone
    LANGUAGE plpgsql STABLE SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    SET enable_hashjoin TO 'off'
    SET enable_mergejoin TO 'off'
    SET jit TO 'off'
    AS $_$
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
$_$;
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
-- Name: settle_gates(text[], text[], timestamp with time zone[]); Type: FUNCTION; Schema: penstock; Owner: -
CREATE FUNCTION penstock.settle_gates(names text[], keys text[], holds timestamp with time zone[]) RETURNS void
    LANGUAGE plpgsql
    SET enable_nestloop TO 'on'
    AS $_$
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
$_$;
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
-- Name: tokens(numeric, numeric, numeric, bigint, bigint, bigint); Type: FUNCTION; Schema: penstock; Owner: -
CREATE FUNCTION penstock.tokens(amount numeric, rate numeric, level numeric, at_us bigint, hold_us bigint, now_us bigint) RETURNS numeric
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN LEAST(amount, (CASE WHEN (hold_us > LEAST(at_us, now_us)) THEN (0)::numeric ELSE level END + ((rate * 0.000001) * (GREATEST((now_us - GREATEST(at_us, hold_us)), (0)::bigint))::numeric)));
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
-- Name: api_keys; Type: TABLE; Schema: penstock; Owner: -
CREATE TABLE penstock.api_keys (
    id text NOT NULL,
    name text NOT NULL,
    roles text[] NOT NULL,
    queues text[] NOT NULL,
    hash bytea NOT NULL,
    previous_hash bytea,
    previous_until timestamp with time zone,
    created_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    rotated_at timestamp with time zone,
    expires_at timestamp with time zone,
    revoked_at timestamp with time zone,
    last_used_at timestamp with time zone
);
-- Name: audit; Type: TABLE; Schema: penstock; Owner: -
CREATE TABLE penstock.audit (
    id bigint NOT NULL,
    at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    who text NOT NULL,
    action text NOT NULL,
    subject text NOT NULL,
    address text NOT NULL,
    outcome text NOT NULL,
    request_id text NOT NULL
);
-- Name: audit_id_seq; Type: SEQUENCE; Schema: penstock; Owner: -
ALTER TABLE penstock.audit ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME penstock.audit_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);
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
    error text,
    oldest_at timestamp with time zone,
    watermark timestamp with time zone,
    dropped bigint
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
    max_depth_events bigint DEFAULT 100000,
    max_event_bytes integer,
    max_redrives integer DEFAULT 10 NOT NULL,
    lanes_warned_at timestamp with time zone,
    created_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    expiry_limit integer,
    overflow text DEFAULT 'refuse'::text NOT NULL,
    away_seconds double precision DEFAULT 86400,
    key_field text,
    id_field text,
    time_field text,
    quiet_seconds double precision DEFAULT 0 NOT NULL,
    CONSTRAINT queues_check CHECK (((partitioning = 'hash'::text) = (partition_count IS NOT NULL))),
    CONSTRAINT queues_overflow_check CHECK ((overflow = ANY (ARRAY['refuse'::text, 'shed'::text]))),
    CONSTRAINT queues_partition_count_check CHECK ((partition_count > 0)),
    CONSTRAINT queues_partitioning_check CHECK ((partitioning = ANY (ARRAY['key'::text, 'hash'::text])))
);
-- Name: shed; Type: TABLE; Schema: penstock; Owner: -
CREATE TABLE penstock.shed (
    queue_id integer NOT NULL,
    events bigint NOT NULL,
    shed_at timestamp with time zone NOT NULL
);
-- Name: depth; Type: VIEW; Schema: penstock; Owner: -
CREATE VIEW penstock.depth AS
 SELECT q.name AS queue,
    d.partitions,
    d.events,
    d.appended,
    q.max_depth_events,
    ( SELECT (COALESCE(sum(s.events), (0)::numeric))::bigint AS "coalesce"
           FROM penstock.shed s
          WHERE (s.queue_id = q.id)) AS shed
   FROM (penstock.queues q
     CROSS JOIN LATERAL ( SELECT count(*) AS partitions,
            (COALESCE(sum((p.end_offset - p.first_offset)), (0)::numeric))::bigint AS events,
            (COALESCE(sum(p.end_offset), (0)::numeric))::bigint AS appended
           FROM penstock.partitions_of(q.id, q.segment) p(partition, partition_id, first_offset, end_offset)) d);
-- Name: gate_lanes; Type: TABLE; Schema: penstock; Owner: -
CREATE TABLE penstock.gate_lanes (
    query_id integer NOT NULL,
    partition_id bigint NOT NULL,
    key text NOT NULL,
    passed bigint DEFAULT 0 NOT NULL,
    allowed bigint DEFAULT 0 NOT NULL,
    denied_since timestamp with time zone,
    next_at timestamp with time zone,
    wakes_at timestamp with time zone,
    waits_for_acks boolean DEFAULT false NOT NULL,
    deficit bigint DEFAULT 0 NOT NULL,
    wants integer NOT NULL,
    decided_at timestamp with time zone NOT NULL,
    put_back bigint DEFAULT 0 NOT NULL
)
WITH (fillfactor='50', autovacuum_vacuum_scale_factor='0.1', autovacuum_vacuum_cost_delay='0');
-- Name: gate_limits; Type: TABLE; Schema: penstock; Owner: -
CREATE TABLE penstock.gate_limits (
    query text NOT NULL,
    key text NOT NULL,
    gate smallint NOT NULL,
    amount numeric,
    rate numeric,
    window_us bigint,
    weight integer,
    paused boolean,
    hold_until timestamp with time zone,
    changed_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    CONSTRAINT gate_limits_amount_check CHECK (((amount >= 0.000000001) AND (amount <= (1000000000)::numeric))),
    CONSTRAINT gate_limits_hold_until_check CHECK (((hold_until >= '1970-01-01 00:00:00+00'::timestamp with time zone) AND (hold_until <= '9000-01-01 00:00:00+00'::timestamp with time zone))),
    CONSTRAINT gate_limits_rate_check CHECK (((rate >= 0.000000001) AND (rate <= (1000000000)::numeric))),
    CONSTRAINT gate_limits_weight_check CHECK ((weight > 0)),
    CONSTRAINT gate_limits_window_us_check CHECK ((window_us > 0))
);
-- Name: gate_rules; Type: TABLE; Schema: penstock; Owner: -
CREATE TABLE penstock.gate_rules (
    query_id integer NOT NULL,
    gate smallint NOT NULL,
    kind text NOT NULL,
    amount numeric NOT NULL,
    rate numeric,
    window_us bigint,
    group_name text,
    shared boolean NOT NULL,
    CONSTRAINT gate_rules_kind_check CHECK ((kind = ANY (ARRAY['token_bucket'::text, 'sliding_window'::text, 'concurrency'::text])))
);
-- Name: gate_states; Type: TABLE; Schema: penstock; Owner: -
CREATE TABLE penstock.gate_states (
    query_id integer NOT NULL,
    partition_id bigint NOT NULL,
    gate smallint NOT NULL,
    amount numeric NOT NULL,
    rate numeric,
    window_us bigint,
    at_us bigint NOT NULL,
    level numeric,
    grant_times bigint[],
    grant_costs bigint[],
    cost_total numeric DEFAULT 0 NOT NULL,
    turn bigint DEFAULT 0 NOT NULL
)
WITH (fillfactor='50', autovacuum_vacuum_scale_factor='0.1', autovacuum_vacuum_cost_delay='0');
-- Name: groups; Type: TABLE; Schema: penstock; Owner: -
CREATE TABLE penstock.groups (
    id integer NOT NULL,
    queue_id integer NOT NULL,
    name text NOT NULL,
    epoch integer NOT NULL,
    subscribed_from text NOT NULL,
    query_id text,
    dropped bigint DEFAULT 0 NOT NULL,
    created_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    counts boolean DEFAULT true NOT NULL,
    seen_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL
);
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
    created_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    is_paused boolean DEFAULT false NOT NULL,
    stopped_at timestamp with time zone,
    gate_time timestamp with time zone DEFAULT '1970-01-01 00:00:00+00'::timestamp with time zone NOT NULL
);
-- Name: gates; Type: VIEW; Schema: penstock; Owner: -
CREATE VIEW penstock.gates AS
 WITH behind AS (
         SELECT r_1.id AS query_id,
            s_1.partition_id,
            GREATEST((s_1.end_offset - s_1.next_offset), (0)::bigint) AS backlog
           FROM (((penstock.queries r_1
             JOIN penstock.groups g ON ((g.query_id = r_1.name)))
             JOIN penstock.queues q ON ((q.id = g.queue_id)))
             CROSS JOIN LATERAL penstock.standing_of(g.id, q.id, q.segment) s_1(partition, partition_id, next_offset, end_offset, leased))
          WHERE (EXISTS ( SELECT
                   FROM penstock.gate_rules u_1
                  WHERE (u_1.query_id = r_1.id)))
        ), flying AS (
         SELECT r_1.id AS query_id,
            u_1.gate,
            s_1.partition AS key,
            GREATEST((s_1.end_offset - s_1.next_offset), (0)::bigint) AS in_flight
           FROM ((((penstock.queries r_1
             JOIN penstock.gate_rules u_1 ON (((u_1.query_id = r_1.id) AND (u_1.kind = 'concurrency'::text))))
             JOIN penstock.queues q ON ((q.name = r_1.sink_queue)))
             JOIN penstock.groups g ON (((g.queue_id = q.id) AND (g.name = u_1.group_name))))
             CROSS JOIN LATERAL penstock.standing_of(g.id, q.id, q.segment) s_1(partition, partition_id, next_offset, end_offset, leased))
        ), lanes AS (
         SELECT l_1.query_id,
            l_1.partition_id,
            l_1.key,
            l_1.allowed,
            l_1.denied_since,
            l_1.next_at,
            l_1.decided_at,
            COALESCE(b.backlog, (0)::bigint) AS backlog
           FROM (penstock.gate_lanes l_1
             LEFT JOIN behind b ON (((b.query_id = l_1.query_id) AND (b.partition_id = l_1.partition_id))))
        UNION ALL
         SELECT l_1.query_id,
            0,
            NULL::text,
            (sum(l_1.allowed))::bigint AS sum,
            min(l_1.denied_since) AS min,
            min(l_1.next_at) AS min,
            max(l_1.decided_at) AS max,
            (COALESCE(sum(b.backlog), (0)::numeric))::bigint AS "coalesce"
           FROM (penstock.gate_lanes l_1
             LEFT JOIN behind b ON (((b.query_id = l_1.query_id) AND (b.partition_id = l_1.partition_id))))
          GROUP BY l_1.query_id
        )
 SELECT r.name AS query,
    l.key,
    u.gate,
    u.kind,
        CASE
            WHEN (u.kind = 'token_bucket'::text) THEN round(penstock.tokens(COALESCE(s.amount, own.amount, every.amount, u.amount), COALESCE(s.rate, own.rate, every.rate, u.rate), COALESCE(s.level, own.amount, every.amount, u.amount), COALESCE(s.at_us, (0)::bigint), penstock.micros(GREATEST(lane.hold_until, all_lanes.hold_until)), penstock.micros(clock_timestamp())), 9)
            ELSE NULL::numeric
        END AS tokens,
        CASE u.kind
            WHEN 'sliding_window'::text THEN (COALESCE(( SELECT sum(n.cost) AS sum
               FROM UNNEST(s.grant_times, s.grant_costs) n(at_us, cost)
              WHERE (n.at_us >= (penstock.micros(clock_timestamp()) - COALESCE(own.window_us, every.window_us, u.window_us)))), (0)::numeric) / (1000000000)::numeric)
            WHEN 'concurrency'::text THEN (COALESCE(f.in_flight, (0)::bigint))::numeric
            ELSE NULL::numeric
        END AS used,
    COALESCE(own.amount, every.amount, u.amount) AS "limit",
    COALESCE(own.rate, every.rate, u.rate) AS rate,
    ((COALESCE(own.window_us, every.window_us, u.window_us))::numeric / 1000000.0) AS window_seconds,
    l.allowed AS allowed_total,
    COALESCE(s.cost_total, (0)::numeric) AS cost_total,
    l.denied_since,
        CASE
            WHEN (l.denied_since IS NOT NULL) THEN l.next_at
            ELSE NULL::timestamp with time zone
        END AS next_at,
    l.backlog,
    COALESCE(lane.paused, all_lanes.paused, false) AS paused,
        CASE
            WHEN (GREATEST(lane.hold_until, all_lanes.hold_until) > clock_timestamp()) THEN GREATEST(lane.hold_until, all_lanes.hold_until)
            ELSE NULL::timestamp with time zone
        END AS hold_until,
    l.decided_at AS updated_at
   FROM ((((((((penstock.gate_rules u
     JOIN penstock.queries r ON ((r.id = u.query_id)))
     JOIN lanes l ON (((l.query_id = u.query_id) AND ((l.partition_id = 0) = u.shared))))
     LEFT JOIN penstock.gate_states s ON (((s.query_id = u.query_id) AND (s.partition_id = l.partition_id) AND (s.gate = u.gate))))
     LEFT JOIN flying f ON (((f.query_id = u.query_id) AND (f.gate = u.gate) AND (f.key = l.key))))
     LEFT JOIN penstock.gate_limits own ON (((own.query = r.name) AND (own.key = l.key) AND (own.gate = u.gate))))
     LEFT JOIN penstock.gate_limits every ON (((every.query = r.name) AND (every.key = ''::text) AND (every.gate = u.gate))))
     LEFT JOIN penstock.gate_limits lane ON (((lane.query = r.name) AND (lane.key = l.key) AND (lane.gate = 0))))
     LEFT JOIN penstock.gate_limits all_lanes ON (((all_lanes.query = r.name) AND (all_lanes.key = ''::text) AND (all_lanes.gate = 0))));
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
    s.leases,
    g.counts,
    w.seen_at,
    COALESCE((w.seen_at < (clock_timestamp() - make_interval(secs => (q.away_seconds + q.delay_seconds)))), false) AS away
   FROM ((((penstock.queues q
     JOIN penstock.groups g ON ((g.queue_id = q.id)))
     LEFT JOIN penstock.queries r ON ((r.name = g.query_id)))
     CROSS JOIN LATERAL ( SELECT GREATEST(g.seen_at, r.lease_until) AS seen_at) w)
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
-- Name: plane_queues; Type: TABLE; Schema: penstock; Owner: -
CREATE TABLE penstock.plane_queues (
    queue_id integer NOT NULL,
    namespace text,
    task text,
    options jsonb NOT NULL
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
-- Name: queries_id_seq; Type: SEQUENCE; Schema: penstock; Owner: -
ALTER TABLE penstock.queries ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME penstock.queries_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);
-- Name: query_totals; Type: TABLE; Schema: penstock; Owner: -
CREATE TABLE penstock.query_totals (
    query_id integer NOT NULL,
    cycles bigint DEFAULT 0 NOT NULL,
    failed bigint DEFAULT 0 NOT NULL,
    events_in bigint DEFAULT 0 NOT NULL,
    events_out bigint DEFAULT 0 NOT NULL,
    windows bigint DEFAULT 0 NOT NULL,
    late bigint DEFAULT 0 NOT NULL,
    dead bigint DEFAULT 0 NOT NULL,
    cycle_counts bigint[] DEFAULT '{}'::bigint[] NOT NULL,
    cycle_seconds double precision DEFAULT 0 NOT NULL,
    fresh_counts bigint[] DEFAULT '{}'::bigint[] NOT NULL,
    fresh_seconds double precision DEFAULT 0 NOT NULL
)
WITH (fillfactor='50');
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
-- Name: rule_states; Type: TABLE; Schema: penstock; Owner: -
CREATE TABLE penstock.rule_states (
    rule text NOT NULL,
    key text NOT NULL COLLATE pg_catalog."C",
    is_firing boolean NOT NULL,
    since timestamp with time zone,
    seen_at timestamp with time zone NOT NULL,
    state jsonb NOT NULL
)
WITH (fillfactor='60');
-- Name: rules; Type: TABLE; Schema: penstock; Owner: -
CREATE TABLE penstock.rules (
    name text NOT NULL,
    queue text NOT NULL,
    alerts text NOT NULL,
    definition jsonb NOT NULL,
    created_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    updated_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL
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
-- Name: shared_queries; Type: TABLE; Schema: penstock; Owner: -
CREATE TABLE penstock.shared_queries (
    id integer NOT NULL,
    name text NOT NULL,
    source_queue text NOT NULL,
    sink_queue text,
    config_hash text NOT NULL,
    group_name text NOT NULL,
    created_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL
);
-- Name: shared_state; Type: TABLE; Schema: penstock; Owner: -
CREATE TABLE penstock.shared_state (
    query_id integer NOT NULL,
    partition_id bigint NOT NULL,
    state_key text NOT NULL COLLATE pg_catalog."C",
    value jsonb NOT NULL,
    key text,
    window_start timestamp with time zone,
    window_end timestamp with time zone,
    updated_at timestamp with time zone NOT NULL
)
WITH (fillfactor='60', autovacuum_vacuum_scale_factor='0.1', autovacuum_vacuum_cost_delay='0');
-- Name: shared_open_state; Type: VIEW; Schema: penstock; Owner: -
CREATE VIEW penstock.shared_open_state AS
 SELECT q.name AS query,
    s.key,
    s.window_start,
    s.window_end,
        CASE
            WHEN ((s.window_start IS NOT NULL) AND (s.value ? 'acc'::text)) THEN (s.value -> 'acc'::text)
            ELSE s.value
        END AS value,
    s.updated_at
   FROM (penstock.shared_state s
     JOIN penstock.shared_queries q ON ((q.id = s.query_id)))
  WHERE (s.key IS NOT NULL);
-- Name: shared_queries_id_seq; Type: SEQUENCE; Schema: penstock; Owner: -
ALTER TABLE penstock.shared_queries ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME penstock.shared_queries_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);
-- Name: sink_totals; Type: TABLE; Schema: penstock; Owner: -
CREATE TABLE penstock.sink_totals (
    group_id integer NOT NULL,
    guarantee text NOT NULL,
    written bigint DEFAULT 0 NOT NULL,
    batches bigint DEFAULT 0 NOT NULL,
    retries bigint DEFAULT 0 NOT NULL,
    busy bigint DEFAULT 0 NOT NULL,
    dead_letters bigint DEFAULT 0 NOT NULL,
    lost bigint DEFAULT 0 NOT NULL,
    is_running boolean NOT NULL,
    is_resting boolean NOT NULL,
    error text,
    updated_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL
)
WITH (fillfactor='50');
-- Name: sinks; Type: VIEW; Schema: penstock; Owner: -
CREATE VIEW penstock.sinks AS
 SELECT q.name AS queue,
    g.name AS sink,
    t.guarantee,
    t.written,
    t.batches,
    t.retries,
    t.busy,
    t.dead_letters,
    t.lost,
    (t.is_running AND (t.updated_at > (clock_timestamp() - '00:00:30'::interval))) AS running,
    t.is_resting AS resting,
    t.error,
    s.lag,
    t.updated_at
   FROM (((penstock.sink_totals t
     JOIN penstock.groups g ON ((g.id = t.group_id)))
     JOIN penstock.queues q ON ((q.id = g.queue_id)))
     CROSS JOIN LATERAL ( SELECT (COALESCE(sum(GREATEST((s_1.end_offset - s_1.next_offset), (0)::bigint)), (0)::numeric))::bigint AS lag
           FROM penstock.standing_of(g.id, q.id, q.segment) s_1(partition, partition_id, next_offset, end_offset, leased)) s);
-- Name: sources; Type: TABLE; Schema: penstock; Owner: -
CREATE TABLE penstock.sources (
    name text NOT NULL,
    kind text NOT NULL,
    queue text NOT NULL,
    "position" jsonb,
    events bigint DEFAULT 0 NOT NULL,
    rejected bigint DEFAULT 0 NOT NULL,
    updated_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL
)
WITH (fillfactor='50');
-- Name: state; Type: VIEW; Schema: penstock; Owner: -
CREATE VIEW penstock.state AS
 SELECT query,
    key,
    window_start,
    window_end,
    value,
    updated_at
   FROM penstock.shared_open_state;
-- Name: trace_names; Type: TABLE; Schema: penstock; Owner: -
CREATE TABLE penstock.trace_names (
    name text NOT NULL,
    trace_id bigint NOT NULL
);
-- Name: traces; Type: TABLE; Schema: penstock; Owner: -
CREATE TABLE penstock.traces (
    id bigint NOT NULL,
    partition_id bigint NOT NULL,
    event_offset bigint NOT NULL,
    event_id text NOT NULL,
    group_name text NOT NULL,
    kind text NOT NULL,
    data jsonb NOT NULL,
    names text[] NOT NULL,
    created_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL
);
-- Name: traces_id_seq; Type: SEQUENCE; Schema: penstock; Owner: -
ALTER TABLE penstock.traces ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME penstock.traces_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);
-- Name: uploads; Type: TABLE; Schema: penstock; Owner: -
CREATE TABLE penstock.uploads (
    id bigint NOT NULL,
    queue_id integer NOT NULL,
    seen_at timestamp with time zone NOT NULL,
    writer text,
    version bigint
);
-- Name: uploads_id_seq; Type: SEQUENCE; Schema: penstock; Owner: -
ALTER TABLE penstock.uploads ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME penstock.uploads_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);
-- Name: writes; Type: TABLE; Schema: penstock; Owner: -
CREATE TABLE penstock.writes (
    queue_id integer NOT NULL,
    writer text NOT NULL,
    version bigint NOT NULL,
    run text NOT NULL,
    is_kept boolean NOT NULL,
    events bigint NOT NULL,
    written_at timestamp with time zone NOT NULL
);
-- Data for Name: api_keys; Type: TABLE DATA; Schema: penstock; Owner: -
-- Data for Name: audit; Type: TABLE DATA; Schema: penstock; Owner: -
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
-- Data for Name: gate_lanes; Type: TABLE DATA; Schema: penstock; Owner: -
-- Data for Name: gate_limits; Type: TABLE DATA; Schema: penstock; Owner: -
-- Data for Name: gate_rules; Type: TABLE DATA; Schema: penstock; Owner: -
-- Data for Name: gate_states; Type: TABLE DATA; Schema: penstock; Owner: -
-- Data for Name: groups; Type: TABLE DATA; Schema: penstock; Owner: -
INSERT INTO penstock.groups OVERRIDING SYSTEM VALUE VALUES
	(1, 1, 'mail', 0, 'beginning', NULL, 0, '2025-11-15 19:11:33.161324+00', true, '2026-11-18 02:08:55.486857+00'),
	(2, 2, 'sums', 0, 'beginning', NULL, 0, '2025-11-15 19:11:33.527367+00', true, '2026-11-18 02:08:55.486872+00');
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
	(3, 'engine', 'f697699451bad20d17af0b7dc754c45e3943ee3baad9b6f1f5dcab48004c6b5e', '2025-11-15 19:11:32.641871+00'),
	(4, 'query_control', 'adf069c2441f2e4f98d926fe5e3563cfdb0aa7493985b21eed1b72e425cf7419', '2026-11-18 02:08:55.480413+00'),
	(5, 'ingest', '63d20c0587f2328a13bd0ec58be749ebe407bd18dfa7b1a865a81020b1d328bd', '2026-11-18 02:08:55.492221+00'),
	(6, 'observe', 'f839b8209b96b52e27748bd6ea092a433cb51cf7997162dada1444b8f42c3112', '2026-11-18 02:08:55.499105+00'),
	(7, 'access', '1cbc8cd67453404529dc98b4c5448f7b2578b33d578033f0f751e748dd687e21', '2026-11-18 02:08:55.502242+00'),
	(8, 'plane', '5c9e4360ed2f03c101379ac25f7089096327e01fc95c1d0612ecd699f92c76a0', '2026-11-18 02:08:55.51247+00'),
	(9, 'gates', '2b09dbdd7140a9fbe1fff0cf5ceb513a53ac4d17c3c3ab6ee8a44c77f80dbc92', '2026-11-18 02:08:55.525051+00'),
	(10, 'sources_and_rules', 'd4187fc79931d1bb5364e7bc85a14bbfbec127e8b4295650de3d8753fe3511da', '2026-11-18 02:08:55.528756+00'),
	(11, 'dropped', 'aa5768b5bdeb35958ebd836f29ca5733d3ddd3207e6c2ed924c54725d31d552a', '2026-11-18 02:08:55.530531+00'),
	(12, 'roles', '9323d9521b9d685042474cf1ec1851845af989eead0849fffe74fbcbf65c33be', '2026-11-18 02:08:55.532405+00'),
	(13, 'writes', '7e50df1da8ff62f2de63f5c4860fe80ad2b31c3d57acbf2d1d989d4858c67474', '2026-11-18 02:08:55.534914+00'),
	(14, 'sinks', 'dc76184a2f9d28e3bfdff4f07cd8ce99420974181ede3e09b5d13e5044bb9246', '2026-11-18 02:08:55.538271+00'),
	(15, 'gate_limits', '50503ada1f57a0bdd5f9c6a574654b546f71ff428b4853d8fba2cda0023f29f6', '2026-11-18 02:08:55.541022+00'),
	(16, 'gate_settling', 'b788a9c75e1fe86208d514233c322c8a92d89ff2eb8f0d22bc5bc348fc65c5f5', '2026-11-18 02:08:55.557847+00'),
	(17, 'gate_put_back', '476146eb2e7334b21f3f6124c63a02de9efed9b4fcafb8801bde0ec2874fa1ac', '2026-11-18 02:08:55.56557+00'),
	(18, 'casts', '054dc3ed5bb1da4f1e0218683595e6f0bed84712ebb3e5d2c6dcf6dd1bbf70d4', '2026-11-18 02:08:55.568091+00');
-- Data for Name: partitions; Type: TABLE DATA; Schema: penstock; Owner: -
INSERT INTO penstock.partitions OVERRIDING SYSTEM VALUE VALUES
	(1, 1, 0, 'ada', true, 16, '2025-11-15 19:11:33.48291+00'),
	(2, 1, 0, 'bob', true, 15, '2025-11-15 19:11:32.982913+00'),
	(3, 2, 0, '0', false, 21, '2025-11-15 19:11:33.116728+00'),
	(4, 2, 0, '1', false, 29, '2025-11-15 19:11:33.116628+00');
-- Data for Name: plane_queues; Type: TABLE DATA; Schema: penstock; Owner: -
-- Data for Name: positions; Type: TABLE DATA; Schema: penstock; Owner: -
INSERT INTO penstock.positions VALUES
	(1, 1, 3, 4, NULL, 4, '1970-01-01 00:00:00+00', 0, '{}', '2025-11-15 19:11:33.367145+00', 0, 0),
	(1, 2, 2, 2, NULL, 2, '1970-01-01 00:00:00+00', 0, '{}', '2025-11-15 19:11:33.449841+00', 0, 0),
	(2, 4, 0, 0, NULL, 0, '1970-01-01 00:00:00+00', 0, '{}', '2025-11-15 19:11:33.552941+00', 0, 0),
	(2, 3, 1, 0, 'a95b78ce-4274-4c52-a890-e1d8e6628bb0', 10, '2025-11-15 19:16:33.583317+00', 0, '{}', '2025-11-15 19:11:33.583317+00', 0, 0);
-- Data for Name: progress; Type: TABLE DATA; Schema: penstock; Owner: -
-- Data for Name: queries; Type: TABLE DATA; Schema: penstock; Owner: -
-- Data for Name: query_totals; Type: TABLE DATA; Schema: penstock; Owner: -
-- Data for Name: queues; Type: TABLE DATA; Schema: penstock; Owner: -
INSERT INTO penstock.queues OVERRIDING SYSTEM VALUE VALUES
	(3, 'empty', 'key', NULL, 0, 1, 300, 3, 1000, 0, NULL, false, 3600, NULL, NULL, 10, NULL, '2025-11-15 19:11:33.607252+00', NULL, 'refuse', 86400, NULL, NULL, NULL, 0),
	(1, 'jobs', 'key', NULL, 0, 2, 60, 0, 1000, 0, NULL, false, 3600, NULL, NULL, 10, NULL, '2025-11-15 19:11:32.704893+00', NULL, 'refuse', 86400, NULL, NULL, NULL, 0),
	(2, 'clicks', 'hash', 2, 0, 2, 300, 3, 1000, 0, NULL, false, 0, NULL, NULL, 10, NULL, '2025-11-15 19:11:33.009443+00', NULL, 'refuse', 86400, NULL, NULL, NULL, 0);
-- Data for Name: reports; Type: TABLE DATA; Schema: penstock; Owner: -
-- Data for Name: requests; Type: TABLE DATA; Schema: penstock; Owner: -
-- Data for Name: rule_states; Type: TABLE DATA; Schema: penstock; Owner: -
-- Data for Name: rules; Type: TABLE DATA; Schema: penstock; Owner: -
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
-- Data for Name: shared_queries; Type: TABLE DATA; Schema: penstock; Owner: -
-- Data for Name: shared_state; Type: TABLE DATA; Schema: penstock; Owner: -
-- Data for Name: shed; Type: TABLE DATA; Schema: penstock; Owner: -
-- Data for Name: sink_totals; Type: TABLE DATA; Schema: penstock; Owner: -
-- Data for Name: sources; Type: TABLE DATA; Schema: penstock; Owner: -
-- Data for Name: trace_names; Type: TABLE DATA; Schema: penstock; Owner: -
-- Data for Name: traces; Type: TABLE DATA; Schema: penstock; Owner: -
-- Data for Name: uploads; Type: TABLE DATA; Schema: penstock; Owner: -
-- Data for Name: writes; Type: TABLE DATA; Schema: penstock; Owner: -
-- Name: audit_id_seq; Type: SEQUENCE SET; Schema: penstock; Owner: -
SELECT pg_catalog.setval('penstock.audit_id_seq', 1, false);
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
-- Name: shared_queries_id_seq; Type: SEQUENCE SET; Schema: penstock; Owner: -
SELECT pg_catalog.setval('penstock.shared_queries_id_seq', 1, false);
-- Name: traces_id_seq; Type: SEQUENCE SET; Schema: penstock; Owner: -
SELECT pg_catalog.setval('penstock.traces_id_seq', 1, false);
-- Name: uploads_id_seq; Type: SEQUENCE SET; Schema: penstock; Owner: -
SELECT pg_catalog.setval('penstock.uploads_id_seq', 1, false);
-- Name: api_keys api_keys_pkey; Type: CONSTRAINT; Schema: penstock; Owner: -
ALTER TABLE ONLY penstock.api_keys
    ADD CONSTRAINT api_keys_pkey PRIMARY KEY (id);
-- Name: audit audit_pkey; Type: CONSTRAINT; Schema: penstock; Owner: -
ALTER TABLE ONLY penstock.audit
    ADD CONSTRAINT audit_pkey PRIMARY KEY (id);
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
-- Name: gate_lanes gate_lanes_pkey; Type: CONSTRAINT; Schema: penstock; Owner: -
ALTER TABLE ONLY penstock.gate_lanes
    ADD CONSTRAINT gate_lanes_pkey PRIMARY KEY (query_id, partition_id);
-- Name: gate_limits gate_limits_pkey; Type: CONSTRAINT; Schema: penstock; Owner: -
ALTER TABLE ONLY penstock.gate_limits
    ADD CONSTRAINT gate_limits_pkey PRIMARY KEY (query, key, gate);
-- Name: gate_rules gate_rules_pkey; Type: CONSTRAINT; Schema: penstock; Owner: -
ALTER TABLE ONLY penstock.gate_rules
    ADD CONSTRAINT gate_rules_pkey PRIMARY KEY (query_id, gate);
-- Name: gate_states gate_states_pkey; Type: CONSTRAINT; Schema: penstock; Owner: -
ALTER TABLE ONLY penstock.gate_states
    ADD CONSTRAINT gate_states_pkey PRIMARY KEY (query_id, partition_id, gate);
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
-- Name: plane_queues plane_queues_pkey; Type: CONSTRAINT; Schema: penstock; Owner: -
ALTER TABLE ONLY penstock.plane_queues
    ADD CONSTRAINT plane_queues_pkey PRIMARY KEY (queue_id);
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
-- Name: query_totals query_totals_pkey; Type: CONSTRAINT; Schema: penstock; Owner: -
ALTER TABLE ONLY penstock.query_totals
    ADD CONSTRAINT query_totals_pkey PRIMARY KEY (query_id);
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
-- Name: rule_states rule_states_pkey; Type: CONSTRAINT; Schema: penstock; Owner: -
ALTER TABLE ONLY penstock.rule_states
    ADD CONSTRAINT rule_states_pkey PRIMARY KEY (rule, key);
-- Name: rules rules_pkey; Type: CONSTRAINT; Schema: penstock; Owner: -
ALTER TABLE ONLY penstock.rules
    ADD CONSTRAINT rules_pkey PRIMARY KEY (name);
-- Name: segment_lanes segment_lanes_pkey; Type: CONSTRAINT; Schema: penstock; Owner: -
ALTER TABLE ONLY penstock.segment_lanes
    ADD CONSTRAINT segment_lanes_pkey PRIMARY KEY (partition_id, end_offset);
-- Name: segments segments_pkey; Type: CONSTRAINT; Schema: penstock; Owner: -
ALTER TABLE ONLY penstock.segments
    ADD CONSTRAINT segments_pkey PRIMARY KEY (queue_id, segment);
-- Name: shared_queries shared_queries_name_key; Type: CONSTRAINT; Schema: penstock; Owner: -
ALTER TABLE ONLY penstock.shared_queries
    ADD CONSTRAINT shared_queries_name_key UNIQUE (name);
-- Name: shared_queries shared_queries_pkey; Type: CONSTRAINT; Schema: penstock; Owner: -
ALTER TABLE ONLY penstock.shared_queries
    ADD CONSTRAINT shared_queries_pkey PRIMARY KEY (id);
-- Name: shared_state shared_state_pkey; Type: CONSTRAINT; Schema: penstock; Owner: -
ALTER TABLE ONLY penstock.shared_state
    ADD CONSTRAINT shared_state_pkey PRIMARY KEY (query_id, partition_id, state_key);
-- Name: sink_totals sink_totals_pkey; Type: CONSTRAINT; Schema: penstock; Owner: -
ALTER TABLE ONLY penstock.sink_totals
    ADD CONSTRAINT sink_totals_pkey PRIMARY KEY (group_id);
-- Name: sources sources_pkey; Type: CONSTRAINT; Schema: penstock; Owner: -
ALTER TABLE ONLY penstock.sources
    ADD CONSTRAINT sources_pkey PRIMARY KEY (name);
-- Name: trace_names trace_names_pkey; Type: CONSTRAINT; Schema: penstock; Owner: -
ALTER TABLE ONLY penstock.trace_names
    ADD CONSTRAINT trace_names_pkey PRIMARY KEY (name, trace_id);
-- Name: traces traces_pkey; Type: CONSTRAINT; Schema: penstock; Owner: -
ALTER TABLE ONLY penstock.traces
    ADD CONSTRAINT traces_pkey PRIMARY KEY (id);
-- Name: uploads uploads_pkey; Type: CONSTRAINT; Schema: penstock; Owner: -
ALTER TABLE ONLY penstock.uploads
    ADD CONSTRAINT uploads_pkey PRIMARY KEY (id);
-- Name: writes writes_pkey; Type: CONSTRAINT; Schema: penstock; Owner: -
ALTER TABLE ONLY penstock.writes
    ADD CONSTRAINT writes_pkey PRIMARY KEY (queue_id, writer);
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
-- Name: dead_letters_waiting_group; Type: INDEX; Schema: penstock; Owner: -
CREATE INDEX dead_letters_waiting_group ON penstock.dead_letters USING btree (queue_id, group_name) WHERE (redriven_at IS NULL);
-- Name: gate_lanes_key; Type: INDEX; Schema: penstock; Owner: -
CREATE INDEX gate_lanes_key ON penstock.gate_lanes USING btree (query_id, key);
-- Name: gate_lanes_waiting; Type: INDEX; Schema: penstock; Owner: -
CREATE INDEX gate_lanes_waiting ON penstock.gate_lanes USING btree (query_id, wakes_at) WHERE (wakes_at IS NOT NULL);
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
-- Name: rule_states_firing; Type: INDEX; Schema: penstock; Owner: -
CREATE INDEX rule_states_firing ON penstock.rule_states USING btree (rule) WHERE is_firing;
-- Name: segment_lanes_segment; Type: INDEX; Schema: penstock; Owner: -
CREATE INDEX segment_lanes_segment ON penstock.segment_lanes USING btree (queue_id, segment);
-- Name: shared_state_partition; Type: INDEX; Schema: penstock; Owner: -
CREATE INDEX shared_state_partition ON penstock.shared_state USING btree (partition_id);
-- Name: shed_queue; Type: INDEX; Schema: penstock; Owner: -
CREATE INDEX shed_queue ON penstock.shed USING btree (queue_id);
-- Name: trace_names_trace; Type: INDEX; Schema: penstock; Owner: -
CREATE INDEX trace_names_trace ON penstock.trace_names USING btree (trace_id);
-- Name: traces_created; Type: INDEX; Schema: penstock; Owner: -
CREATE INDEX traces_created ON penstock.traces USING btree (created_at);
-- Name: traces_event; Type: INDEX; Schema: penstock; Owner: -
CREATE INDEX traces_event ON penstock.traces USING btree (partition_id, event_id, id);
-- Name: gate_limits deleted; Type: TRIGGER; Schema: penstock; Owner: -
CREATE TRIGGER deleted AFTER DELETE ON penstock.gate_limits REFERENCING OLD TABLE AS former FOR EACH STATEMENT EXECUTE FUNCTION penstock.gate_limits_changed();
-- Name: gate_limits inserted; Type: TRIGGER; Schema: penstock; Owner: -
CREATE TRIGGER inserted AFTER INSERT ON penstock.gate_limits REFERENCING NEW TABLE AS changed FOR EACH STATEMENT EXECUTE FUNCTION penstock.gate_limits_changed();
-- Name: gate_limits one_by_one; Type: TRIGGER; Schema: penstock; Owner: -
CREATE TRIGGER one_by_one BEFORE INSERT OR DELETE OR UPDATE OR TRUNCATE ON penstock.gate_limits FOR EACH STATEMENT EXECUTE FUNCTION penstock.gate_limits_change();
-- Name: gate_limits updated; Type: TRIGGER; Schema: penstock; Owner: -
CREATE TRIGGER updated AFTER UPDATE ON penstock.gate_limits REFERENCING OLD TABLE AS former NEW TABLE AS changed FOR EACH STATEMENT EXECUTE FUNCTION penstock.gate_limits_changed();
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
-- Name: gate_lanes gate_lanes_query_id_fkey; Type: FK CONSTRAINT; Schema: penstock; Owner: -
ALTER TABLE ONLY penstock.gate_lanes
    ADD CONSTRAINT gate_lanes_query_id_fkey FOREIGN KEY (query_id) REFERENCES penstock.queries(id) ON DELETE CASCADE;
-- Name: gate_rules gate_rules_query_id_fkey; Type: FK CONSTRAINT; Schema: penstock; Owner: -
ALTER TABLE ONLY penstock.gate_rules
    ADD CONSTRAINT gate_rules_query_id_fkey FOREIGN KEY (query_id) REFERENCES penstock.queries(id) ON DELETE CASCADE;
-- Name: gate_states gate_states_query_id_fkey; Type: FK CONSTRAINT; Schema: penstock; Owner: -
ALTER TABLE ONLY penstock.gate_states
    ADD CONSTRAINT gate_states_query_id_fkey FOREIGN KEY (query_id) REFERENCES penstock.queries(id) ON DELETE CASCADE;
-- Name: groups groups_queue_id_fkey; Type: FK CONSTRAINT; Schema: penstock; Owner: -
ALTER TABLE ONLY penstock.groups
    ADD CONSTRAINT groups_queue_id_fkey FOREIGN KEY (queue_id) REFERENCES penstock.queues(id) ON DELETE CASCADE;
-- Name: partitions partitions_queue_id_fkey; Type: FK CONSTRAINT; Schema: penstock; Owner: -
ALTER TABLE ONLY penstock.partitions
    ADD CONSTRAINT partitions_queue_id_fkey FOREIGN KEY (queue_id) REFERENCES penstock.queues(id) ON DELETE CASCADE;
-- Name: plane_queues plane_queues_queue_id_fkey; Type: FK CONSTRAINT; Schema: penstock; Owner: -
ALTER TABLE ONLY penstock.plane_queues
    ADD CONSTRAINT plane_queues_queue_id_fkey FOREIGN KEY (queue_id) REFERENCES penstock.queues(id) ON DELETE CASCADE;
-- Name: progress progress_query_id_fkey; Type: FK CONSTRAINT; Schema: penstock; Owner: -
ALTER TABLE ONLY penstock.progress
    ADD CONSTRAINT progress_query_id_fkey FOREIGN KEY (query_id) REFERENCES penstock.queries(id) ON DELETE CASCADE;
-- Name: query_totals query_totals_query_id_fkey; Type: FK CONSTRAINT; Schema: penstock; Owner: -
ALTER TABLE ONLY penstock.query_totals
    ADD CONSTRAINT query_totals_query_id_fkey FOREIGN KEY (query_id) REFERENCES penstock.queries(id) ON DELETE CASCADE;
-- Name: rule_states rule_states_rule_fkey; Type: FK CONSTRAINT; Schema: penstock; Owner: -
ALTER TABLE ONLY penstock.rule_states
    ADD CONSTRAINT rule_states_rule_fkey FOREIGN KEY (rule) REFERENCES penstock.rules(name) ON DELETE CASCADE;
-- Name: segment_lanes segment_lanes_queue_id_segment_fkey; Type: FK CONSTRAINT; Schema: penstock; Owner: -
ALTER TABLE ONLY penstock.segment_lanes
    ADD CONSTRAINT segment_lanes_queue_id_segment_fkey FOREIGN KEY (queue_id, segment) REFERENCES penstock.segments(queue_id, segment) ON DELETE CASCADE;
-- Name: segments segments_queue_id_fkey; Type: FK CONSTRAINT; Schema: penstock; Owner: -
ALTER TABLE ONLY penstock.segments
    ADD CONSTRAINT segments_queue_id_fkey FOREIGN KEY (queue_id) REFERENCES penstock.queues(id) ON DELETE CASCADE;
-- Name: shared_state shared_state_partition_id_fkey; Type: FK CONSTRAINT; Schema: penstock; Owner: -
ALTER TABLE ONLY penstock.shared_state
    ADD CONSTRAINT shared_state_partition_id_fkey FOREIGN KEY (partition_id) REFERENCES penstock.partitions(id) ON DELETE CASCADE;
-- Name: shared_state shared_state_query_id_fkey; Type: FK CONSTRAINT; Schema: penstock; Owner: -
ALTER TABLE ONLY penstock.shared_state
    ADD CONSTRAINT shared_state_query_id_fkey FOREIGN KEY (query_id) REFERENCES penstock.shared_queries(id) ON DELETE CASCADE;
-- Name: shed shed_queue_id_fkey; Type: FK CONSTRAINT; Schema: penstock; Owner: -
ALTER TABLE ONLY penstock.shed
    ADD CONSTRAINT shed_queue_id_fkey FOREIGN KEY (queue_id) REFERENCES penstock.queues(id) ON DELETE CASCADE;
-- Name: sink_totals sink_totals_group_id_fkey; Type: FK CONSTRAINT; Schema: penstock; Owner: -
ALTER TABLE ONLY penstock.sink_totals
    ADD CONSTRAINT sink_totals_group_id_fkey FOREIGN KEY (group_id) REFERENCES penstock.groups(id) ON DELETE CASCADE;
-- Name: trace_names trace_names_trace_id_fkey; Type: FK CONSTRAINT; Schema: penstock; Owner: -
ALTER TABLE ONLY penstock.trace_names
    ADD CONSTRAINT trace_names_trace_id_fkey FOREIGN KEY (trace_id) REFERENCES penstock.traces(id) ON DELETE CASCADE;
-- Name: traces traces_partition_id_fkey; Type: FK CONSTRAINT; Schema: penstock; Owner: -
ALTER TABLE ONLY penstock.traces
    ADD CONSTRAINT traces_partition_id_fkey FOREIGN KEY (partition_id) REFERENCES penstock.partitions(id) ON DELETE CASCADE;
-- Name: uploads uploads_queue_id_fkey; Type: FK CONSTRAINT; Schema: penstock; Owner: -
ALTER TABLE ONLY penstock.uploads
    ADD CONSTRAINT uploads_queue_id_fkey FOREIGN KEY (queue_id) REFERENCES penstock.queues(id) ON DELETE CASCADE;
-- Name: writes writes_queue_id_fkey; Type: FK CONSTRAINT; Schema: penstock; Owner: -
ALTER TABLE ONLY penstock.writes
    ADD CONSTRAINT writes_queue_id_fkey FOREIGN KEY (queue_id) REFERENCES penstock.queues(id) ON DELETE CASCADE;
-- PostgreSQL database dump complete
