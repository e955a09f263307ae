-- A database of release 0.1.0 (schema 18): made by tests/engine/upgrades/shop.py, then pg_dump --no-owner --no-privileges
-- --rows-per-insert=1000, without blank lines. Queries in the middle of their work: open windows and sessions, a join with events that
-- wait, partitions that wait at a gate, a sink that is behind, the version of a writer.
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
-- Name: append_1_1(bigint[], integer[], integer[], integer[], integer[], bytea, interval, uuid, integer, integer[], uuid[], integer[], bigint[], integer[], timestamp with time zone); Type: FUNCTION; Schema: penstock; Owner: -
CREATE FUNCTION penstock.append_1_1(_partitions bigint[], _counts integer[], _after integer[], _starts integer[], _sizes integer[], _bodies bytea, _skew interval, _flush uuid, _epoch integer, _targets integer[] DEFAULT '{}'::integer[], _hashes uuid[] DEFAULT '{}'::uuid[], _slots integer[] DEFAULT '{}'::integer[], _places bigint[] DEFAULT '{}'::bigint[], _id_segments integer[] DEFAULT '{}'::integer[], _at timestamp with time zone DEFAULT NULL::timestamp with time zone) RETURNS TABLE(partition_id bigint, end_offset bigint)
    LANGUAGE plpgsql
    AS $_$
#variable_conflict use_column
DECLARE
    _segment integer;
    _seen boolean;
    _heads bigint[];
BEGIN
    -- In id order everywhere, so that two pushes can never wait for each other.
    PERFORM FROM penstock.partitions p WHERE p.id = ANY(_partitions) ORDER BY p.id FOR NO KEY UPDATE;
    IF NOT EXISTS (
        SELECT FROM penstock.queues q WHERE q.id = 1 AND q.segment = 1 AND q.epoch = _epoch
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
            (SELECT c.end_offset FROM penstock.chunks_1_1 c
             WHERE c.partition_id = i.partition_id ORDER BY c.end_offset DESC LIMIT 1)
            UNION ALL
            SELECT p.sealed_end FROM penstock.partitions p WHERE p.id = i.partition_id
            LIMIT 1
        ) h;
        INSERT INTO penstock.ids_1_1 (hash, event_offset)
        -- With the epoch above the offset: the partition of the key may be another one by the time it is found.
        SELECT n.hash, (_epoch::bigint << 48) + _heads[n.slot] + n.place
        FROM unnest(_hashes, _slots, _places) AS n (hash, slot, place);
    END IF;
    UPDATE penstock.cursors c SET state = 0 WHERE c.partition_id = ANY(_partitions) AND c.state = 1;
    RETURN QUERY
    INSERT INTO penstock.chunks_1_1 AS k (partition_id, end_offset, event_count, appended_at, target_group, flush_id, body)
    SELECT i.partition_id, h.end_offset + i.after, i.event_count, greatest(h.appended_at, coalesce(_at, clock_timestamp() + _skew)),
           i.target_group, _flush, substr(_bodies, i.start, i.size)
    FROM unnest(_partitions, _counts, _after, _starts, _sizes, _targets)
        AS i (partition_id, event_count, after, start, size, target_group)
    CROSS JOIN LATERAL (
        (SELECT c.end_offset, c.appended_at FROM penstock.chunks_1_1 c
         WHERE c.partition_id = i.partition_id ORDER BY c.end_offset DESC LIMIT 1)
        UNION ALL
        SELECT p.sealed_end, p.sealed_at FROM penstock.partitions p WHERE p.id = i.partition_id
        LIMIT 1
    ) h
    RETURNING k.partition_id, k.end_offset;
END
$_$;
-- Name: append_2_1(bigint[], integer[], integer[], integer[], integer[], bytea, interval, uuid, integer, integer[], uuid[], integer[], bigint[], integer[], timestamp with time zone); Type: FUNCTION; Schema: penstock; Owner: -
CREATE FUNCTION penstock.append_2_1(_partitions bigint[], _counts integer[], _after integer[], _starts integer[], _sizes integer[], _bodies bytea, _skew interval, _flush uuid, _epoch integer, _targets integer[] DEFAULT '{}'::integer[], _hashes uuid[] DEFAULT '{}'::uuid[], _slots integer[] DEFAULT '{}'::integer[], _places bigint[] DEFAULT '{}'::bigint[], _id_segments integer[] DEFAULT '{}'::integer[], _at timestamp with time zone DEFAULT NULL::timestamp with time zone) RETURNS TABLE(partition_id bigint, end_offset bigint)
    LANGUAGE plpgsql
    AS $_$
#variable_conflict use_column
DECLARE
    _segment integer;
    _seen boolean;
    _heads bigint[];
BEGIN
    -- In id order everywhere, so that two pushes can never wait for each other.
    PERFORM FROM penstock.partitions p WHERE p.id = ANY(_partitions) ORDER BY p.id FOR NO KEY UPDATE;
    IF NOT EXISTS (
        SELECT FROM penstock.queues q WHERE q.id = 2 AND q.segment = 1 AND q.epoch = _epoch
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
            (SELECT c.end_offset FROM penstock.chunks_2_1 c
             WHERE c.partition_id = i.partition_id ORDER BY c.end_offset DESC LIMIT 1)
            UNION ALL
            SELECT p.sealed_end FROM penstock.partitions p WHERE p.id = i.partition_id
            LIMIT 1
        ) h;
        INSERT INTO penstock.ids_2_1 (hash, event_offset)
        -- With the epoch above the offset: the partition of the key may be another one by the time it is found.
        SELECT n.hash, (_epoch::bigint << 48) + _heads[n.slot] + n.place
        FROM unnest(_hashes, _slots, _places) AS n (hash, slot, place);
    END IF;
    UPDATE penstock.cursors c SET state = 0 WHERE c.partition_id = ANY(_partitions) AND c.state = 1;
    RETURN QUERY
    INSERT INTO penstock.chunks_2_1 AS k (partition_id, end_offset, event_count, appended_at, target_group, flush_id, body)
    SELECT i.partition_id, h.end_offset + i.after, i.event_count, greatest(h.appended_at, coalesce(_at, clock_timestamp() + _skew)),
           i.target_group, _flush, substr(_bodies, i.start, i.size)
    FROM unnest(_partitions, _counts, _after, _starts, _sizes, _targets)
        AS i (partition_id, event_count, after, start, size, target_group)
    CROSS JOIN LATERAL (
        (SELECT c.end_offset, c.appended_at FROM penstock.chunks_2_1 c
         WHERE c.partition_id = i.partition_id ORDER BY c.end_offset DESC LIMIT 1)
        UNION ALL
        SELECT p.sealed_end, p.sealed_at FROM penstock.partitions p WHERE p.id = i.partition_id
        LIMIT 1
    ) h
    RETURNING k.partition_id, k.end_offset;
END
$_$;
-- Name: append_3_1(bigint[], integer[], integer[], integer[], integer[], bytea, interval, uuid, integer, integer[], uuid[], integer[], bigint[], integer[], timestamp with time zone); Type: FUNCTION; Schema: penstock; Owner: -
CREATE FUNCTION penstock.append_3_1(_partitions bigint[], _counts integer[], _after integer[], _starts integer[], _sizes integer[], _bodies bytea, _skew interval, _flush uuid, _epoch integer, _targets integer[] DEFAULT '{}'::integer[], _hashes uuid[] DEFAULT '{}'::uuid[], _slots integer[] DEFAULT '{}'::integer[], _places bigint[] DEFAULT '{}'::bigint[], _id_segments integer[] DEFAULT '{}'::integer[], _at timestamp with time zone DEFAULT NULL::timestamp with time zone) RETURNS TABLE(partition_id bigint, end_offset bigint)
    LANGUAGE plpgsql
    AS $_$
#variable_conflict use_column
DECLARE
    _segment integer;
    _seen boolean;
    _heads bigint[];
BEGIN
    -- In id order everywhere, so that two pushes can never wait for each other.
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
        -- With the epoch above the offset: the partition of the key may be another one by the time it is found.
        SELECT n.hash, (_epoch::bigint << 48) + _heads[n.slot] + n.place
        FROM unnest(_hashes, _slots, _places) AS n (hash, slot, place);
    END IF;
    UPDATE penstock.cursors c SET state = 0 WHERE c.partition_id = ANY(_partitions) AND c.state = 1;
    RETURN QUERY
    INSERT INTO penstock.chunks_3_1 AS k (partition_id, end_offset, event_count, appended_at, target_group, flush_id, body)
    SELECT i.partition_id, h.end_offset + i.after, i.event_count, greatest(h.appended_at, coalesce(_at, clock_timestamp() + _skew)),
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
-- Name: append_4_1(bigint[], integer[], integer[], integer[], integer[], bytea, interval, uuid, integer, integer[], uuid[], integer[], bigint[], integer[], timestamp with time zone); Type: FUNCTION; Schema: penstock; Owner: -
CREATE FUNCTION penstock.append_4_1(_partitions bigint[], _counts integer[], _after integer[], _starts integer[], _sizes integer[], _bodies bytea, _skew interval, _flush uuid, _epoch integer, _targets integer[] DEFAULT '{}'::integer[], _hashes uuid[] DEFAULT '{}'::uuid[], _slots integer[] DEFAULT '{}'::integer[], _places bigint[] DEFAULT '{}'::bigint[], _id_segments integer[] DEFAULT '{}'::integer[], _at timestamp with time zone DEFAULT NULL::timestamp with time zone) RETURNS TABLE(partition_id bigint, end_offset bigint)
    LANGUAGE plpgsql
    AS $_$
#variable_conflict use_column
DECLARE
    _segment integer;
    _seen boolean;
    _heads bigint[];
BEGIN
    -- In id order everywhere, so that two pushes can never wait for each other.
    PERFORM FROM penstock.partitions p WHERE p.id = ANY(_partitions) ORDER BY p.id FOR NO KEY UPDATE;
    IF NOT EXISTS (
        SELECT FROM penstock.queues q WHERE q.id = 4 AND q.segment = 1 AND q.epoch = _epoch
    ) THEN
        PERFORM penstock.refuse('the queue has moved on');
    END IF;
    FOREACH _segment IN ARRAY _id_segments LOOP
        EXECUTE format('SELECT EXISTS (SELECT FROM penstock.ids_4_%s i WHERE i.hash = ANY($1))', _segment)
        INTO _seen USING _hashes;
        IF _seen THEN
            RETURN;
        END IF;
    END LOOP;
    IF cardinality(_hashes) > 0 THEN
        SELECT array_agg(h.end_offset ORDER BY i.ordinal) INTO _heads
        FROM unnest(_partitions) WITH ORDINALITY AS i (partition_id, ordinal)
        CROSS JOIN LATERAL (
            (SELECT c.end_offset FROM penstock.chunks_4_1 c
             WHERE c.partition_id = i.partition_id ORDER BY c.end_offset DESC LIMIT 1)
            UNION ALL
            SELECT p.sealed_end FROM penstock.partitions p WHERE p.id = i.partition_id
            LIMIT 1
        ) h;
        INSERT INTO penstock.ids_4_1 (hash, event_offset)
        -- With the epoch above the offset: the partition of the key may be another one by the time it is found.
        SELECT n.hash, (_epoch::bigint << 48) + _heads[n.slot] + n.place
        FROM unnest(_hashes, _slots, _places) AS n (hash, slot, place);
    END IF;
    UPDATE penstock.cursors c SET state = 0 WHERE c.partition_id = ANY(_partitions) AND c.state = 1;
    RETURN QUERY
    INSERT INTO penstock.chunks_4_1 AS k (partition_id, end_offset, event_count, appended_at, target_group, flush_id, body)
    SELECT i.partition_id, h.end_offset + i.after, i.event_count, greatest(h.appended_at, coalesce(_at, clock_timestamp() + _skew)),
           i.target_group, _flush, substr(_bodies, i.start, i.size)
    FROM unnest(_partitions, _counts, _after, _starts, _sizes, _targets)
        AS i (partition_id, event_count, after, start, size, target_group)
    CROSS JOIN LATERAL (
        (SELECT c.end_offset, c.appended_at FROM penstock.chunks_4_1 c
         WHERE c.partition_id = i.partition_id ORDER BY c.end_offset DESC LIMIT 1)
        UNION ALL
        SELECT p.sealed_end, p.sealed_at FROM penstock.partitions p WHERE p.id = i.partition_id
        LIMIT 1
    ) h
    RETURNING k.partition_id, k.end_offset;
END
$_$;
-- Name: append_5_1(bigint[], integer[], integer[], integer[], integer[], bytea, interval, uuid, integer, integer[], uuid[], integer[], bigint[], integer[], timestamp with time zone); Type: FUNCTION; Schema: penstock; Owner: -
CREATE FUNCTION penstock.append_5_1(_partitions bigint[], _counts integer[], _after integer[], _starts integer[], _sizes integer[], _bodies bytea, _skew interval, _flush uuid, _epoch integer, _targets integer[] DEFAULT '{}'::integer[], _hashes uuid[] DEFAULT '{}'::uuid[], _slots integer[] DEFAULT '{}'::integer[], _places bigint[] DEFAULT '{}'::bigint[], _id_segments integer[] DEFAULT '{}'::integer[], _at timestamp with time zone DEFAULT NULL::timestamp with time zone) RETURNS TABLE(partition_id bigint, end_offset bigint)
    LANGUAGE plpgsql
    AS $_$
#variable_conflict use_column
DECLARE
    _segment integer;
    _seen boolean;
    _heads bigint[];
BEGIN
    -- In id order everywhere, so that two pushes can never wait for each other.
    PERFORM FROM penstock.partitions p WHERE p.id = ANY(_partitions) ORDER BY p.id FOR NO KEY UPDATE;
    IF NOT EXISTS (
        SELECT FROM penstock.queues q WHERE q.id = 5 AND q.segment = 1 AND q.epoch = _epoch
    ) THEN
        PERFORM penstock.refuse('the queue has moved on');
    END IF;
    FOREACH _segment IN ARRAY _id_segments LOOP
        EXECUTE format('SELECT EXISTS (SELECT FROM penstock.ids_5_%s i WHERE i.hash = ANY($1))', _segment)
        INTO _seen USING _hashes;
        IF _seen THEN
            RETURN;
        END IF;
    END LOOP;
    IF cardinality(_hashes) > 0 THEN
        SELECT array_agg(h.end_offset ORDER BY i.ordinal) INTO _heads
        FROM unnest(_partitions) WITH ORDINALITY AS i (partition_id, ordinal)
        CROSS JOIN LATERAL (
            (SELECT c.end_offset FROM penstock.chunks_5_1 c
             WHERE c.partition_id = i.partition_id ORDER BY c.end_offset DESC LIMIT 1)
            UNION ALL
            SELECT p.sealed_end FROM penstock.partitions p WHERE p.id = i.partition_id
            LIMIT 1
        ) h;
        INSERT INTO penstock.ids_5_1 (hash, event_offset)
        -- With the epoch above the offset: the partition of the key may be another one by the time it is found.
        SELECT n.hash, (_epoch::bigint << 48) + _heads[n.slot] + n.place
        FROM unnest(_hashes, _slots, _places) AS n (hash, slot, place);
    END IF;
    UPDATE penstock.cursors c SET state = 0 WHERE c.partition_id = ANY(_partitions) AND c.state = 1;
    RETURN QUERY
    INSERT INTO penstock.chunks_5_1 AS k (partition_id, end_offset, event_count, appended_at, target_group, flush_id, body)
    SELECT i.partition_id, h.end_offset + i.after, i.event_count, greatest(h.appended_at, coalesce(_at, clock_timestamp() + _skew)),
           i.target_group, _flush, substr(_bodies, i.start, i.size)
    FROM unnest(_partitions, _counts, _after, _starts, _sizes, _targets)
        AS i (partition_id, event_count, after, start, size, target_group)
    CROSS JOIN LATERAL (
        (SELECT c.end_offset, c.appended_at FROM penstock.chunks_5_1 c
         WHERE c.partition_id = i.partition_id ORDER BY c.end_offset DESC LIMIT 1)
        UNION ALL
        SELECT p.sealed_end, p.sealed_at FROM penstock.partitions p WHERE p.id = i.partition_id
        LIMIT 1
    ) h
    RETURNING k.partition_id, k.end_offset;
END
$_$;
-- Name: append_6_1(bigint[], integer[], integer[], integer[], integer[], bytea, interval, uuid, integer, integer[], uuid[], integer[], bigint[], integer[], timestamp with time zone); Type: FUNCTION; Schema: penstock; Owner: -
CREATE FUNCTION penstock.append_6_1(_partitions bigint[], _counts integer[], _after integer[], _starts integer[], _sizes integer[], _bodies bytea, _skew interval, _flush uuid, _epoch integer, _targets integer[] DEFAULT '{}'::integer[], _hashes uuid[] DEFAULT '{}'::uuid[], _slots integer[] DEFAULT '{}'::integer[], _places bigint[] DEFAULT '{}'::bigint[], _id_segments integer[] DEFAULT '{}'::integer[], _at timestamp with time zone DEFAULT NULL::timestamp with time zone) RETURNS TABLE(partition_id bigint, end_offset bigint)
    LANGUAGE plpgsql
    AS $_$
#variable_conflict use_column
DECLARE
    _segment integer;
    _seen boolean;
    _heads bigint[];
BEGIN
    -- In id order everywhere, so that two pushes can never wait for each other.
    PERFORM FROM penstock.partitions p WHERE p.id = ANY(_partitions) ORDER BY p.id FOR NO KEY UPDATE;
    IF NOT EXISTS (
        SELECT FROM penstock.queues q WHERE q.id = 6 AND q.segment = 1 AND q.epoch = _epoch
    ) THEN
        PERFORM penstock.refuse('the queue has moved on');
    END IF;
    FOREACH _segment IN ARRAY _id_segments LOOP
        EXECUTE format('SELECT EXISTS (SELECT FROM penstock.ids_6_%s i WHERE i.hash = ANY($1))', _segment)
        INTO _seen USING _hashes;
        IF _seen THEN
            RETURN;
        END IF;
    END LOOP;
    IF cardinality(_hashes) > 0 THEN
        SELECT array_agg(h.end_offset ORDER BY i.ordinal) INTO _heads
        FROM unnest(_partitions) WITH ORDINALITY AS i (partition_id, ordinal)
        CROSS JOIN LATERAL (
            (SELECT c.end_offset FROM penstock.chunks_6_1 c
             WHERE c.partition_id = i.partition_id ORDER BY c.end_offset DESC LIMIT 1)
            UNION ALL
            SELECT p.sealed_end FROM penstock.partitions p WHERE p.id = i.partition_id
            LIMIT 1
        ) h;
        INSERT INTO penstock.ids_6_1 (hash, event_offset)
        -- With the epoch above the offset: the partition of the key may be another one by the time it is found.
        SELECT n.hash, (_epoch::bigint << 48) + _heads[n.slot] + n.place
        FROM unnest(_hashes, _slots, _places) AS n (hash, slot, place);
    END IF;
    UPDATE penstock.cursors c SET state = 0 WHERE c.partition_id = ANY(_partitions) AND c.state = 1;
    RETURN QUERY
    INSERT INTO penstock.chunks_6_1 AS k (partition_id, end_offset, event_count, appended_at, target_group, flush_id, body)
    SELECT i.partition_id, h.end_offset + i.after, i.event_count, greatest(h.appended_at, coalesce(_at, clock_timestamp() + _skew)),
           i.target_group, _flush, substr(_bodies, i.start, i.size)
    FROM unnest(_partitions, _counts, _after, _starts, _sizes, _targets)
        AS i (partition_id, event_count, after, start, size, target_group)
    CROSS JOIN LATERAL (
        (SELECT c.end_offset, c.appended_at FROM penstock.chunks_6_1 c
         WHERE c.partition_id = i.partition_id ORDER BY c.end_offset DESC LIMIT 1)
        UNION ALL
        SELECT p.sealed_end, p.sealed_at FROM penstock.partitions p WHERE p.id = i.partition_id
        LIMIT 1
    ) h
    RETURNING k.partition_id, k.end_offset;
END
$_$;
-- Name: append_7_1(bigint[], integer[], integer[], integer[], integer[], bytea, interval, uuid, integer, integer[], uuid[], integer[], bigint[], integer[], timestamp with time zone); Type: FUNCTION; Schema: penstock; Owner: -
CREATE FUNCTION penstock.append_7_1(_partitions bigint[], _counts integer[], _after integer[], _starts integer[], _sizes integer[], _bodies bytea, _skew interval, _flush uuid, _epoch integer, _targets integer[] DEFAULT '{}'::integer[], _hashes uuid[] DEFAULT '{}'::uuid[], _slots integer[] DEFAULT '{}'::integer[], _places bigint[] DEFAULT '{}'::bigint[], _id_segments integer[] DEFAULT '{}'::integer[], _at timestamp with time zone DEFAULT NULL::timestamp with time zone) RETURNS TABLE(partition_id bigint, end_offset bigint)
    LANGUAGE plpgsql
    AS $_$
#variable_conflict use_column
DECLARE
    _segment integer;
    _seen boolean;
    _heads bigint[];
BEGIN
    -- In id order everywhere, so that two pushes can never wait for each other.
    PERFORM FROM penstock.partitions p WHERE p.id = ANY(_partitions) ORDER BY p.id FOR NO KEY UPDATE;
    IF NOT EXISTS (
        SELECT FROM penstock.queues q WHERE q.id = 7 AND q.segment = 1 AND q.epoch = _epoch
    ) THEN
        PERFORM penstock.refuse('the queue has moved on');
    END IF;
    FOREACH _segment IN ARRAY _id_segments LOOP
        EXECUTE format('SELECT EXISTS (SELECT FROM penstock.ids_7_%s i WHERE i.hash = ANY($1))', _segment)
        INTO _seen USING _hashes;
        IF _seen THEN
            RETURN;
        END IF;
    END LOOP;
    IF cardinality(_hashes) > 0 THEN
        SELECT array_agg(h.end_offset ORDER BY i.ordinal) INTO _heads
        FROM unnest(_partitions) WITH ORDINALITY AS i (partition_id, ordinal)
        CROSS JOIN LATERAL (
            (SELECT c.end_offset FROM penstock.chunks_7_1 c
             WHERE c.partition_id = i.partition_id ORDER BY c.end_offset DESC LIMIT 1)
            UNION ALL
            SELECT p.sealed_end FROM penstock.partitions p WHERE p.id = i.partition_id
            LIMIT 1
        ) h;
        INSERT INTO penstock.ids_7_1 (hash, event_offset)
        -- With the epoch above the offset: the partition of the key may be another one by the time it is found.
        SELECT n.hash, (_epoch::bigint << 48) + _heads[n.slot] + n.place
        FROM unnest(_hashes, _slots, _places) AS n (hash, slot, place);
    END IF;
    UPDATE penstock.cursors c SET state = 0 WHERE c.partition_id = ANY(_partitions) AND c.state = 1;
    RETURN QUERY
    INSERT INTO penstock.chunks_7_1 AS k (partition_id, end_offset, event_count, appended_at, target_group, flush_id, body)
    SELECT i.partition_id, h.end_offset + i.after, i.event_count, greatest(h.appended_at, coalesce(_at, clock_timestamp() + _skew)),
           i.target_group, _flush, substr(_bodies, i.start, i.size)
    FROM unnest(_partitions, _counts, _after, _starts, _sizes, _targets)
        AS i (partition_id, event_count, after, start, size, target_group)
    CROSS JOIN LATERAL (
        (SELECT c.end_offset, c.appended_at FROM penstock.chunks_7_1 c
         WHERE c.partition_id = i.partition_id ORDER BY c.end_offset DESC LIMIT 1)
        UNION ALL
        SELECT p.sealed_end, p.sealed_at FROM penstock.partitions p WHERE p.id = i.partition_id
        LIMIT 1
    ) h
    RETURNING k.partition_id, k.end_offset;
END
$_$;
-- Name: append_8_1(bigint[], integer[], integer[], integer[], integer[], bytea, interval, uuid, integer, integer[], uuid[], integer[], bigint[], integer[], timestamp with time zone); Type: FUNCTION; Schema: penstock; Owner: -
CREATE FUNCTION penstock.append_8_1(_partitions bigint[], _counts integer[], _after integer[], _starts integer[], _sizes integer[], _bodies bytea, _skew interval, _flush uuid, _epoch integer, _targets integer[] DEFAULT '{}'::integer[], _hashes uuid[] DEFAULT '{}'::uuid[], _slots integer[] DEFAULT '{}'::integer[], _places bigint[] DEFAULT '{}'::bigint[], _id_segments integer[] DEFAULT '{}'::integer[], _at timestamp with time zone DEFAULT NULL::timestamp with time zone) RETURNS TABLE(partition_id bigint, end_offset bigint)
    LANGUAGE plpgsql
    AS $_$
#variable_conflict use_column
DECLARE
    _segment integer;
    _seen boolean;
    _heads bigint[];
BEGIN
    -- In id order everywhere, so that two pushes can never wait for each other.
    PERFORM FROM penstock.partitions p WHERE p.id = ANY(_partitions) ORDER BY p.id FOR NO KEY UPDATE;
    IF NOT EXISTS (
        SELECT FROM penstock.queues q WHERE q.id = 8 AND q.segment = 1 AND q.epoch = _epoch
    ) THEN
        PERFORM penstock.refuse('the queue has moved on');
    END IF;
    FOREACH _segment IN ARRAY _id_segments LOOP
        EXECUTE format('SELECT EXISTS (SELECT FROM penstock.ids_8_%s i WHERE i.hash = ANY($1))', _segment)
        INTO _seen USING _hashes;
        IF _seen THEN
            RETURN;
        END IF;
    END LOOP;
    IF cardinality(_hashes) > 0 THEN
        SELECT array_agg(h.end_offset ORDER BY i.ordinal) INTO _heads
        FROM unnest(_partitions) WITH ORDINALITY AS i (partition_id, ordinal)
        CROSS JOIN LATERAL (
            (SELECT c.end_offset FROM penstock.chunks_8_1 c
             WHERE c.partition_id = i.partition_id ORDER BY c.end_offset DESC LIMIT 1)
            UNION ALL
            SELECT p.sealed_end FROM penstock.partitions p WHERE p.id = i.partition_id
            LIMIT 1
        ) h;
        INSERT INTO penstock.ids_8_1 (hash, event_offset)
        -- With the epoch above the offset: the partition of the key may be another one by the time it is found.
        SELECT n.hash, (_epoch::bigint << 48) + _heads[n.slot] + n.place
        FROM unnest(_hashes, _slots, _places) AS n (hash, slot, place);
    END IF;
    UPDATE penstock.cursors c SET state = 0 WHERE c.partition_id = ANY(_partitions) AND c.state = 1;
    RETURN QUERY
    INSERT INTO penstock.chunks_8_1 AS k (partition_id, end_offset, event_count, appended_at, target_group, flush_id, body)
    SELECT i.partition_id, h.end_offset + i.after, i.event_count, greatest(h.appended_at, coalesce(_at, clock_timestamp() + _skew)),
           i.target_group, _flush, substr(_bodies, i.start, i.size)
    FROM unnest(_partitions, _counts, _after, _starts, _sizes, _targets)
        AS i (partition_id, event_count, after, start, size, target_group)
    CROSS JOIN LATERAL (
        (SELECT c.end_offset, c.appended_at FROM penstock.chunks_8_1 c
         WHERE c.partition_id = i.partition_id ORDER BY c.end_offset DESC LIMIT 1)
        UNION ALL
        SELECT p.sealed_end, p.sealed_at FROM penstock.partitions p WHERE p.id = i.partition_id
        LIMIT 1
    ) h
    RETURNING k.partition_id, k.end_offset;
END
$_$;
-- Name: append_9_1(bigint[], integer[], integer[], integer[], integer[], bytea, interval, uuid, integer, integer[], uuid[], integer[], bigint[], integer[], timestamp with time zone); Type: FUNCTION; Schema: penstock; Owner: -
CREATE FUNCTION penstock.append_9_1(_partitions bigint[], _counts integer[], _after integer[], _starts integer[], _sizes integer[], _bodies bytea, _skew interval, _flush uuid, _epoch integer, _targets integer[] DEFAULT '{}'::integer[], _hashes uuid[] DEFAULT '{}'::uuid[], _slots integer[] DEFAULT '{}'::integer[], _places bigint[] DEFAULT '{}'::bigint[], _id_segments integer[] DEFAULT '{}'::integer[], _at timestamp with time zone DEFAULT NULL::timestamp with time zone) RETURNS TABLE(partition_id bigint, end_offset bigint)
    LANGUAGE plpgsql
    AS $_$
#variable_conflict use_column
DECLARE
    _segment integer;
    _seen boolean;
    _heads bigint[];
BEGIN
    -- In id order everywhere, so that two pushes can never wait for each other.
    PERFORM FROM penstock.partitions p WHERE p.id = ANY(_partitions) ORDER BY p.id FOR NO KEY UPDATE;
    IF NOT EXISTS (
        SELECT FROM penstock.queues q WHERE q.id = 9 AND q.segment = 1 AND q.epoch = _epoch
    ) THEN
        PERFORM penstock.refuse('the queue has moved on');
    END IF;
    FOREACH _segment IN ARRAY _id_segments LOOP
        EXECUTE format('SELECT EXISTS (SELECT FROM penstock.ids_9_%s i WHERE i.hash = ANY($1))', _segment)
        INTO _seen USING _hashes;
        IF _seen THEN
            RETURN;
        END IF;
    END LOOP;
    IF cardinality(_hashes) > 0 THEN
        SELECT array_agg(h.end_offset ORDER BY i.ordinal) INTO _heads
        FROM unnest(_partitions) WITH ORDINALITY AS i (partition_id, ordinal)
        CROSS JOIN LATERAL (
            (SELECT c.end_offset FROM penstock.chunks_9_1 c
             WHERE c.partition_id = i.partition_id ORDER BY c.end_offset DESC LIMIT 1)
            UNION ALL
            SELECT p.sealed_end FROM penstock.partitions p WHERE p.id = i.partition_id
            LIMIT 1
        ) h;
        INSERT INTO penstock.ids_9_1 (hash, event_offset)
        -- With the epoch above the offset: the partition of the key may be another one by the time it is found.
        SELECT n.hash, (_epoch::bigint << 48) + _heads[n.slot] + n.place
        FROM unnest(_hashes, _slots, _places) AS n (hash, slot, place);
    END IF;
    UPDATE penstock.cursors c SET state = 0 WHERE c.partition_id = ANY(_partitions) AND c.state = 1;
    RETURN QUERY
    INSERT INTO penstock.chunks_9_1 AS k (partition_id, end_offset, event_count, appended_at, target_group, flush_id, body)
    SELECT i.partition_id, h.end_offset + i.after, i.event_count, greatest(h.appended_at, coalesce(_at, clock_timestamp() + _skew)),
           i.target_group, _flush, substr(_bodies, i.start, i.size)
    FROM unnest(_partitions, _counts, _after, _starts, _sizes, _targets)
        AS i (partition_id, event_count, after, start, size, target_group)
    CROSS JOIN LATERAL (
        (SELECT c.end_offset, c.appended_at FROM penstock.chunks_9_1 c
         WHERE c.partition_id = i.partition_id ORDER BY c.end_offset DESC LIMIT 1)
        UNION ALL
        SELECT p.sealed_end, p.sealed_at FROM penstock.partitions p WHERE p.id = i.partition_id
        LIMIT 1
    ) h
    RETURNING k.partition_id, k.end_offset;
END
$_$;
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
-- Name: chunks_4_1; Type: TABLE; Schema: penstock; Owner: -
CREATE TABLE penstock.chunks_4_1 (
    partition_id bigint NOT NULL,
    end_offset bigint NOT NULL,
    event_count integer NOT NULL,
    appended_at timestamp with time zone NOT NULL,
    target_group integer,
    flush_id uuid NOT NULL,
    body bytea NOT NULL
);
ALTER TABLE ONLY penstock.chunks_4_1 ALTER COLUMN body SET STORAGE EXTERNAL;
-- Name: chunks_5_1; Type: TABLE; Schema: penstock; Owner: -
CREATE TABLE penstock.chunks_5_1 (
    partition_id bigint NOT NULL,
    end_offset bigint NOT NULL,
    event_count integer NOT NULL,
    appended_at timestamp with time zone NOT NULL,
    target_group integer,
    flush_id uuid NOT NULL,
    body bytea NOT NULL
);
ALTER TABLE ONLY penstock.chunks_5_1 ALTER COLUMN body SET STORAGE EXTERNAL;
-- Name: chunks_6_1; Type: TABLE; Schema: penstock; Owner: -
CREATE TABLE penstock.chunks_6_1 (
    partition_id bigint NOT NULL,
    end_offset bigint NOT NULL,
    event_count integer NOT NULL,
    appended_at timestamp with time zone NOT NULL,
    target_group integer,
    flush_id uuid NOT NULL,
    body bytea NOT NULL
);
ALTER TABLE ONLY penstock.chunks_6_1 ALTER COLUMN body SET STORAGE EXTERNAL;
-- Name: chunks_7_1; Type: TABLE; Schema: penstock; Owner: -
CREATE TABLE penstock.chunks_7_1 (
    partition_id bigint NOT NULL,
    end_offset bigint NOT NULL,
    event_count integer NOT NULL,
    appended_at timestamp with time zone NOT NULL,
    target_group integer,
    flush_id uuid NOT NULL,
    body bytea NOT NULL
);
ALTER TABLE ONLY penstock.chunks_7_1 ALTER COLUMN body SET STORAGE EXTERNAL;
-- Name: chunks_8_1; Type: TABLE; Schema: penstock; Owner: -
CREATE TABLE penstock.chunks_8_1 (
    partition_id bigint NOT NULL,
    end_offset bigint NOT NULL,
    event_count integer NOT NULL,
    appended_at timestamp with time zone NOT NULL,
    target_group integer,
    flush_id uuid NOT NULL,
    body bytea NOT NULL
);
ALTER TABLE ONLY penstock.chunks_8_1 ALTER COLUMN body SET STORAGE EXTERNAL;
-- Name: chunks_9_1; Type: TABLE; Schema: penstock; Owner: -
CREATE TABLE penstock.chunks_9_1 (
    partition_id bigint NOT NULL,
    end_offset bigint NOT NULL,
    event_count integer NOT NULL,
    appended_at timestamp with time zone NOT NULL,
    target_group integer,
    flush_id uuid NOT NULL,
    body bytea NOT NULL
);
ALTER TABLE ONLY penstock.chunks_9_1 ALTER COLUMN body SET STORAGE EXTERNAL;
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
            NULL::text AS text,
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
-- Name: history_1; Type: TABLE; Schema: penstock; Owner: -
CREATE TABLE penstock.history_1 (
    key text NOT NULL COLLATE pg_catalog."C",
    window_start timestamp with time zone NOT NULL,
    window_end timestamp with time zone NOT NULL,
    a0 numeric,
    a1 bigint,
    a2 numeric,
    a2n bigint,
    a3 double precision[],
    a4 text[],
    a5 numeric,
    closed_at timestamp with time zone NOT NULL,
    revision integer DEFAULT 0 NOT NULL
);
-- Name: history_3; Type: TABLE; Schema: penstock; Owner: -
CREATE TABLE penstock.history_3 (
    key text NOT NULL COLLATE pg_catalog."C",
    window_start timestamp with time zone NOT NULL,
    window_end timestamp with time zone NOT NULL,
    a0 text COLLATE pg_catalog."C",
    a1 numeric,
    a2 bigint,
    closed_at timestamp with time zone NOT NULL,
    revision integer DEFAULT 0 NOT NULL
);
-- Name: history_4; Type: TABLE; Schema: penstock; Owner: -
CREATE TABLE penstock.history_4 (
    key text NOT NULL COLLATE pg_catalog."C",
    window_start timestamp with time zone NOT NULL,
    window_end timestamp with time zone NOT NULL,
    a0 numeric,
    a1 bigint,
    closed_at timestamp with time zone NOT NULL,
    revision integer DEFAULT 0 NOT NULL
);
-- Name: ids_1_1; Type: TABLE; Schema: penstock; Owner: -
CREATE TABLE penstock.ids_1_1 (
    hash uuid NOT NULL,
    event_offset bigint NOT NULL
);
-- Name: ids_2_1; Type: TABLE; Schema: penstock; Owner: -
CREATE TABLE penstock.ids_2_1 (
    hash uuid NOT NULL,
    event_offset bigint NOT NULL
);
-- Name: ids_3_1; Type: TABLE; Schema: penstock; Owner: -
CREATE TABLE penstock.ids_3_1 (
    hash uuid NOT NULL,
    event_offset bigint NOT NULL
);
-- Name: ids_4_1; Type: TABLE; Schema: penstock; Owner: -
CREATE TABLE penstock.ids_4_1 (
    hash uuid NOT NULL,
    event_offset bigint NOT NULL
);
-- Name: ids_5_1; Type: TABLE; Schema: penstock; Owner: -
CREATE TABLE penstock.ids_5_1 (
    hash uuid NOT NULL,
    event_offset bigint NOT NULL
);
-- Name: ids_6_1; Type: TABLE; Schema: penstock; Owner: -
CREATE TABLE penstock.ids_6_1 (
    hash uuid NOT NULL,
    event_offset bigint NOT NULL
);
-- Name: ids_7_1; Type: TABLE; Schema: penstock; Owner: -
CREATE TABLE penstock.ids_7_1 (
    hash uuid NOT NULL,
    event_offset bigint NOT NULL
);
-- Name: ids_8_1; Type: TABLE; Schema: penstock; Owner: -
CREATE TABLE penstock.ids_8_1 (
    hash uuid NOT NULL,
    event_offset bigint NOT NULL
);
-- Name: ids_9_1; Type: TABLE; Schema: penstock; Owner: -
CREATE TABLE penstock.ids_9_1 (
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
-- Name: state_1; Type: TABLE; Schema: penstock; Owner: -
CREATE TABLE penstock.state_1 (
    key text NOT NULL COLLATE pg_catalog."C",
    window_start timestamp with time zone NOT NULL,
    window_end timestamp with time zone NOT NULL,
    partition_id bigint NOT NULL,
    a0 numeric,
    a1 bigint,
    a2 numeric,
    a2n bigint,
    a3 double precision[],
    a4 text[],
    a5 numeric,
    updated_at timestamp with time zone NOT NULL
)
WITH (fillfactor='60', autovacuum_vacuum_scale_factor='0.1', autovacuum_vacuum_cost_delay='0');
-- Name: state_3; Type: TABLE; Schema: penstock; Owner: -
CREATE TABLE penstock.state_3 (
    key text NOT NULL COLLATE pg_catalog."C",
    window_start timestamp with time zone NOT NULL,
    window_end timestamp with time zone NOT NULL,
    partition_id bigint NOT NULL,
    a0 text COLLATE pg_catalog."C",
    a1 numeric,
    a2 bigint,
    updated_at timestamp with time zone NOT NULL
)
WITH (fillfactor='60', autovacuum_vacuum_scale_factor='0.1', autovacuum_vacuum_cost_delay='0');
-- Name: state_4; Type: TABLE; Schema: penstock; Owner: -
CREATE TABLE penstock.state_4 (
    key text NOT NULL COLLATE pg_catalog."C",
    window_start timestamp with time zone NOT NULL,
    window_end timestamp with time zone NOT NULL,
    partition_id bigint NOT NULL,
    a0 numeric,
    a1 bigint,
    updated_at timestamp with time zone NOT NULL
)
WITH (fillfactor='60', autovacuum_vacuum_scale_factor='0.1', autovacuum_vacuum_cost_delay='0');
-- Name: state; Type: VIEW; Schema: penstock; Owner: -
CREATE VIEW penstock.state AS
 SELECT 'sums'::text AS query,
    (NULLIF(s.key, ''::text) COLLATE "default") AS key,
    s.window_start,
    s.window_end,
    jsonb_build_object('total', trim_scale(s.a0), 'n', s.a1, 'mean', penstock.mean(s.a2, s.a2n), 'spread',
        CASE
            WHEN (s.a3[1] > (1)::double precision) THEN sqrt((s.a3[3] / (s.a3[1] - (1)::double precision)))
            ELSE NULL::double precision
        END, 'kinds', (COALESCE(cardinality(s.a4), 0))::bigint, 'highest', trim_scale(s.a5)) AS value,
    s.updated_at
   FROM penstock.state_1 s
UNION ALL
 SELECT 'busy'::text AS query,
    (NULLIF(s.key, ''::text) COLLATE "default") AS key,
    s.window_start,
    s.window_end,
    jsonb_build_object('who', s.a0, 'sum_amount', trim_scale(s.a1), 'n', s.a2, 'mean', penstock.mean(((trim_scale(s.a1) * 1.0000000000000000000000000000000000000000) / (NULLIF(s.a2, 0))::numeric), (1)::bigint)) AS value,
    s.updated_at
   FROM penstock.state_3 s
UNION ALL
 SELECT 'visits'::text AS query,
    (NULLIF(s.key, ''::text) COLLATE "default") AS key,
    s.window_start,
    s.window_end,
    jsonb_build_object('total', trim_scale(s.a0), 'n', s.a1) AS value,
    s.updated_at
   FROM penstock.state_4 s
UNION ALL
 SELECT shared_open_state.query,
    shared_open_state.key,
    shared_open_state.window_start,
    shared_open_state.window_end,
    shared_open_state.value,
    shared_open_state.updated_at
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
-- Name: waiting_5; Type: TABLE; Schema: penstock; Owner: -
CREATE TABLE penstock.waiting_5 (
    id bigint NOT NULL,
    side smallint NOT NULL,
    key text NOT NULL COLLATE pg_catalog."C",
    time_us bigint NOT NULL,
    partition_id bigint NOT NULL,
    event_offset bigint NOT NULL,
    event_key text,
    line text NOT NULL,
    is_matched boolean NOT NULL
)
WITH (autovacuum_vacuum_scale_factor='0.1', autovacuum_vacuum_cost_delay='0');
-- Name: waiting_5_id_seq; Type: SEQUENCE; Schema: penstock; Owner: -
ALTER TABLE penstock.waiting_5 ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME penstock.waiting_5_id_seq
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
-- Name: busy; Type: VIEW; Schema: penstock_history; Owner: -
CREATE VIEW penstock_history.busy AS
 SELECT (NULLIF(s.key, ''::text) COLLATE "default") AS key,
    s.window_start,
    s.window_end,
    s.a0 AS who,
    trim_scale(s.a1) AS sum_amount,
    s.a2 AS n,
    penstock.mean(((trim_scale(s.a1) * 1.0000000000000000000000000000000000000000) / (NULLIF(s.a2, 0))::numeric), (1)::bigint) AS mean,
    s.closed_at AS updated_at,
    false AS is_open,
    s.revision
   FROM penstock.history_3 s
  WHERE (s.a2 > 2)
UNION ALL
 SELECT (NULLIF(s.key, ''::text) COLLATE "default") AS key,
    s.window_start,
    s.window_end,
    s.a0 AS who,
    trim_scale(s.a1) AS sum_amount,
    s.a2 AS n,
    penstock.mean(((trim_scale(s.a1) * 1.0000000000000000000000000000000000000000) / (NULLIF(s.a2, 0))::numeric), (1)::bigint) AS mean,
    s.updated_at,
    true AS is_open,
    0 AS revision
   FROM penstock.state_3 s
  WHERE (s.a2 > 2);
-- Name: sums; Type: VIEW; Schema: penstock_history; Owner: -
CREATE VIEW penstock_history.sums AS
 SELECT (NULLIF(s.key, ''::text) COLLATE "default") AS key,
    (NULLIF(s.key, ''::text) COLLATE "default") AS customer,
    s.window_start,
    s.window_end,
    trim_scale(s.a0) AS total,
    s.a1 AS n,
    penstock.mean(s.a2, s.a2n) AS mean,
        CASE
            WHEN (s.a3[1] > (1)::double precision) THEN sqrt((s.a3[3] / (s.a3[1] - (1)::double precision)))
            ELSE NULL::double precision
        END AS spread,
    (COALESCE(cardinality(s.a4), 0))::bigint AS kinds,
    trim_scale(s.a5) AS highest,
    s.closed_at AS updated_at,
    false AS is_open,
    s.revision
   FROM penstock.history_1 s
UNION ALL
 SELECT (NULLIF(s.key, ''::text) COLLATE "default") AS key,
    (NULLIF(s.key, ''::text) COLLATE "default") AS customer,
    s.window_start,
    s.window_end,
    trim_scale(s.a0) AS total,
    s.a1 AS n,
    penstock.mean(s.a2, s.a2n) AS mean,
        CASE
            WHEN (s.a3[1] > (1)::double precision) THEN sqrt((s.a3[3] / (s.a3[1] - (1)::double precision)))
            ELSE NULL::double precision
        END AS spread,
    (COALESCE(cardinality(s.a4), 0))::bigint AS kinds,
    trim_scale(s.a5) AS highest,
    s.updated_at,
    true AS is_open,
    0 AS revision
   FROM penstock.state_1 s;
-- Name: visits; Type: VIEW; Schema: penstock_history; Owner: -
CREATE VIEW penstock_history.visits AS
 SELECT (NULLIF(s.key, ''::text) COLLATE "default") AS key,
    (NULLIF(s.key, ''::text) COLLATE "default") AS customer,
    s.window_start,
    s.window_end,
    trim_scale(s.a0) AS total,
    s.a1 AS n,
    s.closed_at AS updated_at,
    false AS is_open,
    s.revision
   FROM penstock.history_4 s
UNION ALL
 SELECT (NULLIF(s.key, ''::text) COLLATE "default") AS key,
    (NULLIF(s.key, ''::text) COLLATE "default") AS customer,
    s.window_start,
    s.window_end,
    trim_scale(s.a0) AS total,
    s.a1 AS n,
    s.updated_at,
    true AS is_open,
    0 AS revision
   FROM penstock.state_4 s;
-- Name: busy; Type: VIEW; Schema: penstock_live; Owner: -
CREATE VIEW penstock_live.busy AS
 SELECT (NULLIF(key, ''::text) COLLATE "default") AS key,
    window_start,
    window_end,
    a0 AS who,
    trim_scale(a1) AS sum_amount,
    a2 AS n,
    penstock.mean(((trim_scale(a1) * 1.0000000000000000000000000000000000000000) / (NULLIF(a2, 0))::numeric), (1)::bigint) AS mean,
    updated_at
   FROM penstock.state_3 s
  WHERE (a2 > 2);
-- Name: sums; Type: VIEW; Schema: penstock_live; Owner: -
CREATE VIEW penstock_live.sums AS
 SELECT (NULLIF(key, ''::text) COLLATE "default") AS key,
    (NULLIF(key, ''::text) COLLATE "default") AS customer,
    window_start,
    window_end,
    trim_scale(a0) AS total,
    a1 AS n,
    penstock.mean(a2, a2n) AS mean,
        CASE
            WHEN (a3[1] > (1)::double precision) THEN sqrt((a3[3] / (a3[1] - (1)::double precision)))
            ELSE NULL::double precision
        END AS spread,
    (COALESCE(cardinality(a4), 0))::bigint AS kinds,
    trim_scale(a5) AS highest,
    updated_at
   FROM penstock.state_1 s;
-- Name: visits; Type: VIEW; Schema: penstock_live; Owner: -
CREATE VIEW penstock_live.visits AS
 SELECT (NULLIF(key, ''::text) COLLATE "default") AS key,
    (NULLIF(key, ''::text) COLLATE "default") AS customer,
    window_start,
    window_end,
    trim_scale(a0) AS total,
    a1 AS n,
    updated_at
   FROM penstock.state_4 s;
-- Name: delivered; Type: TABLE; Schema: public; Owner: -
CREATE TABLE public.delivered (
    key text,
    starts timestamp with time zone,
    n bigint
);
-- Data for Name: api_keys; Type: TABLE DATA; Schema: penstock; Owner: -
-- Data for Name: audit; Type: TABLE DATA; Schema: penstock; Owner: -
-- Data for Name: chunks_1_1; Type: TABLE DATA; Schema: penstock; Owner: -
INSERT INTO penstock.chunks_1_1 VALUES
	(2, 5, 5, '2026-11-16 12:00:42.182023+00', NULL, '3286af0d-f3d7-47d4-8742-ce731e7f1eca', '\x0128b52ffd645400a50400f2871b1fb0351d0c936b9530cc6e38889821d8db8659ad6c7b65dbd2c88219e9b88e760f2fb3d4a5dcda72b5e51a05af95abc9d6aed178b3f1a1f3ae8147b75389edee6ea6ee0b73b58aec76679246410657c7d124ee0602a2304bf3ae4e287787851f628cd07911745e142100945212040f006056c018d81e741f34b281c3607b42e81230063607f30d017e7044100219bc0a18c48f0627'),
	(1, 5, 5, '2026-11-16 12:00:42.182084+00', NULL, '3286af0d-f3d7-47d4-8742-ce731e7f1eca', '\x0128b52ffd645e00b50400b2c71a1fa0a739ffe8d8d5d82e682465cb4f8c3efe83d922bfbb7b6d59a3fa6296480248b7a474d136e2a58c96dbb2b6b4d780a555b558d97af1b500c24a134addddddd6dd983fcdcad2bacfc3218bf77328e1dd1185424ee320fc5cc9bb47c313cbb2bcf81428a1920012638c20100043f00ad80dcd604498216002b631c4ac032307c83b04ac85d0353006e40d4378f7e2ac09a50e2c1998b7'),
	(1, 13, 8, '2026-11-16 12:00:42.187461+00', NULL, '8d6fd55f-d036-4b84-9b1c-f441f4ef8e89', '\x0128b52ffd6429012d060062ca2120a0a56dff58a009885644b77e421951566cfe3723b9256dda29652fe587d65b2d8cf2a3befe3b1d4ddebacb41e78b595b2d6594dc997b135a565fd4ad14f1d2ed6caf257fd2464b93ef80414b291ffeff7f5f968992c527f55f960ab2c0a36561180bc212c0704025590a59e459982cdf2103628c0ebac641d75e6bda6b4d8c030201822008011a00a043d018188f08fd01c3012940ac41a7e03288dbd1e846589d81c380e160fe2220060e03c683fe0ac67870c4100c023a05c61622949843590218d5ad39'),
	(2, 7, 2, '2026-11-16 12:00:42.18747+00', NULL, '8d6fd55f-d036-4b84-9b1c-f441f4ef8e89', '\x00f9ccb3bc0e000000950292a3637964a3637964c0c0c07b226964223a226f3137222c22637573746f6d6572223a22637964222c22616d6f756e74223a31392e30352c227473223a313639393939393230342e3738347d0a7b226964223a226f3138222c22637573746f6d6572223a22637964222c22616d6f756e74223a36332e31362c227473223a313639393939393230352e3939357d'),
	(2, 14, 7, '2026-11-16 12:00:42.18985+00', NULL, 'f6d227af-752b-4448-8fdb-d4d94a16abf6', '\x0128b52ffd64e20085050002891e20a0371dff58feabd836a1890b9123c5de5405cf96dde4965bde626cf80b164f02d04a9c4d377b5bf54a999aeed18e6404711466d63c589331b5db3879252f65aa656b0052bb9225edee6e56ee4c7383e526e5de28ce920c6e1c3eefee0642b2348cf36e3ce9727758f821c6089f17c5089f17250088a22804011500d069e1ea029c0bc610186f00bb600c21262958308173c1d045e80ad815c2d041e806d825c2c0459809c42944d0ce9c9b03d160a8f2'),
	(1, 16, 3, '2026-11-16 12:00:42.189858+00', NULL, 'f6d227af-752b-4448-8fdb-d4d94a16abf6', '\x00d5b8051612000000950393a3616461a3626f62a3626f62c0c0c07b226964223a226f3231222c22637573746f6d6572223a22616461222c22616d6f756e74223a3138382e33392c227473223a313639393939393230362e3430377d0a7b226964223a226f3235222c22637573746f6d6572223a22626f62222c22616d6f756e74223a3130312e35322c227473223a313639393939393230362e3736367d0a7b226964223a226f3237222c22637573746f6d6572223a22626f62222c22616d6f756e74223a3133322e30362c227473223a313639393939393230372e37327d'),
	(1, 23, 7, '2026-11-16 12:00:42.191665+00', NULL, 'a76c84ab-aa88-43b9-b511-7b346ff82a39', '\x0128b52ffd64e7001d0600720a2221b0a5390cfb613940c0a48d85d06108565a9839472629331199520efd9c3890da018c9f4e5ddfe4ff764ddd4579901fd6d4ed4f84b6db33a193a8d73016a448fcbfc9ba873bed27f76a8b0b4c91365ff9ffff7d15260a125ea4af420559dcb19040e6182a2410389c922c0148a01e870adb0016bcf71e73ecadb69ad556c31c6b0e0806c3300004180020abd17401ce0546015993961c206f117121422ea3e900ce1dc22044f452301b8173c11845980bb00b8c01a606f1803c84087ab02d77b318468f'),
	(2, 17, 3, '2026-11-16 12:00:42.191674+00', NULL, 'a76c84ab-aa88-43b9-b511-7b346ff82a39', '\x00c8d20af212000000950393a3637964a3637964a3637964c0c0c07b226964223a226f3331222c22637573746f6d6572223a22637964222c22616d6f756e74223a3130332e33392c227473223a313639393939393230392e3337327d0a7b226964223a226f3337222c22637573746f6d6572223a22637964222c22616d6f756e74223a3138382e37342c227473223a313639393939393230392e3537377d0a7b226964223a226f3338222c22637573746f6d6572223a22637964222c22616d6f756e74223a31362e31332c227473223a313639393939393231302e39357d'),
	(1, 32, 9, '2026-11-16 12:00:42.193526+00', NULL, '27d14afe-7e15-4afd-aa67-e0d4d9e6f98c', '\x0128b52ffd6469016d0600824a222290a5cd01ff578af59dda65bb71ad312afff6cfcccc489290912d769220cc4533116d8e32535776876b4deca919d3f555efe6b4dfe52f5accf87b56b554a7b76a5a4b2d74231f7cb906d32fa71bab038721bdea7677f7d2960b9385f6975b324a0313970582344a4b00430299a529649148c16c791c3220c6e80ef7e07b1e7c4f8c030201822008011d00c0d3801b90ef680723c2fc001360e8a2410874008e0b38023a059741fc08067120088887d13c254217e05c600c98846062058701e381ee41106308daa451c0b3c957f9'),
	(2, 18, 1, '2026-11-16 12:00:42.193534+00', NULL, '27d14afe-7e15-4afd-aa67-e0d4d9e6f98c', '\x00820bedb90a000000950191a3637964c0c0c07b226964223a226f3435222c22637573746f6d6572223a22637964222c22616d6f756e74223a3138392e362c227473223a313639393939393231312e3538387d'),
	(1, 39, 7, '2026-11-16 12:00:42.198898+00', NULL, '040dba02-79f9-45b0-b30a-e33a9ee369b5', '\x0128b52ffd64ea006d050012091e2090b5e9ff973f517d257f89c0599caa91ffccccd89672cb954d3421612c4fa2b40e22bd45be6e443dc4e89837f5b85ec95ae5e4be45841c7dda7b89b472a64309054e4a3d04b3bbbb17d517e6c6e6254575c6d03465dd386becea0782d298a519dcf881dad593c211cff3b0c656b258630100814451140f1600437484b86400f28258838e00bb60e02178028c01f2423c88302b600c8c37842e0163c070607e700529821ad0ba0f3707c573da9f'),
	(2, 21, 3, '2026-11-16 12:00:42.198917+00', NULL, '040dba02-79f9-45b0-b30a-e33a9ee369b5', '\x001e96aacc0c000000950393c0c0a3637964c0c0c07b226964223a226f3532222c22637573746f6d6572223a6e756c6c2c22616d6f756e74223a332e39372c227473223a313639393939393231332e3538387d0a7b226964223a226f3534222c22637573746f6d6572223a6e756c6c2c22616d6f756e74223a3131302e35352c227473223a313639393939393231352e3030347d0a7b226964223a226f3537222c22637573746f6d6572223a22637964222c22616d6f756e74223a36362e38372c227473223a313639393939393231362e3233367d'),
	(1, 47, 8, '2026-11-16 12:00:51.483758+00', NULL, '743295f9-6e6f-4c44-8d77-200be9a0c71d', '\x0128b52ffd642d01650600c2ca22229027cd01ff97acde6ed9b0686d2ab14cf9ef3f3333234944f6cab51309b10e70ceb489e4746e3e6ba3334a2f279dd6272d37cb1c434688bf8ade25374b7ff5da68199dd38d160ac841bbf37cf6b9199030d9df34ddddbda91071a0d1e6e5a4c2e38038c34203575ba8d080c0e00e043280069675a8b015e0c17b8f3996bcd556b2da4a1200108aa210081b00a053b899d1383744f7094b367018301e744f6971090e03e31d4d07a05be008606880106017181a10291883c0b9606822740a8c1545a808f31224ca128c0afcb3'),
	(2, 23, 2, '2026-11-16 12:00:51.483768+00', NULL, '743295f9-6e6f-4c44-8d77-200be9a0c71d', '\x006ac44dfa0e000000950292a3637964a3637964c0c0c07b226964223a226f3632222c22637573746f6d6572223a22637964222c22616d6f756e74223a38382e32392c227473223a313639393939393231362e3231347d0a7b226964223a226f3634222c22637573746f6d6572223a22637964222c22616d6f756e74223a32362e35322c227473223a313639393939393231372e3531357d'),
	(1, 53, 6, '2026-11-16 12:00:51.489334+00', NULL, '0c8fc508-2ee4-4ddf-b76c-d3b8f01e1c70', '\x0128b52ffd64aa00cd040062081c1fb0271d0c33392513c21162b831b6596b43a7b6945bcabd25214587530465124e5274492ac54993c3dc3c55a5ac340f31a65d3ce6bced6c54d7289d2e061c44798cd9dddd8beb0b7324f358719d41344d191c396beceb0983d298a5211c79a2dad70b872b9ee7618d351880c5711c8210004a6b46c018189008f2034c80318a301760170c4d844e0163c078a07b70a5288266a6dd1c9ce293c0'),
	(2, 27, 4, '2026-11-16 12:00:51.489345+00', NULL, '0c8fc508-2ee4-4ddf-b76c-d3b8f01e1c70', '\x0128b52ffd641d0035040062471a1fa0371dffe83703f13ebd9b0b9123654dffbb28cb967b4b69cb358e1d2e71770866c5d4c4d65a37b15317ee32b34dc6e41f8f711640b0a550a9767737a73bd33c2d85dbd2bd519c25193c2188a3b81b08c9d2308ef1f46dcbdd8fc20fefbde331162f0150208404010b00a023702f880b90155c066207f315217e7084204231138e0ee532fd31'),
	(1, 58, 5, '2026-11-16 12:00:51.491256+00', NULL, '2993a40e-cb8c-4517-8d51-7dc992cb5019', '\x0128b52ffd646100d50400f2471b1fa0371dff5856efed0211272b3f31f2e77f63b6942b7b13f1e51ad517b3883bccca45e5c4c5cc896aa0ead54c2c8ac4428d359662e4cd76341560d6624cd5eeeede644f94a745d5ecca6179487bba7beeec8802f29464213c7dc0efec87e189e779dad11cf79cd3001a8490201100d029c1c801f20e11938221643032007921d644745a30720079211e459805c403f2862168e7b852071cfda473'),
	(2, 32, 5, '2026-11-16 12:00:51.491265+00', NULL, '2993a40e-cb8c-4517-8d51-7dc992cb5019', '\x0128b52ffd645a00bd040002c81b1fa0b539ff787c35db2bd06d9e35f1e1dfa1aacfcaaeedde62cb1a577bce2e92cd73acab2d7daf1d53ca4dad63aa55114c97d8b5ce2de54b269e034d6baccbdcddddc4c227ca135be507af1c0b620c9e8a6239e00d04035192253e7d1f727859f861ce2999f848263ed301380821410f00a0537019c4af60b3138d6ce030305e113a08980063083107116085c3862154c4ab2c01ded8c043'),
	(1, 65, 7, '2026-11-16 12:00:51.493038+00', NULL, '62609cdb-7b5d-4e73-ae52-8ac45315c30c', '\x0128b52ffd64ec00e50500b2c91f20a0b539ff58feafe2ba40e452f64ab66df97f0064a696529289cc3eb48619d90eceaa66bba7a76ffddcfe64e5bd9eab0a411aa55372abe4c4ab9c2a15da6794bb9e08b1832981e38890aafaffff9d162e0c1afca99b16324ae312860636d77021c2903866690a68207a870b8f0326de7bcdb5c70ef634d79e8000405114831900d06911ba00f2825843a7490b09389708430be171d11804e70ec118a0537019c4cf60881f4c674032103fd03dc039908214410d4b13f6963a72e444a7'),
	(2, 35, 3, '2026-11-16 12:00:51.493046+00', NULL, '62609cdb-7b5d-4e73-ae52-8ac45315c30c', '\x001a5961bf12000000950393a3637964a3637964a3637964c0c0c07b226964223a226f3931222c22637573746f6d6572223a22637964222c22616d6f756e74223a37372e37312c227473223a313639393939393232332e3138337d0a7b226964223a226f3932222c22637573746f6d6572223a22637964222c22616d6f756e74223a3134322e39332c227473223a313639393939393232332e3735317d0a7b226964223a226f3937222c22637573746f6d6572223a22637964222c22616d6f756e74223a39392e31352c227473223a313639393939393232352e3134397d'),
	(1, 75, 10, '2026-11-16 12:00:51.494903+00', NULL, 'e7c6fe2d-1f19-45bc-a36d-e0eb8a0d210b', '\x0128b52ffd64b601cd0600124b221f90a739ff1765e59df65244b0b6595d44f8cc64bd2252ee8a1021d1e9a90248cc329e739eee23ff6b3f46ae88cf19afb1b5cf75e21d46d88bf79a6859bfcf8f67ebb9fcddf3678f3335397d6fd530162409e6151dabfeff3f67b244b1a2f750275390651d0156985aca9219101c4b4916012b0c3197251b28b083a6514b151ab554218140188601202200a0531032c03d0a0249c030c03de8de6921060e06b807ba043703ce15310311e4050e01b80133294d07e0b8801b60567033e09c1133184cb7c0210037606a22c004e786226cc78505b6650901deac52'),
	(1, 82, 7, '2026-11-16 12:00:51.497382+00', NULL, 'bfeaca63-1e38-404e-8acb-0a3548fe9aeb', '\x0128b52ffd64e700fd0500228a201fa0b70dff58feabd82e107111caae4c7efeb72a697365ef24b2d7e8c32a97040e5bd76359b73a27a5beb63b253d10afb66286d41da9f27f9f893952a65839f12ed3ee565e9b0ebadc80e39bd499dddd7d6dcb85496329a3968cd2c0e4d34090466969202490599a411a79ecc26cf90a798831fefbe7df3fd141f7c4040051148520180006f326693a00c78543172117d2c8008e0bb8026402f7054e17d1f5c118048e0b9c26a2538391031c17386d442f44d8140e1b86b031dbc204548d8945'),
	(2, 38, 3, '2026-11-16 12:00:51.497391+00', NULL, 'bfeaca63-1e38-404e-8acb-0a3548fe9aeb', '\x00154b0e5512000000950393a3637964a3637964a3637964c0c0c07b226964223a226f313133222c22637573746f6d6572223a22637964222c22616d6f756e74223a34382e30362c227473223a313639393939393232382e3332327d0a7b226964223a226f313136222c22637573746f6d6572223a22637964222c22616d6f756e74223a3137342e31312c227473223a313639393939393232392e3632337d0a7b226964223a226f313139222c22637573746f6d6572223a22637964222c22616d6f756e74223a3137352e32332c227473223a313639393939393233302e3937347d'),
	(1, 91, 9, '2026-11-16 12:00:57.832589+00', NULL, '590f17ad-5280-4061-b704-d563def93f26', '\x0128b52ffd647a01d50600e20a232280a7cd013300a23134fa7368ebb1ad20c7c60333005776f7ca2d7696238b4993470b0575d037992beae59f9fb5faaaf6681d744a1dc47ad694d2faf6532385fabb37cb86afe7898b42390ef35ed79e37a0d08c6ece76777752964892c4ee97b24c0e051a2d896caf254b03020326883290449a55982c5f411ec4181d744b8cedb5a5bdb62400200cc32010200046744a842e807ce12006437069ba00f9168123a0d3801b205fe0861166053703ee2d2c920a0b09705ce074110811a103705c7010e8c4600c02c7059c061dc1bda208f0bcbcbc6f5902b338b5e5'),
	(2, 39, 1, '2026-11-16 12:00:57.832602+00', NULL, '590f17ad-5280-4061-b704-d563def93f26', '\x0042953dc00a000000950191a3637964c0c0c07b226964223a226f313231222c22637573746f6d6572223a22637964222c22616d6f756e74223a3135372e38362c227473223a313639393939393233322e3135337d'),
	(1, 98, 7, '2026-11-16 12:00:57.837961+00', NULL, '706ef4e0-f045-4e2c-8d06-d061c60f4c00', '\x0128b52ffd64f700a50500c2091f1eb0a70d0c77300e204426c42831b6ad3d833b992925ed94320dcdc0e98a040ba393a94fb67a3f9bc835b593da4f6e4e46daec68530fab6fb2762a6f7295fb9eca99631a585c3511efffff275d88246834ca57ba302928ef6068607b0d171a06c74b104580061ed6870b1d010f4dd330c798634c7b8d4900104551601700a0537033c03dd03db885119c2ea2aba49101e45b040ec3ac4ad305902fe034e814300cb85784fe80e1404a6204d85ed8ba7575b6dda6af'),
	(2, 42, 3, '2026-11-16 12:00:57.83797+00', NULL, '706ef4e0-f045-4e2c-8d06-d061c60f4c00', '\x0078ce190f0f000000950393a3637964a3637964c0c0c0c07b226964223a226f313334222c22637573746f6d6572223a22637964222c22616d6f756e74223a39392e32332c227473223a313639393939393233342e3731327d0a7b226964223a226f313337222c22637573746f6d6572223a22637964222c22616d6f756e74223a3137352e39312c227473223a313639393939393233352e3735377d0a7b226964223a226f313338222c22637573746f6d6572223a6e756c6c2c22616d6f756e74223a31382e37352c227473223a313639393939393233362e3234317d'),
	(2, 44, 2, '2026-11-16 12:00:57.840105+00', NULL, 'e5f16204-2686-424b-9a55-9f0f3f9ad4e2', '\x0099bbbaff0e000000950292a3637964a3637964c0c0c07b226964223a226f313430222c22637573746f6d6572223a22637964222c22616d6f756e74223a3139392e30362c227473223a313639393939393233362e3835387d0a7b226964223a226f313437222c22637573746f6d6572223a22637964222c22616d6f756e74223a3138392e30352c227473223a313639393939393233372e3232377d'),
	(1, 106, 8, '2026-11-16 12:00:57.840117+00', NULL, 'e5f16204-2686-424b-9a55-9f0f3f9ad4e2', '\x0128b52ffd642e012d0600420a211fa0b70dff58c0fc97dc25e222945d19bdfd0f4672cb4c2953ca5eea47db570b0eef2b5386f69bd7337fa4ec5b3bf93333a56c11a4513af94ada492dc5ba96ab7f526c756d2b6a77380e388d5c3df1fffffbb65c98349c35714b466960e2d2c8075fb6341012c82ccd208d5cb5305b1e853cc4181f7c4f8cd11dee79f03d0900a2280a411b0080d0f3ea008e7bb0031f0d8d8061c0bd22740f3a0307039c83f98e064e381811b806e6071801380d9d1e8c1c40be80d3a06b600cc8638a00cfbda50e817d155a');
-- Data for Name: chunks_2_1; Type: TABLE DATA; Schema: penstock; Owner: -
INSERT INTO penstock.chunks_2_1 VALUES
	(3, 1, 1, '2026-11-16 12:00:42.186228+00', NULL, '9af0af6e-dadb-4bf2-a098-8d954b8d8a75', '\x007979b45309000000950191a26f35c0c0c07b226f72646572223a226f35222c226e223a352c227473223a313639393939393230322e337d'),
	(4, 4, 4, '2026-11-16 12:00:42.188768+00', NULL, '612528f7-2d3a-4fba-b5b1-939f9ba165a7', '\x0087fb90a514000000950494a36f3130a26f39a36f3132a26f30c0c0c07b226f72646572223a226f3130222c226e223a31302c227473223a313639393939393230322e3930347d0a7b226f72646572223a226f39222c226e223a392c227473223a313639393939393230332e3733367d0a7b226f72646572223a226f3132222c226e223a31322c227473223a313639393939393230342e3333397d0a7b226f72646572223a226f30222c226e223a302c227473223a313639393939393230342e3430317d'),
	(3, 2, 1, '2026-11-16 12:00:42.188777+00', NULL, '612528f7-2d3a-4fba-b5b1-939f9ba165a7', '\x00829afee109000000950191a26f34c0c0c07b226f72646572223a226f34222c226e223a342c227473223a313639393939393230332e3531377d'),
	(3, 7, 5, '2026-11-16 12:00:42.190813+00', NULL, '22f7bc25-6da2-4c72-9914-edec486abf5e', '\x008009ce7718000000950595a36f3137a36f3230a26f36a36f3232a26f37c0c0c07b226f72646572223a226f3137222c226e223a31372c227473223a313639393939393230352e3337357d0a7b226f72646572223a226f3230222c226e223a32302c227473223a313639393939393230352e3431317d0a7b226f72646572223a226f36222c226e223a362c227473223a313639393939393230352e3839327d0a7b226f72646572223a226f3232222c226e223a32322c227473223a313639393939393230362e3531387d0a7b226f72646572223a226f37222c226e223a372c227473223a313639393939393230362e3737387d'),
	(4, 5, 1, '2026-11-16 12:00:42.190821+00', NULL, '22f7bc25-6da2-4c72-9914-edec486abf5e', '\x00cfe1aa0409000000950191a26f31c0c0c07b226f72646572223a226f31222c226e223a312c227473223a313639393939393230352e3731337d'),
	(3, 11, 4, '2026-11-16 12:00:42.192624+00', NULL, 'c87f7a1c-91ed-438e-9b43-1be56fe9c481', '\x0040274ad816000000950494a36f3231a36f3233a36f3134a36f3239c0c0c07b226f72646572223a226f3231222c226e223a32312c227473223a313639393939393230372e3937387d0a7b226f72646572223a226f3233222c226e223a32332c227473223a313639393939393230382e3334387d0a7b226f72646572223a226f3134222c226e223a31342c227473223a313639393939393230382e3434347d0a7b226f72646572223a226f3239222c226e223a32392c227473223a313639393939393230392e3838377d'),
	(4, 9, 4, '2026-11-16 12:00:42.192632+00', NULL, 'c87f7a1c-91ed-438e-9b43-1be56fe9c481', '\x0039ffc8d516000000950494a36f3236a36f3237a36f3138a36f3234c0c0c07b226f72646572223a226f3236222c226e223a32362c227473223a313639393939393230382e3132327d0a7b226f72646572223a226f3237222c226e223a32372c227473223a313639393939393230382e3538347d0a7b226f72646572223a226f3138222c226e223a31382c227473223a313639393939393230382e3934327d0a7b226f72646572223a226f3234222c226e223a32342c227473223a313639393939393230392e3532397d'),
	(3, 12, 1, '2026-11-16 12:00:42.197101+00', NULL, '9e9dd461-b8eb-41f4-87d8-391395d0fd84', '\x001858f3f60a000000950191a36f3335c0c0c07b226f72646572223a226f3335222c226e223a33352c227473223a313639393939393231302e3737387d'),
	(4, 11, 2, '2026-11-16 12:00:42.197122+00', NULL, '9e9dd461-b8eb-41f4-87d8-391395d0fd84', '\x0093da46920e000000950292a36f3339a36f3330c0c0c07b226f72646572223a226f3339222c226e223a33392c227473223a313639393939393231312e3531317d0a7b226f72646572223a226f3330222c226e223a33302c227473223a313639393939393231322e3138387d'),
	(3, 18, 6, '2026-11-16 12:00:42.199867+00', NULL, 'b3167980-bc25-408f-8446-91234e7bf4c4', '\x0128b52ffd642300fd030022c7161ba0276dffe83856712b675f1a1cffbf8e4aaddcb410bce0dfe76148c7f512130ffe7efa2322ae1d73aaf99bdbd9018e4d35766c7777f3a02a18aae45111aa549e0b953110185c87945222f78f1b915b8fdb8e3bcf9d28108490400f00606280617060e03118303806981860181c0a3a039900b2061d83818d33d41926352e55'),
	(4, 13, 2, '2026-11-16 12:00:42.199874+00', NULL, 'b3167980-bc25-408f-8446-91234e7bf4c4', '\x009603b45c0e000000950292a36f3435a36f3437c0c0c07b226f72646572223a226f3435222c226e223a34352c227473223a313639393939393231332e3435377d0a7b226f72646572223a226f3437222c226e223a34372c227473223a313639393939393231342e3735387d'),
	(4, 16, 3, '2026-11-16 12:00:51.487718+00', NULL, '1aa08f2d-e81e-48ce-9533-dbbcde9d383b', '\x008f822f0b12000000950393a36f3434a36f3531a36f3530c0c0c07b226f72646572223a226f3434222c226e223a34342c227473223a313639393939393231352e3238397d0a7b226f72646572223a226f3531222c226e223a35312c227473223a313639393939393231352e3636357d0a7b226f72646572223a226f3530222c226e223a35302c227473223a313639393939393231372e3238357d'),
	(3, 23, 5, '2026-11-16 12:00:51.490394+00', NULL, '15ddbc20-503b-431e-9d24-f388613c15c7', '\x001f9c159b1a000000950595a36f3633a36f3632a36f3537a36f3639a36f3734c0c0c07b226f72646572223a226f3633222c226e223a36332c227473223a313639393939393231372e3938367d0a7b226f72646572223a226f3632222c226e223a36322c227473223a313639393939393231382e3132327d0a7b226f72646572223a226f3537222c226e223a35372c227473223a313639393939393231382e3632387d0a7b226f72646572223a226f3639222c226e223a36392c227473223a313639393939393231382e3934367d0a7b226f72646572223a226f3734222c226e223a37342c227473223a313639393939393231392e3433347d'),
	(4, 18, 2, '2026-11-16 12:00:51.490404+00', NULL, '15ddbc20-503b-431e-9d24-f388613c15c7', '\x0003be134f0e000000950292a36f3636a36f3732c0c0c07b226f72646572223a226f3636222c226e223a36362c227473223a313639393939393231392e3731347d0a7b226f72646572223a226f3732222c226e223a37322c227473223a313639393939393231392e3936367d'),
	(3, 26, 3, '2026-11-16 12:00:51.492205+00', NULL, '8dd4cd7c-8764-46b9-bb7d-02f910e49291', '\x00464203cd12000000950393a36f3638a36f3832a36f3830c0c0c07b226f72646572223a226f3638222c226e223a36382c227473223a313639393939393232302e3931357d0a7b226f72646572223a226f3832222c226e223a38322c227473223a313639393939393232322e30387d0a7b226f72646572223a226f3830222c226e223a38302c227473223a313639393939393232322e3338357d'),
	(4, 20, 2, '2026-11-16 12:00:51.492214+00', NULL, '8dd4cd7c-8764-46b9-bb7d-02f910e49291', '\x00b1f6c2100e000000950292a36f3730a36f3834c0c0c07b226f72646572223a226f3730222c226e223a37302c227473223a313639393939393232302e3932327d0a7b226f72646572223a226f3834222c226e223a38342c227473223a313639393939393232322e33347d'),
	(4, 26, 6, '2026-11-16 12:00:51.494058+00', NULL, 'f7ddab8c-c691-45de-b751-ac542a9cc5d4', '\x0128b52ffd642200f50300e286161bb0271d0c275a4a1a1e4d60947818053b49e94992c91e714d2308ec89c4c320beeffff232913be77edb616c34061276c6ccfeff7750190e6560a22a9451985aa812c220d142a4947cdd4bdd83ba475da32ea6ee02a028a508020f00a0633060700c3031c0303806cc032e039d007f20634ec90ff40646639aa1a29fdaf45a'),
	(3, 30, 4, '2026-11-16 12:00:51.496375+00', NULL, '36341a11-3dfa-4ce6-a06e-1788550132ed', '\x0093cfd8d816000000950494a36f3838a36f3935a36f3839a36f3934c0c0c07b226f72646572223a226f3838222c226e223a38382c227473223a313639393939393232352e34327d0a7b226f72646572223a226f3935222c226e223a39352c227473223a313639393939393232362e3139337d0a7b226f72646572223a226f3839222c226e223a38392c227473223a313639393939393232362e3332357d0a7b226f72646572223a226f3934222c226e223a39342c227473223a313639393939393232372e3030387d'),
	(4, 27, 1, '2026-11-16 12:00:51.496385+00', NULL, '36341a11-3dfa-4ce6-a06e-1788550132ed', '\x00a10e2f230b000000950191a46f313031c0c0c07b226f72646572223a226f313031222c226e223a3130312c227473223a313639393939393232372e3139317d'),
	(4, 28, 1, '2026-11-16 12:00:51.498629+00', NULL, 'f178220c-1f5c-4c20-9b55-137ecff73064', '\x005247d69f0b000000950191a46f313038c0c0c07b226f72646572223a226f313038222c226e223a3130382c227473223a313639393939393232392e3132377d'),
	(4, 32, 4, '2026-11-16 12:00:57.836534+00', NULL, 'f55ff7cf-50b3-4e3e-80b3-e7898c5c32f8', '\x00f7ab901e1a000000950494a46f313033a46f313030a46f313137a46f313136c0c0c07b226f72646572223a226f313033222c226e223a3130332c227473223a313639393939393233302e3038347d0a7b226f72646572223a226f313030222c226e223a3130302c227473223a313639393939393233302e3133357d0a7b226f72646572223a226f313137222c226e223a3131372c227473223a313639393939393233302e3630337d0a7b226f72646572223a226f313136222c226e223a3131362c227473223a313639393939393233302e3735367d'),
	(3, 33, 3, '2026-11-16 12:00:57.836546+00', NULL, 'f55ff7cf-50b3-4e3e-80b3-e7898c5c32f8', '\x000431fa2e15000000950393a46f313133a46f313139a46f313037c0c0c07b226f72646572223a226f313133222c226e223a3131332c227473223a313639393939393233302e3732367d0a7b226f72646572223a226f313139222c226e223a3131392c227473223a313639393939393233312e3234357d0a7b226f72646572223a226f313037222c226e223a3130372c227473223a313639393939393233322e3031347d'),
	(3, 35, 2, '2026-11-16 12:00:57.838995+00', NULL, '913ad7e3-d214-405c-bdd9-901b57d7f7fc', '\x008fb5c05b10000000950292a46f313234a46f313331c0c0c07b226f72646572223a226f313234222c226e223a3132342c227473223a313639393939393233342e3233397d0a7b226f72646572223a226f313331222c226e223a3133312c227473223a313639393939393233342e3938317d'),
	(4, 34, 2, '2026-11-16 12:00:57.841533+00', NULL, 'f2185d6d-cf4c-49d4-88d2-4749af7f2e03', '\x003ae7f4a210000000950292a46f313336a46f313337c0c0c07b226f72646572223a226f313336222c226e223a3133362c227473223a313639393939393233362e3739367d0a7b226f72646572223a226f313337222c226e223a3133372c227473223a313639393939393233362e3838317d');
-- Data for Name: chunks_3_1; Type: TABLE DATA; Schema: penstock; Owner: -
INSERT INTO penstock.chunks_3_1 VALUES
	(6, 1, 1, '2026-11-16 12:00:57.890826+00', NULL, '6f9ee671-00c6-493e-a59b-3a59f488cbb4', '\x00ee94069508000000950191a16bc0c0c07b2276657273696f6e223a20317d');
-- Data for Name: chunks_4_1; Type: TABLE DATA; Schema: penstock; Owner: -
INSERT INTO penstock.chunks_4_1 VALUES
	(39, 1, 1, '2026-11-16 12:00:57.911504+00', NULL, 'c6324c16-8530-4c71-9b9e-66fe4f7fa421', '\x008a25772d060000009501c0c0c0c07b22736571223a307d'),
	(40, 1, 1, '2026-11-16 12:00:57.911589+00', NULL, 'c6324c16-8530-4c71-9b9e-66fe4f7fa421', '\x008a25772d060000009501c0c0c0c07b22736571223a307d'),
	(39, 2, 1, '2026-11-16 12:00:57.912382+00', NULL, 'c732fdd6-6fe2-4a9c-9723-d499fb1e59ca', '\x00cb146c34060000009501c0c0c0c07b22736571223a317d'),
	(40, 2, 1, '2026-11-16 12:00:57.91239+00', NULL, 'c732fdd6-6fe2-4a9c-9723-d499fb1e59ca', '\x00cb146c34060000009501c0c0c0c07b22736571223a317d'),
	(39, 3, 1, '2026-11-16 12:00:57.912865+00', NULL, '1b39c320-8d3d-46d4-b45b-579ea99e6382', '\x000847411f060000009501c0c0c0c07b22736571223a327d'),
	(40, 3, 1, '2026-11-16 12:00:57.912872+00', NULL, '1b39c320-8d3d-46d4-b45b-579ea99e6382', '\x000847411f060000009501c0c0c0c07b22736571223a327d'),
	(39, 4, 1, '2026-11-16 12:00:57.913412+00', NULL, '4e56b09b-9c32-41d1-ae96-e983160849a2', '\x0049765a06060000009501c0c0c0c07b22736571223a337d'),
	(40, 4, 1, '2026-11-16 12:00:57.91342+00', NULL, '4e56b09b-9c32-41d1-ae96-e983160849a2', '\x0049765a06060000009501c0c0c0c07b22736571223a337d'),
	(39, 5, 1, '2026-11-16 12:00:57.913855+00', NULL, '92b5aefc-8e7c-4cf5-a2e2-dfcd196e46b3', '\x008ee01b49060000009501c0c0c0c07b22736571223a347d'),
	(40, 5, 1, '2026-11-16 12:00:57.913863+00', NULL, '92b5aefc-8e7c-4cf5-a2e2-dfcd196e46b3', '\x008ee01b49060000009501c0c0c0c07b22736571223a347d'),
	(39, 6, 1, '2026-11-16 12:00:57.914312+00', NULL, 'ff4f7a18-c7a9-41b2-b938-2ba030e2b227', '\x00cfd10050060000009501c0c0c0c07b22736571223a357d'),
	(40, 6, 1, '2026-11-16 12:00:57.914319+00', NULL, 'ff4f7a18-c7a9-41b2-b938-2ba030e2b227', '\x00cfd10050060000009501c0c0c0c07b22736571223a357d'),
	(39, 7, 1, '2026-11-16 12:00:57.914759+00', NULL, '8d71968e-71ae-4348-a931-9950d801ad5b', '\x000c822d7b060000009501c0c0c0c07b22736571223a367d'),
	(40, 7, 1, '2026-11-16 12:00:57.914766+00', NULL, '8d71968e-71ae-4348-a931-9950d801ad5b', '\x000c822d7b060000009501c0c0c0c07b22736571223a367d'),
	(39, 8, 1, '2026-11-16 12:00:57.915238+00', NULL, '39b20188-f325-44ce-9459-d4d7a13cbd81', '\x004db33662060000009501c0c0c0c07b22736571223a377d'),
	(40, 8, 1, '2026-11-16 12:00:57.915246+00', NULL, '39b20188-f325-44ce-9459-d4d7a13cbd81', '\x004db33662060000009501c0c0c0c07b22736571223a377d');
-- Data for Name: chunks_5_1; Type: TABLE DATA; Schema: penstock; Owner: -
INSERT INTO penstock.chunks_5_1 VALUES
	(41, 2, 2, '2026-11-16 12:00:59.997535+00', NULL, 'a0b6b8e1-8f0f-4c01-b65a-db7c160d21d9', '\x00a56788de060000009502c0c0c0c07b22736571223a307d0a7b22736571223a317d'),
	(42, 3, 3, '2026-11-16 12:00:59.997535+00', NULL, 'a0b6b8e1-8f0f-4c01-b65a-db7c160d21d9', '\x000699d6b4060000009503c0c0c0c07b22736571223a307d0a7b22736571223a317d0a7b22736571223a327d'),
	(41, 3, 1, '2026-11-16 12:01:01.074425+00', NULL, 'cea276f9-9f18-408c-a063-13ba420d56ae', '\x000847411f060000009501c0c0c0c07b22736571223a327d');
-- Data for Name: chunks_6_1; Type: TABLE DATA; Schema: penstock; Owner: -
INSERT INTO penstock.chunks_6_1 VALUES
	(7, 3, 3, '2026-11-16 12:00:51.094324+00', NULL, '75943f69-40a9-4618-a43d-7c64050ce079', '\x0128b52ffd649101ad0700e28e2f2590b739ff57eedf0f1b632f52032ebdb1f9494674ec9f8b94492629539297963c9df57e5d778ef6bab83fb12f6ff6dbbf9226b5aeaa75bff6b3e228fcba4a756b66bd8a3566afac795d59f2a4dfeb2d2f031c6da9b77d18844102f12c4d42919834fff677f5ac7d57997a0c03e1494c9e29eddec71c24260b1d669398b456e68e0e73f120075a4bc3e4404a2e25c74ca0f6b07b684e9ce83021c6839e8286b334894662b2582434e8301518452e4451a438cae32def11310034200822101500a013815b5773141806084840ea00f702068003c20799b5b9566632d68ac3ec9680a0110b577d6919c0e2a93a51c1432294332c6a79cc'),
	(12, 1, 1, '2026-11-16 12:00:51.094378+00', NULL, '75943f69-40a9-4618-a43d-7c64050ce079', '\x007702f65e0a000000950191a3637964c0c0c07b226b657922203a2022637964222c202277696e646f775f737461727422203a2022323032332d31312d31345432323a30303a30302b30303a3030222c202277696e646f775f656e6422203a2022323032332d31312d31345432323a30303a30352b30303a3030222c2022746f74616c22203a203234342c20226e22203a20342c20226d65616e22203a2036312c202273707265616422203a2034392e35393234353537343334353632352c20226b696e647322203a20342c20226869676865737422203a203133312e367d'),
	(7, 6, 3, '2026-11-16 12:00:51.219835+00', NULL, '5312a9ee-b5ab-42bb-93fb-6698fcdcae56', '\x0128b52ffd64bd01d50700424f3025a0a739ffe8b8adceb6bfc1c82ea3b5bb90e52d251de05d6e29a54c29259acd977a512f27488cb5daae94f2fdf5cd76b5e5dabf92a5dd547b757e055212d7d67c7997e2f6ebce94b695bc3e73f2eaef6f7919c060ae4c71c4200c1a44b43c4d221161c5dc99b3d5bb5c177b8c02214a44d872a6cf1e739088383acc2711e1d6ef4687e93c0992969787c95db73ba0d6edba6e82e703f3c17b3bd1614a8a2745050b68799a4522e238090f3a4c0526910bd3342990d278cb6b4c0c000dc77108041500d08958e3d6f03a05cc054421201dc0e96fc3ac802c4057ba6d02a019d2b6e245bb852a68b8e1923885bedc0cb6f694724edc54146c0a9360'),
	(12, 2, 1, '2026-11-16 12:00:51.219846+00', NULL, '5312a9ee-b5ab-42bb-93fb-6698fcdcae56', '\x0071bd5d3b0a000000950191a3637964c0c0c07b226b657922203a2022637964222c202277696e646f775f737461727422203a2022323032332d31312d31345432323a30303a30352b30303a3030222c202277696e646f775f656e6422203a2022323032332d31312d31345432323a30303a31302b30303a3030222c2022746f74616c22203a203738302e35382c20226e22203a20382c20226d65616e22203a2039372e353732352c202273707265616422203a2035382e31393234313839333433333030322c20226b696e647322203a20382c20226869676865737422203a203138382e37347d'),
	(7, 12, 6, '2026-11-16 12:00:51.961288+00', NULL, 'e8898140-5e2a-4edc-88f5-3ca31681123c', '\x0128b52ffd647404dd0b00565642298027491b3300c6ddcce88be841b4be446bd12f36aee61b1dc634f4cade4922f7ec0f45f689c0b9630346003a002e000739289130148c2f0d83cc10b301768819824820ddc1dd41a2213ac8410c8584b128b0a0581ac4023a472291a039c8410a9804b4a0d150144a43b2240d8d0600181c0e070101d577b9a9f8992c090ac0905cd9b760100c2010164b834840e750bd4ed7fc8f99b59c300a0816e81cab969538610ea073e8410e6ad03912d7ed017d5eb3e294ba953a1b2b311a1eb7de49b99fb44fdbceaef4bc9765ddca85c78a4279d76e225f679ba6beb5ad77a70cc74a664ba9bc8bada7af6be3295a7dd7f08d65e9ad6f3efbfb89653fe5bad6abfb0ddf5c98f93f99d702342030839120953c01db38d20609c7309728130c103f06b29c8ecc72260234a335de9a4e3088cdf974626ee100ac25de6f4970421c16680d0272c1cf85f71f02aa9a9b28643a38ddb1e000d6818d3851f9c604c118e27671a3bd254bd370f5927885decd66136fd4d1714088305b02bafc2bb1'),
	(12, 4, 2, '2026-11-16 12:00:51.961318+00', NULL, 'e8898140-5e2a-4edc-88f5-3ca31681123c', '\x0128b52ffd64bb008d0600128c2825a0276dffe838f0afb6c9caa49d6db29a20cb9d248dea7c7f77ef945252a134a90fc5fb97048cfee4fecb1b6b7fa6daae7595fe194b8d3d27c5bead02182b113466e2e14039307051109ae8d7bfdd9d1baf95baf9458502a389d46aa9975f4cd0448b267296d476ba5484d7241a0597b8eb760796ddaeeb2e78469811efed46f11ac66091808bb2d0440a9d44d3a53a11a10bcff34027694027693000341cc721101100d00957e382d5c807515ccdab41820162c1dad93013252068c4c2d59706c714166ce2a93a8a2a8eaf30f53c26d787'),
	(7, 15, 3, '2026-11-16 12:00:52.147933+00', NULL, '6c4523e2-6cf0-4434-a9bc-1bc7bb11e52c', '\x0128b52ffd64a701f50700f2ce2f2590b739ff57eedf0f1b632f52032ebdb1f9494674ec9f8b4c494a29654a97963c9df57e5d778ef5daca59fb5abd782dc6962ffdb4daebbbbb3e37c5515c9da5f4eccdd97ab6ffacac1a5ba59cba55b1f49697010eb59a1a3f0cc22081789626a1484cfe37ed7bf36557ab9f1ec3407812136e4dcd8f39484c9ac444b9f62b74988b0739d05a1a2677ddeec0b6db75dd048a0fcc87d4db890e13623ce82968384b936824268b4542830e538151e44214458aa33cdef21e11034003822002011800d00958e3c2d51c0846b80da10948073808743770fb36c7c57d0a0e0302126b73a9cce4ab157f995bfa4ae3154ebdb432a60860134fd57122acccbe3e50d8'),
	(12, 5, 1, '2026-11-16 12:00:52.147943+00', NULL, '6c4523e2-6cf0-4434-a9bc-1bc7bb11e52c', '\x006c0e665d0a000000950191a3637964c0c0c07b226b657922203a2022637964222c202277696e646f775f737461727422203a2022323032332d31312d31345432323a30303a32302b30303a3030222c202277696e646f775f656e6422203a2022323032332d31312d31345432323a30303a32352b30303a3030222c2022746f74616c22203a203931312e34382c20226e22203a20372c20226d65616e22203a203133302e323131343238353731343238353731343238353731343238362c202273707265616422203a2036362e383630393833343937373434392c20226b696e647322203a20372c20226869676865737422203a203138382e33357d');
-- Data for Name: chunks_7_1; Type: TABLE DATA; Schema: penstock; Owner: -
INSERT INTO penstock.chunks_7_1 VALUES
	(15, 2, 2, '2026-11-16 12:00:54.462306+00', NULL, '76123147-e609-4c6d-a110-f96e8f2b63d7', '\x0128b52ffd64190005040062c71920a0291dff3f57e3e6044629babb3f57f2bf20db6eebfe9204846952bf72b6bb038e79fd76a7a50a3b680adcba93ca55608a4a31687afdb6308b3bb94c34e64e1f202ee2aa22542699094151eff59dc6e2380ef1facf9d9ae6d1bc3e43f11cf2de7b80084228100800809640de2f260652ed20650ef00aa4d47cae0205a8c5dfa5'),
	(17, 4, 4, '2026-11-16 12:00:54.46238+00', NULL, '76123147-e609-4c6d-a110-f96e8f2b63d7', '\x0128b52ffd644501a50500b28921258025ce013300d19599495baf7f48940256c2c1e1bfaf9271ad1b11abb54d938e0c61206801935347ffb9d72ac96b0e2ad3d5d5973c04eea1ee606f5713650f4e661226782fe43945595375f49fc601b8d7a488c7b9d70dadc5d6e2eee15043d570dbf68e3e24d04003971cfde85e978bbca31f90882e5555359949c94552048382a2280a011100297302fa0292098e60acf7a6200e3e164841b01018185037cc41303ba0d9067805526a32e542234a1deb12db2f'),
	(22, 2, 2, '2026-11-16 12:00:54.462384+00', NULL, '76123147-e609-4c6d-a110-f96e8f2b63d7', '\x0128b52ffd642500350400c2471b2180491d3300f1899192df30064dcd82efa6ef531232ca1f2511e95169012711e90ed5e2f5a3bb29c8240ba319a832efd6a04149b4f1fad10329ee56252282eef601e222aeeaa19048264250d47b7d89f1488d535e7fbadb9fe3eef51789e9d4755dcf71d6739ce5003c18638208008096405e64cc214809634e054008a4d4905cc50c0b68a92e');
-- Data for Name: chunks_8_1; Type: TABLE DATA; Schema: penstock; Owner: -
INSERT INTO penstock.chunks_8_1 VALUES
	(28, 1, 1, '2026-11-16 12:00:55.542842+00', NULL, 'b4be2ca8-3ecd-4806-85b6-6544363c440a', '\x00835d874b0a000000950191a3637964c0c0c07b226b657922203a2022637964222c202277696e646f775f737461727422203a2022323032332d31312d31345432323a30303a30312e3532352b30303a3030222c202277696e646f775f656e6422203a2022323032332d31312d31345432323a30303a30342e3333352b30303a3030222c2022746f74616c22203a203232342e39352c20226e22203a20337d'),
	(23, 3, 3, '2026-11-16 12:00:55.542902+00', NULL, 'b4be2ca8-3ecd-4806-85b6-6544363c440a', '\x0128b52ffd64b70035050012481d2290c539ff974fb11fd2369709f3e296432699fbe792249996c8942e17394dd4e2a17612afc58bd945bd51cab8bb7337cacfc37002c92526beba540119e6f30f7aab5bbd396797ed121a5f55cb7659b76161855951bdfd14ff1687086a0e112526f9ed131966c349a4639aa66f1ff008002008320812001063061430957c0153d95866005a0ea381541b164c7d180b5d6c023185c7bc016c6faaeaaa2ae6774ac655e8d109f2f9'),
	(23, 7, 4, '2026-11-16 12:00:55.685953+00', NULL, 'e140a681-acfe-483e-b5ce-08cc71472a85', '\x0128b52ffd644401fd0500c2c9202190b90dff572d802f3664da562d43a5b03bce888bdc6c29534a974dde77965f170950738bb27f53c7dfdadcebd59f9767ea983e2f2fbaabad5d7d76aedf340a1980a44a095b75f7f4926ae074a6f76a7394cceedb1d346beaf6edbe6ec2628559f1de9e08381385c789d2f0a8942818a14a2fa90573508c288a60848f06c0812088201600801428c054dc00cc7aba101c66eec31005129dc34c92871dec30af0689064c7d180b5d6c023185c7bc016c702ae5aacab23b6f9ea17c01d950d72d'),
	(28, 2, 1, '2026-11-16 12:00:55.685969+00', NULL, 'e140a681-acfe-483e-b5ce-08cc71472a85', '\x00a7e9f69e0a000000950191a3637964c0c0c07b226b657922203a2022637964222c202277696e646f775f737461727422203a2022323032332d31312d31345432323a30303a30342e3738342b30303a3030222c202277696e646f775f656e6422203a2022323032332d31312d31345432323a30303a31332e3538382b30303a3030222c2022746f74616c22203a20313030352e33362c20226e22203a2031317d'),
	(23, 9, 2, '2026-11-16 12:00:55.826841+00', NULL, '3a578009-cdfb-4166-a626-9b8b0ba6fff3', '\x0128b52ffd6425009d0400e2871c21a03907ff588fd4a16d2e93cca52d79250baaeb692fb7a42d2548f2a5fe6afa430651b32db456db18d656bd7b0d444f3321f432b3a4a73a0f1fd89ab7dd6b94d99907ac797939b3af6568a528a52c8b97a6a742c5c3c5017adc43409a89e3305e7a6aa349a823c6f8ee23f10180a49404010b0050d4614a886a1b80a91063c10b431ea6f0983780ed4d559d53611505b879b370'),
	(28, 3, 1, '2026-11-16 12:00:55.826851+00', NULL, '3a578009-cdfb-4166-a626-9b8b0ba6fff3', '\x002abbf9700a000000950191a3637964c0c0c07b226b657922203a2022637964222c202277696e646f775f737461727422203a2022323032332d31312d31345432323a30303a31362e3231342b30303a3030222c202277696e646f775f656e6422203a2022323032332d31312d31345432323a30303a32372e3134392b30303a3030222c2022746f74616c22203a20313332352e37332c20226e22203a2031327d');
-- Data for Name: chunks_9_1; Type: TABLE DATA; Schema: penstock; Owner: -
INSERT INTO penstock.chunks_9_1 VALUES
	(31, 9, 9, '2026-11-16 12:00:56.886354+00', NULL, '3faf8c2d-4578-4806-ba92-a85c1389d292', '\x00c8cf587e1b000000950999a3616461a3626f62a3616461c0a3616461c0c0c0c0c0c0c07b226964223a226f36222c226e223a367d0a7b226964223a226f37222c226e223a377d0a7b226964223a226f39222c226e223a397d0a7b226964223a226f3130222c226e223a31307d0a7b226964223a226f3132222c226e223a31327d0a7b226964223a226f3134222c226e223a31347d0a7b226964223a226f30222c226e223a307d0a7b226964223a226f34222c226e223a347d0a7b226964223a226f3236222c226e223a32367d'),
	(36, 8, 8, '2026-11-16 12:00:56.886456+00', NULL, '3faf8c2d-4578-4806-ba92-a85c1389d292', '\x0036287b3a26000000950898a3637964a3637964a3637964a3637964a3637964a3637964a3637964a3637964c0c0c07b226964223a226f31222c226e223a317d0a7b226964223a226f35222c226e223a357d0a7b226964223a226f3137222c226e223a31377d0a7b226964223a226f3138222c226e223a31387d0a7b226964223a226f3230222c226e223a32307d0a7b226964223a226f3232222c226e223a32327d0a7b226964223a226f3233222c226e223a32337d0a7b226964223a226f3234222c226e223a32347d'),
	(31, 16, 7, '2026-11-16 12:00:57.15613+00', NULL, '25297ee1-2392-4cba-9f1e-697fcf11c8b9', '\x007f9449e31c000000950797a3616461a3626f62a3626f62a3616461a3626f62c0c0c0c0c07b226964223a226f3231222c226e223a32317d0a7b226964223a226f3237222c226e223a32377d0a7b226964223a226f3330222c226e223a33307d0a7b226964223a226f3335222c226e223a33357d0a7b226964223a226f3336222c226e223a33367d0a7b226964223a226f3339222c226e223a33397d0a7b226964223a226f3733222c226e223a37337d'),
	(36, 12, 4, '2026-11-16 12:00:57.156148+00', NULL, '25297ee1-2392-4cba-9f1e-697fcf11c8b9', '\x00ea892cee16000000950494a3637964a3637964a3637964a3637964c0c0c07b226964223a226f3239222c226e223a32397d0a7b226964223a226f3435222c226e223a34357d0a7b226964223a226f3537222c226e223a35377d0a7b226964223a226f3632222c226e223a36327d'),
	(31, 37, 21, '2026-11-16 12:00:57.390738+00', NULL, '45f8009d-d14f-4a66-9177-c7ef1e689618', '\x0128b52ffd64f6002505005246161dc0251d3ff05f83de2440606eca13c3acffdd444ab9d3de79056103eeec4b2a7333e13c3dfd5342e8f2b2285411152a445c0ba15bb754337ff5a7a72b60499241636e26ac14332302137677d7408c3d94c370cce1148c31812c2090835607060fbc5996e63233325f830fdc2c4b73993592afc1076e368bb9cc1ac9b7c103379bc5dccc8c2cdfdb0685941993dd72684045486f66d1927480425300b6b8e6d017ef085c28'),
	(36, 16, 4, '2026-11-16 12:00:57.390748+00', NULL, '45f8009d-d14f-4a66-9177-c7ef1e689618', '\x0072fd710916000000950494a3637964a3637964a3637964a3637964c0c0c07b226964223a226f32222c226e223a6e756c6c7d0a7b226964223a226f3739222c226e223a37397d0a7b226964223a226f3832222c226e223a38327d0a7b226964223a226f3839222c226e223a38397d'),
	(31, 60, 23, '2026-11-16 12:00:57.615262+00', NULL, '64b3b894-2b54-4351-9918-95c011eb542f', '\x0128b52ffd644001050500a285141dc0251d3fe82e02d43400e010ca13c3c57f4026b1a59432a173bec23d19b868dfb973bbaa9932d9c8c86a75427754137331a14d802149084a618a05ec6eb1c2908115feffff8fe530100371530973a82a4129205083e8140e6060713290bb90f58ab47cf866bc5916e66466dad16c31df63f00efc71e301d1cc27dffd219a7de287d148b39ff8aecfce5848c8dd9d6d5618409cc068731c783adc322585ba8426'),
	(36, 19, 3, '2026-11-16 12:00:57.615273+00', NULL, '64b3b894-2b54-4351-9918-95c011eb542f', '\x00e8050b7712000000950393a3637964a3637964a3637964c0c0c07b226964223a226f3331222c226e223a6e756c6c7d0a7b226964223a226f3337222c226e223a6e756c6c7d0a7b226964223a226f3338222c226e223a6e756c6c7d'),
	(31, 68, 8, '2026-11-16 12:00:57.816729+00', NULL, '1efe5821-0ecb-41ed-8d46-a3af92de7671', '\x007d06654f23000000950898a3626f62a3616461a3626f62a3616461a3616461a3616461a3626f62c0c0c0c07b226964223a226f3533222c226e223a6e756c6c7d0a7b226964223a226f3538222c226e223a6e756c6c7d0a7b226964223a226f3539222c226e223a6e756c6c7d0a7b226964223a226f3630222c226e223a6e756c6c7d0a7b226964223a226f3631222c226e223a6e756c6c7d0a7b226964223a226f3635222c226e223a6e756c6c7d0a7b226964223a226f3637222c226e223a6e756c6c7d0a7b226964223a226f3534222c226e223a6e756c6c7d'),
	(36, 20, 1, '2026-11-16 12:00:57.816742+00', NULL, '1efe5821-0ecb-41ed-8d46-a3af92de7671', '\x003bdcd1ff0a000000950191a3637964c0c0c07b226964223a226f3634222c226e223a6e756c6c7d');
-- Data for Name: cursors; Type: TABLE DATA; Schema: penstock; Owner: -
INSERT INTO penstock.cursors VALUES
	(1, 1, 0),
	(1, 2, 0),
	(2, 7, 0),
	(2, 8, 0),
	(2, 9, 0),
	(2, 10, 0),
	(2, 11, 0),
	(2, 12, 0),
	(2, 13, 0),
	(2, 14, 0),
	(3, 1, 0),
	(3, 2, 0),
	(4, 1, 0),
	(4, 2, 0),
	(5, 1, 0),
	(5, 2, 0),
	(6, 3, 0),
	(6, 4, 0),
	(7, 39, 0),
	(7, 40, 0),
	(8, 41, 0),
	(8, 42, 0);
-- Data for Name: cycles; Type: TABLE DATA; Schema: penstock; Owner: -
INSERT INTO penstock.cycles VALUES
	(1, 1, 1794830447462, '\x9401c39298010101a130c2919301001dc0c098020101a131c29193010015c0c091920001', 50, '2026-11-16 12:00:48.338473+00', '2026-11-16 12:00:48.339851+00', '2026-11-16 12:00:51.095351+00', 50, 4, 4, 0, 0, '{"copy": 1.9, "merge": 5.0, "spark": 2724.4, "append": 2.7, "advance": 6.1, "prepare": 14.3, "dead letters": 0.0}', NULL, '2026-11-16 12:00:42.182023+00', '2023-11-14 22:00:09.787+00', 0),
	(1, 2, 1794830447462, '\x9402c39198010101a130c29193011d27cf00060a23e9325538cf00060a23e9048e78919100', 10, '2026-11-16 12:00:51.098797+00', '2026-11-16 12:00:51.099467+00', '2026-11-16 12:00:51.220482+00', 10, 4, 4, 0, 0, '{"copy": 1.2, "merge": 3.2, "spark": 111.5, "append": 1.0, "advance": 2.4, "prepare": 1.2, "dead letters": 0.0}', NULL, '2026-11-16 12:00:42.193526+00', '2023-11-14 22:00:13.236+00', 0),
	(1, 3, 1794830451538, '\x9403c39298010101a130c29193012748cf00060a23e96a3db8cf00060a23e9392f2098020101a131c29193011526cf00060a23e966f5e0cf00060a23e9392f2091920001', 50, '2026-11-16 12:00:51.676634+00', '2026-11-16 12:00:51.677858+00', '2026-11-16 12:00:51.962367+00', 50, 8, 8, 0, 0, '{"copy": 1.3, "merge": 6.7, "spark": 259.2, "append": 3.0, "advance": 5.5, "prepare": 7.8, "dead letters": 0.0}', NULL, '2026-11-16 12:00:51.483758+00', '2023-11-14 22:00:24.472+00', 0),
	(1, 4, 1794830451538, '\x9404c39198010101a130c29193014852cf00060a23ea126880cf00060a23e9e4a1c0919100', 10, '2026-11-16 12:00:51.966546+00', '2026-11-16 12:00:51.967395+00', '2026-11-16 12:00:52.148599+00', 10, 4, 4, 0, 0, '{"copy": 1.3, "merge": 5.1, "spark": 166.3, "append": 0.8, "advance": 3.2, "prepare": 3.9, "dead letters": 0.0}', NULL, '2026-11-16 12:00:51.494903+00', '2023-11-14 22:00:27.918+00', 0),
	(3, 1, 1794830452324, '\x9401c39298010103a130c29193010019c0c098020103a131c29193010019c0c091920001', 50, '2026-11-16 12:00:52.508962+00', '2026-11-16 12:00:52.510439+00', '2026-11-16 12:00:54.302387+00', 50, 0, 0, 0, 0, '{"copy": 1.2, "merge": 3.1, "spark": 1766.4, "append": 0.0, "advance": 7.1, "prepare": 13.1, "dead letters": 0.0}', NULL, '2026-11-16 12:00:42.182023+00', '2023-11-14 22:00:09.185+00', 0),
	(3, 2, 1794830452324, '\x9402c39298010103a130c2919301193ecf00060a23e92925a8cf00060a23e8fb5ee898020103a131c29193011926cf00060a23e9a5d3a0cf00060a23e8fb5ee891920001', 50, '2026-11-16 12:00:54.308129+00', '2026-11-16 12:00:54.310703+00', '2026-11-16 12:00:54.462934+00', 50, 8, 8, 0, 0, '{"copy": 0.8, "merge": 3.4, "spark": 139.5, "append": 3.7, "advance": 2.3, "prepare": 1.9, "dead letters": 0.0}', NULL, '2026-11-16 12:00:42.193526+00', '2023-11-14 22:00:22.1+00', 0),
	(3, 3, 1794830452324, '\x9403c39198010103a130c29193013e52cf00060a23e9ee36e0cf00060a23e9c07020919100', 20, '2026-11-16 12:00:54.46674+00', '2026-11-16 12:00:54.469258+00', '2026-11-16 12:00:54.583404+00', 20, 0, 0, 0, 0, '{"copy": 0.9, "merge": 1.4, "spark": 108.2, "append": 0.0, "advance": 1.9, "prepare": 1.2, "dead letters": 0.0}', NULL, '2026-11-16 12:00:51.493038+00', '2023-11-14 22:00:27.918+00', 0),
	(4, 1, 1794830454625, '\x9401c39298010104a130c29193010019c0c098020104a131c29193010019c0c091920001', 50, '2026-11-16 12:00:54.679944+00', '2026-11-16 12:00:54.680934+00', '2026-11-16 12:00:55.544176+00', 50, 4, 4, 0, 0, '{"copy": 1.1, "merge": 3.6, "spark": 840.4, "append": 3.0, "advance": 5.5, "prepare": 8.5, "dead letters": 0.0}', NULL, '2026-11-16 12:00:42.182023+00', '2023-11-14 22:00:09.185+00', 0),
	(4, 2, 1794830454625, '\x9402c39298010104a130c2919301193ecf00060a23e92925a8cf00060a23e8fb5ee898020104a131c29193011926cf00060a23e9a5d3a0cf00060a23e8fb5ee891920001', 50, '2026-11-16 12:00:55.547906+00', '2026-11-16 12:00:55.548699+00', '2026-11-16 12:00:55.686663+00', 50, 5, 5, 0, 0, '{"copy": 1.2, "merge": 4.4, "spark": 123.1, "append": 1.5, "advance": 3.4, "prepare": 3.7, "dead letters": 0.0}', NULL, '2026-11-16 12:00:42.193526+00', '2023-11-14 22:00:22.1+00', 0),
	(4, 3, 1794830454625, '\x9403c39198010104a130c29193013e52cf00060a23e9ee36e0cf00060a23e9c07020919100', 20, '2026-11-16 12:00:55.689526+00', '2026-11-16 12:00:55.690141+00', '2026-11-16 12:00:55.827368+00', 20, 3, 3, 0, 0, '{"copy": 0.9, "merge": 2.1, "spark": 129.6, "append": 0.7, "advance": 1.9, "prepare": 1.3, "dead letters": 0.0}', NULL, '2026-11-16 12:00:51.493038+00', '2023-11-14 22:00:27.918+00', 0),
	(5, 1, 1794830455882, '\x9401c39498010105a130c2919301000cc0c098020105a131c2919301000cc0c098030206a130c2919301000dc0c098040206a131c2919301000dc0c0919400010203', 50, '2026-11-16 12:00:56.209684+00', '2026-11-16 12:00:56.210885+00', '2026-11-16 12:00:56.888216+00', 50, 17, 0, 0, 0, '{"copy": 5.5, "merge": 1.0, "spark": 643.2, "append": 4.1, "advance": 11.6, "prepare": 10.3, "dead letters": 0.0}', NULL, '2026-11-16 12:00:42.182023+00', '2023-11-14 22:00:02.054+00', 0),
	(5, 2, 1794830455882, '\x9402c39498010105a130c29193010c18cf00060a23e8bc5630cf00060a23e88e8f7098020105a131c29193010c18cf00060a23e8e55a30cf00060a23e88e8f7098030206a130c29193010d1acf00060a23e9339588cf00060a23e88e8f7098040206a131c29193010d1acf00060a23e9506870cf00060a23e88e8f70919400010203', 50, '2026-11-16 12:00:56.893492+00', '2026-11-16 12:00:56.894468+00', '2026-11-16 12:00:57.156793+00', 50, 11, 0, 0, 0, '{"copy": 1.1, "merge": 1.2, "spark": 247.1, "append": 1.1, "advance": 3.3, "prepare": 7.8, "dead letters": 0.0}', NULL, '2026-11-16 12:00:42.187461+00', '2023-11-14 22:00:08.108+00', 0),
	(5, 3, 1794830455882, '\x9403c39498010105a130c29193011836cf00060a23e918b6a0cf00060a23e8eaefe098020105a131c29193011826cf00060a23e9a114c8cf00060a23e8eaefe098030206a130c29193011a1ecf00060a23e9c4c968cf00060a23e8eaefe098040206a131c29193011a1ccf00060a23e9de9eb0cf00060a23e8eaefe0919400010203', 50, '2026-11-16 12:00:57.161506+00', '2026-11-16 12:00:57.162006+00', '2026-11-16 12:00:57.391265+00', 50, 25, 0, 0, 0, '{"copy": 2.1, "merge": 0.5, "spark": 220.2, "append": 0.7, "advance": 3.3, "prepare": 1.7, "dead letters": 0.0}', NULL, '2026-11-16 12:00:42.193526+00', '2023-11-14 22:00:18.877+00', 0),
	(5, 4, 1794830455882, '\x9404c39198010105a130c29193013652cf00060a23e9bd0908cf00060a23e98f4248919100', 28, '2026-11-16 12:00:57.393802+00', '2026-11-16 12:00:57.394301+00', '2026-11-16 12:00:57.615747+00', 28, 26, 0, 0, 0, '{"copy": 0.9, "merge": 0.5, "spark": 212.1, "append": 0.8, "advance": 2.4, "prepare": 4.3, "dead letters": 0.0}', NULL, '2026-11-16 12:00:51.491256+00', '2023-11-14 22:00:24.008+00', 0),
	(5, 5, 1794830455882, '\x9400c3909190', 0, '2026-11-16 12:00:57.617833+00', '2026-11-16 12:00:57.61828+00', '2026-11-16 12:00:57.81756+00', 0, 9, 0, 0, 0, '{"copy": 0.2, "merge": 0.3, "spark": 193.8, "append": 0.7, "advance": 1.4, "prepare": 2.2, "dead letters": 0.0}', NULL, NULL, '2023-11-14 22:00:24.008+00', 0),
	(6, 1, 1794830457954, '\x9401c39298270407a3616461c39193010004c0c098280407a3626f62c39193010004c0c091920001', 8, '2026-11-16 12:00:59.249166+00', '2026-11-16 12:00:59.845958+00', '2026-11-16 12:00:59.993329+00', 0, 0, 0, 0, 0, '{"spark": 138.2, "prepare": 6.2}', NULL, NULL, NULL, 0),
	(6, 2, 1794830457954, '\x', 0, '2026-11-16 12:00:59.997535+00', '2026-11-16 12:00:59.997535+00', '2026-11-16 12:01:00.02849+00', 5, 5, 0, 0, 0, '{"release": 33.4}', NULL, NULL, NULL, NULL),
	(6, 3, 1794830457954, '\x9403c39298280407a3626f62c39193010408c0c098270407a3616461c39193010407c0c091920001', 7, '2026-11-16 12:01:00.077879+00', '2026-11-16 12:01:00.110683+00', '2026-11-16 12:01:00.186642+00', 0, 0, 0, 0, 0, '{"spark": 74.6, "prepare": 0.6}', NULL, NULL, NULL, 0),
	(6, 4, 1794830457954, '\x', 0, '2026-11-16 12:01:01.074425+00', '2026-11-16 12:01:01.074425+00', '2026-11-16 12:01:01.083926+00', 1, 1, 0, 0, 0, '{"release": 10.0}', NULL, NULL, NULL, NULL);
-- Data for Name: dead_letters; Type: TABLE DATA; Schema: penstock; Owner: -
-- Data for Name: gate_lanes; Type: TABLE DATA; Schema: penstock; Owner: -
INSERT INTO penstock.gate_lanes VALUES
	(6, 40, 'bob', 3, 3, '2026-11-16 12:00:59.997535+00', NULL, NULL, true, 0, 6, '2026-11-16 12:00:59.997535+00', 0),
	(6, 39, 'ada', 3, 3, '2026-11-16 12:01:01.074425+00', NULL, NULL, true, 0, 5, '2026-11-16 12:01:01.074425+00', 0);
-- Data for Name: gate_limits; Type: TABLE DATA; Schema: penstock; Owner: -
INSERT INTO penstock.gate_limits VALUES
	('gated', 'bob', 2, 3, NULL, NULL, NULL, NULL, NULL, '2026-11-16 12:00:57.90023+00');
-- Data for Name: gate_rules; Type: TABLE DATA; Schema: penstock; Owner: -
INSERT INTO penstock.gate_rules VALUES
	(6, 1, 'token_bucket', 100, 100, NULL, NULL, false),
	(6, 2, 'concurrency', 2, NULL, NULL, 'workers', false);
-- Data for Name: gate_states; Type: TABLE DATA; Schema: penstock; Owner: -
INSERT INTO penstock.gate_states VALUES
	(6, 40, 1, 100.000000000, 100.000000000, NULL, 1794830459997535, 97.000000000000000, NULL, NULL, 3.000000000, 0),
	(6, 40, 2, 3.000000000, NULL, NULL, 1794830459997535, NULL, NULL, NULL, 3.000000000, 0),
	(6, 39, 1, 100.000000000, 100.000000000, NULL, 1794830461074425, 99.000000000000000, NULL, NULL, 3.000000000, 0),
	(6, 39, 2, 2.000000000, NULL, NULL, 1794830461074425, NULL, NULL, NULL, 3.000000000, 0);
-- Data for Name: groups; Type: TABLE DATA; Schema: penstock; Owner: -
INSERT INTO penstock.groups OVERRIDING SYSTEM VALUE VALUES
	(1, 1, 'sums', 0, 'beginning', 'sums', 0, '2026-11-16 12:00:47.465423+00', true, '2026-11-16 12:00:47.465378+00'),
	(2, 6, 'delivery', 0, 'beginning', NULL, 0, '2026-11-16 12:00:51.250377+00', true, '2026-11-16 12:00:51.256793+00'),
	(3, 1, 'busy', 0, 'beginning', 'busy', 0, '2026-11-16 12:00:52.326913+00', true, '2026-11-16 12:00:52.326867+00'),
	(4, 1, 'visits', 0, 'beginning', 'visits', 0, '2026-11-16 12:00:54.627586+00', true, '2026-11-16 12:00:54.627553+00'),
	(5, 1, 'pairs', 0, 'beginning', 'pairs', 0, '2026-11-16 12:00:55.885498+00', true, '2026-11-16 12:00:55.885455+00'),
	(6, 2, 'pairs', 0, 'beginning', 'pairs', 0, '2026-11-16 12:00:55.889935+00', true, '2026-11-16 12:00:55.889932+00'),
	(7, 4, 'gated', 0, 'beginning', 'gated', 0, '2026-11-16 12:00:57.957905+00', true, '2026-11-16 12:00:57.95786+00'),
	(8, 5, 'workers', 0, 'beginning', NULL, 0, '2026-11-16 12:00:57.994285+00', true, '2026-11-16 12:01:00.059485+00');
-- Data for Name: history_1; Type: TABLE DATA; Schema: penstock; Owner: -
INSERT INTO penstock.history_1 VALUES
	('', '2023-11-14 22:00:00+00', '2023-11-14 22:00:05+00', 667.390000000000000000, 5, 667.390000000000000000, 5, '{5,133.478,8879.81248}', '{o0,o14,o4,o11,o10}', 196.590000000000000000, '2026-11-16 12:00:51.08163+00', 0),
	('ada', '2023-11-14 22:00:00+00', '2023-11-14 22:00:05+00', 538.060000000000000000, 5, 538.060000000000000000, 5, '{5,107.612,5737.448679999999}', '{o12,o15,o13,o6,o9}', 141.820000000000000000, '2026-11-16 12:00:51.08163+00', 0),
	('bob', '2023-11-14 22:00:00+00', '2023-11-14 22:00:05+00', 283.830000000000000000, 3, 283.830000000000000000, 3, '{3,94.61,3209.3378000000007}', '{o7,o8,o3}', 125.890000000000000000, '2026-11-16 12:00:51.08163+00', 0),
	('cyd', '2023-11-14 22:00:00+00', '2023-11-14 22:00:05+00', 244.000000000000000000, 4, 244.000000000000000000, 4, '{4,61,7378.235}', '{o2,o5,o17,o1}', 131.600000000000000000, '2026-11-16 12:00:51.08163+00', 0),
	('', '2023-11-14 22:00:05+00', '2023-11-14 22:00:10+00', 224.210000000000000000, 3, 224.210000000000000000, 3, '{3,74.73666666666666,11661.780866666666}', '{o26,o34,o28}', 157.370000000000000000, '2026-11-16 12:00:51.213627+00', 0),
	('ada', '2023-11-14 22:00:05+00', '2023-11-14 22:00:10+00', 343.490000000000000000, 3, 343.490000000000000000, 3, '{3,114.49666666666667,9404.596266666666}', '{o32,o33,o21}', 188.390000000000000000, '2026-11-16 12:00:51.213627+00', 0),
	('bob', '2023-11-14 22:00:05+00', '2023-11-14 22:00:10+00', 413.480000000000000000, 5, 413.480000000000000000, 5, '{5,82.696,7180.395519999998}', '{o19,o16,o30,o27,o25}', 132.060000000000000000, '2026-11-16 12:00:51.213627+00', 0),
	('cyd', '2023-11-14 22:00:05+00', '2023-11-14 22:00:10+00', 780.580000000000000000, 8, 780.580000000000000000, 8, '{8,97.5725,23704.50335}', '{o22,o18,o23,o29,o31,o20,o24,o37}', 188.740000000000000000, '2026-11-16 12:00:51.213627+00', 0),
	('', '2023-11-14 22:00:10+00', '2023-11-14 22:00:15+00', 505.840000000000000000, 6, 505.840000000000000000, 6, '{6,84.30666666666667,38134.87613333333}', '{o39,o40,o41,o44,o48,o52}', 193.830000000000000000, '2026-11-16 12:00:51.947033+00', 0),
	('ada', '2023-11-14 22:00:10+00', '2023-11-14 22:00:15+00', 358.470000000000000000, 3, 358.470000000000000000, 3, '{3,119.48999999999998,18319.7342}', '{o35,o49,o56}', 177.950000000000000000, '2026-11-16 12:00:51.947033+00', 0),
	('bob', '2023-11-14 22:00:10+00', '2023-11-14 22:00:15+00', 812.860000000000000000, 9, 812.860000000000000000, 9, '{9,90.31777777777778,25178.66395555555}', '{o36,o42,o43,o46,o47,o50,o51,o53,o55}', 175.720000000000000000, '2026-11-16 12:00:51.947033+00', 0),
	('cyd', '2023-11-14 22:00:10+00', '2023-11-14 22:00:15+00', 205.730000000000000000, 2, 205.730000000000000000, 2, '{2,102.865,15045.92045}', '{o38,o45}', 189.600000000000000000, '2026-11-16 12:00:51.947033+00', 0),
	('', '2023-11-14 22:00:15+00', '2023-11-14 22:00:20+00', 284.290000000000000000, 3, 284.290000000000000000, 3, '{3,94.76333333333332,4609.509066666666}', '{o54,o63,o68}', 132.890000000000000000, '2026-11-16 12:00:51.947033+00', 0),
	('ada', '2023-11-14 22:00:15+00', '2023-11-14 22:00:20+00', 551.170000000000000000, 6, 551.170000000000000000, 6, '{6,91.86166666666665,12618.255883333331}', '{o58,o60,o61,o65,o66,o69}', 140.290000000000000000, '2026-11-16 12:00:51.947033+00', 0),
	('bob', '2023-11-14 22:00:15+00', '2023-11-14 22:00:20+00', 775.020000000000000000, 6, 775.020000000000000000, 6, '{6,129.17,21491.6778}', '{o59,o67,o70,o71,o72,o74}', 183.250000000000000000, '2026-11-16 12:00:51.947033+00', 0),
	('cyd', '2023-11-14 22:00:15+00', '2023-11-14 22:00:20+00', 315.100000000000000000, 4, 315.100000000000000000, 4, '{4,78.77499999999999,5948.925299999999}', '{o57,o62,o64,o76}', 133.420000000000000000, '2026-11-16 12:00:51.947033+00', 0),
	('', '2023-11-14 22:00:20+00', '2023-11-14 22:00:25+00', 492.840000000000000000, 4, 492.840000000000000000, 4, '{4,123.21,4574.264399999998}', '{o87,o73,o96,o81}', 173.040000000000000000, '2026-11-16 12:00:52.139298+00', 0),
	('ada', '2023-11-14 22:00:20+00', '2023-11-14 22:00:25+00', 364.220000000000000000, 3, 364.220000000000000000, 3, '{3,121.40666666666668,3394.7266666666665}', '{o84,o86,o93}', 168.840000000000000000, '2026-11-16 12:00:52.139298+00', 0),
	('bob', '2023-11-14 22:00:20+00', '2023-11-14 22:00:25+00', 719.800000000000000000, 8, 719.800000000000000000, 8, '{8,89.975,10969.1744}', '{o90,o88,o85,o98,o78,o80,o77,o94}', 142.950000000000000000, '2026-11-16 12:00:52.139298+00', 0),
	('cyd', '2023-11-14 22:00:20+00', '2023-11-14 22:00:25+00', 911.480000000000000000, 7, 911.480000000000000000, 7, '{7,130.21142857142857,26822.34668571429}', '{o92,o79,o83,o82,o89,o91,o75}', 188.350000000000000000, '2026-11-16 12:00:52.139298+00', 0);
-- Data for Name: history_3; Type: TABLE DATA; Schema: penstock; Owner: -
INSERT INTO penstock.history_3 VALUES
	('', '2023-11-14 22:00:00+00', '2023-11-14 22:00:10+00', NULL, 884.820000000000000000, 7, '2026-11-16 12:00:54.453182+00', 0),
	('ADA', '2023-11-14 22:00:00+00', '2023-11-14 22:00:10+00', 'ADA', 881.550000000000000000, 8, '2026-11-16 12:00:54.453182+00', 0),
	('BOB', '2023-11-14 22:00:00+00', '2023-11-14 22:00:10+00', 'BOB', 697.310000000000000000, 8, '2026-11-16 12:00:54.453182+00', 0),
	('CYD', '2023-11-14 22:00:00+00', '2023-11-14 22:00:10+00', 'CYD', 1018.280000000000000000, 11, '2026-11-16 12:00:54.453182+00', 0),
	('', '2023-11-14 22:00:10+00', '2023-11-14 22:00:20+00', NULL, 786.160000000000000000, 8, '2026-11-16 12:00:54.453182+00', 0),
	('ADA', '2023-11-14 22:00:10+00', '2023-11-14 22:00:20+00', 'ADA', 892.020000000000000000, 7, '2026-11-16 12:00:54.453182+00', 0),
	('BOB', '2023-11-14 22:00:10+00', '2023-11-14 22:00:20+00', 'BOB', 1575.380000000000000000, 13, '2026-11-16 12:00:54.453182+00', 0),
	('CYD', '2023-11-14 22:00:10+00', '2023-11-14 22:00:20+00', 'CYD', 520.830000000000000000, 6, '2026-11-16 12:00:54.453182+00', 0);
-- Data for Name: history_4; Type: TABLE DATA; Schema: penstock; Owner: -
INSERT INTO penstock.history_4 VALUES
	('cyd', '2023-11-14 22:00:01.525+00', '2023-11-14 22:00:04.335+00', 224.950000000000000000, 3, '2026-11-16 12:00:55.531728+00', 0),
	('ada', '2023-11-14 22:00:03.069+00', '2023-11-14 22:00:06.228+00', 538.060000000000000000, 5, '2026-11-16 12:00:55.531728+00', 0),
	('', '2023-11-14 22:00:01.921+00', '2023-11-14 22:00:06.66+00', 667.390000000000000000, 5, '2026-11-16 12:00:55.531728+00', 0),
	('ada', '2023-11-14 22:00:06.407+00', '2023-11-14 22:00:08.407+00', 188.390000000000000000, 1, '2026-11-16 12:00:55.531728+00', 0),
	('ada', '2023-11-14 22:00:09.852+00', '2023-11-14 22:00:12.023+00', 333.050000000000000000, 3, '2026-11-16 12:00:55.677004+00', 0),
	('cyd', '2023-11-14 22:00:04.784+00', '2023-11-14 22:00:13.588+00', 1005.360000000000000000, 11, '2026-11-16 12:00:55.677004+00', 0),
	('', '2023-11-14 22:00:07.391+00', '2023-11-14 22:00:17.004+00', 840.600000000000000000, 10, '2026-11-16 12:00:55.677004+00', 0),
	('', '2023-11-14 22:00:17.51+00', '2023-11-14 22:00:19.576+00', 173.740000000000000000, 2, '2026-11-16 12:00:55.677004+00', 0),
	('ada', '2023-11-14 22:00:12.271+00', '2023-11-14 22:00:19.871+00', 731.690000000000000000, 8, '2026-11-16 12:00:55.677004+00', 0),
	('', '2023-11-14 22:00:20.045+00', '2023-11-14 22:00:24.047+00', 360.480000000000000000, 3, '2026-11-16 12:00:55.8224+00', 0),
	('ada', '2023-11-14 22:00:21.756+00', '2023-11-14 22:00:27.1+00', 479.580000000000000000, 4, '2026-11-16 12:00:55.8224+00', 0),
	('cyd', '2023-11-14 22:00:16.214+00', '2023-11-14 22:00:27.149+00', 1325.730000000000000000, 12, '2026-11-16 12:00:55.8224+00', 0);
-- Data for Name: ids_1_1; Type: TABLE DATA; Schema: penstock; Owner: -
-- Data for Name: ids_2_1; Type: TABLE DATA; Schema: penstock; Owner: -
-- Data for Name: ids_3_1; Type: TABLE DATA; Schema: penstock; Owner: -
-- Data for Name: ids_4_1; Type: TABLE DATA; Schema: penstock; Owner: -
-- Data for Name: ids_5_1; Type: TABLE DATA; Schema: penstock; Owner: -
-- Data for Name: ids_6_1; Type: TABLE DATA; Schema: penstock; Owner: -
-- Data for Name: ids_7_1; Type: TABLE DATA; Schema: penstock; Owner: -
-- Data for Name: ids_8_1; Type: TABLE DATA; Schema: penstock; Owner: -
-- Data for Name: ids_9_1; Type: TABLE DATA; Schema: penstock; Owner: -
-- Data for Name: migrations; Type: TABLE DATA; Schema: penstock; Owner: -
INSERT INTO penstock.migrations VALUES
	(1, 'log', '86b0cf30c273175e5516412782d6dcff77af5a578528d632b3b7496a80eb8aa2', '2026-11-16 12:00:41.316583+00'),
	(2, 'log_more', '1801c2507bad56b41a41aa2f235a3a6b0399c6f283556e2e8e7025dffd29e60a', '2026-11-16 12:00:41.320054+00'),
	(3, 'engine', 'f697699451bad20d17af0b7dc754c45e3943ee3baad9b6f1f5dcab48004c6b5e', '2026-11-16 12:00:41.325586+00'),
	(4, 'query_control', 'adf069c2441f2e4f98d926fe5e3563cfdb0aa7493985b21eed1b72e425cf7419', '2026-11-16 12:00:41.326294+00'),
	(5, 'ingest', '63d20c0587f2328a13bd0ec58be749ebe407bd18dfa7b1a865a81020b1d328bd', '2026-11-16 12:00:41.332044+00'),
	(6, 'observe', 'f839b8209b96b52e27748bd6ea092a433cb51cf7997162dada1444b8f42c3112', '2026-11-16 12:00:41.335232+00'),
	(7, 'access', '1cbc8cd67453404529dc98b4c5448f7b2578b33d578033f0f751e748dd687e21', '2026-11-16 12:00:41.33689+00'),
	(8, 'plane', '5c9e4360ed2f03c101379ac25f7089096327e01fc95c1d0612ecd699f92c76a0', '2026-11-16 12:00:41.342887+00'),
	(9, 'gates', '2b09dbdd7140a9fbe1fff0cf5ceb513a53ac4d17c3c3ab6ee8a44c77f80dbc92', '2026-11-16 12:00:41.351664+00'),
	(10, 'sources_and_rules', 'd4187fc79931d1bb5364e7bc85a14bbfbec127e8b4295650de3d8753fe3511da', '2026-11-16 12:00:41.354316+00'),
	(11, 'dropped', 'aa5768b5bdeb35958ebd836f29ca5733d3ddd3207e6c2ed924c54725d31d552a', '2026-11-16 12:00:41.361742+00'),
	(12, 'roles', '9323d9521b9d685042474cf1ec1851845af989eead0849fffe74fbcbf65c33be', '2026-11-16 12:00:41.362377+00'),
	(13, 'writes', '7e50df1da8ff62f2de63f5c4860fe80ad2b31c3d57acbf2d1d989d4858c67474', '2026-11-16 12:00:41.36387+00'),
	(14, 'sinks', 'dc76184a2f9d28e3bfdff4f07cd8ce99420974181ede3e09b5d13e5044bb9246', '2026-11-16 12:00:41.365938+00'),
	(15, 'gate_limits', '50503ada1f57a0bdd5f9c6a574654b546f71ff428b4853d8fba2cda0023f29f6', '2026-11-16 12:00:41.366458+00'),
	(16, 'gate_settling', 'b788a9c75e1fe86208d514233c322c8a92d89ff2eb8f0d22bc5bc348fc65c5f5', '2026-11-16 12:00:41.375365+00'),
	(17, 'gate_put_back', '476146eb2e7334b21f3f6124c63a02de9efed9b4fcafb8801bde0ec2874fa1ac', '2026-11-16 12:00:41.38195+00'),
	(18, 'casts', '054dc3ed5bb1da4f1e0218683595e6f0bed84712ebb3e5d2c6dcf6dd1bbf70d4', '2026-11-18 02:08:55.769993+00');
-- Data for Name: partitions; Type: TABLE DATA; Schema: penstock; Owner: -
INSERT INTO penstock.partitions OVERRIDING SYSTEM VALUE VALUES
	(1, 1, 0, '0', false, 0, '1970-01-01 00:00:00+00'),
	(2, 1, 0, '1', false, 0, '1970-01-01 00:00:00+00'),
	(3, 2, 0, '0', false, 0, '1970-01-01 00:00:00+00'),
	(4, 2, 0, '1', false, 0, '1970-01-01 00:00:00+00'),
	(5, 3, 0, '0', false, 0, '1970-01-01 00:00:00+00'),
	(6, 3, 0, '1', false, 0, '1970-01-01 00:00:00+00'),
	(7, 6, 0, '0', false, 0, '1970-01-01 00:00:00+00'),
	(8, 6, 0, '1', false, 0, '1970-01-01 00:00:00+00'),
	(9, 6, 0, '2', false, 0, '1970-01-01 00:00:00+00'),
	(10, 6, 0, '3', false, 0, '1970-01-01 00:00:00+00'),
	(11, 6, 0, '4', false, 0, '1970-01-01 00:00:00+00'),
	(12, 6, 0, '5', false, 0, '1970-01-01 00:00:00+00'),
	(13, 6, 0, '6', false, 0, '1970-01-01 00:00:00+00'),
	(14, 6, 0, '7', false, 0, '1970-01-01 00:00:00+00'),
	(15, 7, 0, '0', false, 0, '1970-01-01 00:00:00+00'),
	(16, 7, 0, '1', false, 0, '1970-01-01 00:00:00+00'),
	(17, 7, 0, '2', false, 0, '1970-01-01 00:00:00+00'),
	(18, 7, 0, '3', false, 0, '1970-01-01 00:00:00+00'),
	(19, 7, 0, '4', false, 0, '1970-01-01 00:00:00+00'),
	(20, 7, 0, '5', false, 0, '1970-01-01 00:00:00+00'),
	(21, 7, 0, '6', false, 0, '1970-01-01 00:00:00+00'),
	(22, 7, 0, '7', false, 0, '1970-01-01 00:00:00+00'),
	(23, 8, 0, '0', false, 0, '1970-01-01 00:00:00+00'),
	(24, 8, 0, '1', false, 0, '1970-01-01 00:00:00+00'),
	(25, 8, 0, '2', false, 0, '1970-01-01 00:00:00+00'),
	(26, 8, 0, '3', false, 0, '1970-01-01 00:00:00+00'),
	(27, 8, 0, '4', false, 0, '1970-01-01 00:00:00+00'),
	(28, 8, 0, '5', false, 0, '1970-01-01 00:00:00+00'),
	(29, 8, 0, '6', false, 0, '1970-01-01 00:00:00+00'),
	(30, 8, 0, '7', false, 0, '1970-01-01 00:00:00+00'),
	(31, 9, 0, '0', false, 0, '1970-01-01 00:00:00+00'),
	(32, 9, 0, '1', false, 0, '1970-01-01 00:00:00+00'),
	(33, 9, 0, '2', false, 0, '1970-01-01 00:00:00+00'),
	(34, 9, 0, '3', false, 0, '1970-01-01 00:00:00+00'),
	(35, 9, 0, '4', false, 0, '1970-01-01 00:00:00+00'),
	(36, 9, 0, '5', false, 0, '1970-01-01 00:00:00+00'),
	(37, 9, 0, '6', false, 0, '1970-01-01 00:00:00+00'),
	(38, 9, 0, '7', false, 0, '1970-01-01 00:00:00+00'),
	(39, 4, 0, 'ada', true, 0, '1970-01-01 00:00:00+00'),
	(40, 4, 0, 'bob', true, 0, '1970-01-01 00:00:00+00'),
	(41, 5, 0, 'ada', true, 0, '1970-01-01 00:00:00+00'),
	(42, 5, 0, 'bob', true, 0, '1970-01-01 00:00:00+00');
-- Data for Name: plane_queues; Type: TABLE DATA; Schema: penstock; Owner: -
-- Data for Name: positions; Type: TABLE DATA; Schema: penstock; Owner: -
INSERT INTO penstock.positions VALUES
	(2, 8, 0, 0, NULL, 0, '1970-01-01 00:00:00+00', 0, '{}', '2026-11-16 12:00:51.255298+00', 0, 0),
	(2, 9, 0, 0, NULL, 0, '1970-01-01 00:00:00+00', 0, '{}', '2026-11-16 12:00:51.255305+00', 0, 0),
	(2, 10, 0, 0, NULL, 0, '1970-01-01 00:00:00+00', 0, '{}', '2026-11-16 12:00:51.25531+00', 0, 0),
	(2, 11, 0, 0, NULL, 0, '1970-01-01 00:00:00+00', 0, '{}', '2026-11-16 12:00:51.255315+00', 0, 0),
	(2, 13, 0, 0, NULL, 0, '1970-01-01 00:00:00+00', 0, '{}', '2026-11-16 12:00:51.255324+00', 0, 0),
	(2, 14, 0, 0, NULL, 0, '1970-01-01 00:00:00+00', 0, '{}', '2026-11-16 12:00:51.255327+00', 0, 0),
	(2, 7, 2, 6, NULL, 6, '1970-01-01 00:00:00+00', 0, '{}', '2026-11-16 12:00:51.270767+00', 0, 0),
	(2, 12, 2, 2, NULL, 2, '1970-01-01 00:00:00+00', 0, '{}', '2026-11-16 12:00:51.270821+00', 0, 0),
	(1, 2, 2, 38, NULL, 38, '1970-01-01 00:00:00+00', 0, '{}', '2026-11-16 12:00:51.947033+00', 0, 0),
	(1, 1, 4, 82, NULL, 82, '1970-01-01 00:00:00+00', 0, '{}', '2026-11-16 12:00:52.139298+00', 0, 0),
	(3, 2, 2, 38, NULL, 38, '1970-01-01 00:00:00+00', 0, '{}', '2026-11-16 12:00:54.453182+00', 0, 0),
	(3, 1, 3, 82, NULL, 82, '1970-01-01 00:00:00+00', 0, '{}', '2026-11-16 12:00:54.579892+00', 0, 0),
	(4, 2, 2, 38, NULL, 38, '1970-01-01 00:00:00+00', 0, '{}', '2026-11-16 12:00:55.677004+00', 0, 0),
	(4, 1, 3, 82, NULL, 82, '1970-01-01 00:00:00+00', 0, '{}', '2026-11-16 12:00:55.8224+00', 0, 0),
	(5, 2, 3, 38, NULL, 38, '1970-01-01 00:00:00+00', 0, '{}', '2026-11-16 12:00:57.386613+00', 0, 0),
	(6, 3, 3, 30, NULL, 30, '1970-01-01 00:00:00+00', 0, '{}', '2026-11-16 12:00:57.386613+00', 0, 0),
	(6, 4, 3, 28, NULL, 28, '1970-01-01 00:00:00+00', 0, '{}', '2026-11-16 12:00:57.386613+00', 0, 0),
	(5, 1, 4, 82, NULL, 82, '1970-01-01 00:00:00+00', 0, '{}', '2026-11-16 12:00:57.611955+00', 0, 0),
	(7, 40, 1, 3, NULL, 3, '1970-01-01 00:00:00+00', 0, '{}', '2026-11-16 12:00:59.997535+00', 0, 0),
	(8, 42, 0, 0, NULL, 0, '1970-01-01 00:00:00+00', 0, '{}', NULL, 0, 0),
	(8, 41, 2, 1, NULL, 1, '1970-01-01 00:00:00+00', 0, '{}', '2026-11-16 12:01:00.06744+00', 0, 0),
	(7, 39, 2, 3, NULL, 3, '1970-01-01 00:00:00+00', 0, '{}', '2026-11-16 12:01:01.074425+00', 0, 0);
-- Data for Name: progress; Type: TABLE DATA; Schema: penstock; Owner: -
INSERT INTO penstock.progress VALUES
	(1, 2, 1699999230974000, NULL, '2026-11-16 12:00:51.497391+00'),
	(1, 1, 1699999230918000, NULL, '2026-11-16 12:00:51.497382+00'),
	(3, 2, 1699999230974000, NULL, '2026-11-16 12:00:51.497391+00'),
	(3, 1, 1699999230918000, NULL, '2026-11-16 12:00:51.497382+00'),
	(4, 2, 1699999230974000, NULL, '2026-11-16 12:00:51.497391+00'),
	(4, 1, 1699999230918000, NULL, '2026-11-16 12:00:51.497382+00'),
	(5, 2, 1699999230974000, NULL, '2026-11-16 12:00:51.497391+00'),
	(5, 3, 1699999227008000, NULL, '2026-11-16 12:00:51.496375+00'),
	(5, 4, 1699999229127000, NULL, '2026-11-16 12:00:51.498629+00'),
	(5, 1, 1699999230918000, NULL, '2026-11-16 12:00:51.497382+00');
-- Data for Name: queries; Type: TABLE DATA; Schema: penstock; Owner: -
INSERT INTO penstock.queries OVERRIDING SYSTEM VALUE VALUES
	(3, 'busy', '{"from: orders","filter filter-1: amount > 10","key: UPPER(customer)","window: tumbling 10 s","time: the field ts","grace: 0 s","allowed lateness: 3 s","late events: dead_letter","aggregate n: count()","aggregate sum_amount: sum(amount)","aggregate who: max(UPPER(customer))","field who: who","field w: struct(window_start AS start, window_end AS end)","field mean: sum_amount / n","field n: n","having: n > 2","to: busy"}', '10e1d9010812563c2ef7e545bb2f1aa8173b3bdea3a018dbcb47f14d0b81eb53', '{"ts": "double", "amount": "decimal(38,18)", "customer": "string"}', '{"part": "SELECT ''busy''::text AS query, nullif(s.key, '''') COLLATE \"default\" AS key, s.window_start, s.window_end,\njsonb_build_object(''who'', s.a0, ''sum_amount'', trim_scale(s.a1), ''n'', s.a2, ''mean'', penstock.mean((((trim_scale(s.a1))) * 1.0000000000000000000000000000000000000000) / NULLIF((s.a2), 0), 1)) AS value, s.updated_at\nFROM penstock.state_3 s"}', 'busy', 3, 1699999227918000, 1794830452324, NULL, '1970-01-01 00:00:00+00', NULL, 10000000000, '2026-11-16 12:00:52.288618+00', false, NULL, '1970-01-01 00:00:00+00'),
	(1, 'sums', '{"from: orders","key: customer","window: tumbling 5 s","time: the field ts","grace: 0 s","allowed lateness: 3 s","late events: dead_letter","aggregate highest: max(amount)","aggregate kinds: count_distinct(id)","aggregate mean: avg(amount)","aggregate n: count()","aggregate spread: stddev(amount)","aggregate total: sum(amount)","to: sums"}', '89e68b5c6cd48ea4ba66510fd08068b29e4c0d0e5eac1b487ba9ae7fdf529cc0', '{"id": "string", "ts": "double", "amount": "decimal(38,18)", "customer": "string"}', '{"part": "SELECT ''sums''::text AS query, nullif(s.key, '''') COLLATE \"default\" AS key, s.window_start, s.window_end,\njsonb_build_object(''total'', trim_scale(s.a0), ''n'', s.a1, ''mean'', penstock.mean(s.a2, s.a2n), ''spread'', CASE WHEN s.a3[1] > 1 THEN sqrt(s.a3[3] / (s.a3[1] - 1)) END, ''kinds'', coalesce(cardinality(s.a4), 0)::bigint, ''highest'', trim_scale(s.a5)) AS value, s.updated_at\nFROM penstock.state_1 s"}', 'sums', 4, 1699999227918000, 1794830451538, NULL, '1970-01-01 00:00:00+00', NULL, 10000000000, '2026-11-16 12:00:42.21469+00', false, NULL, '1970-01-01 00:00:00+00'),
	(4, 'visits', '{"from: orders","key: customer","window: session with gaps of 2 s","time: the field ts","grace: 0 s","allowed lateness: 3 s","late events: dead_letter","aggregate n: count()","aggregate total: sum(amount)","to: visits"}', '43a669ff139732932158f8c38dfe5a5e2fbd31d3a881e738656c1ded4edba035', '{"ts": "double", "amount": "decimal(38,18)", "customer": "string"}', '{"part": "SELECT ''visits''::text AS query, nullif(s.key, '''') COLLATE \"default\" AS key, s.window_start, s.window_end,\njsonb_build_object(''total'', trim_scale(s.a0), ''n'', s.a1) AS value, s.updated_at\nFROM penstock.state_4 s"}', 'visits', 3, 1699999227918000, 1794830454625, NULL, '1970-01-01 00:00:00+00', NULL, 10000000000, '2026-11-16 12:00:54.604894+00', false, NULL, '1970-01-01 00:00:00+00'),
	(5, 'pairs', '{"join: left, from 0 s before to 5 s after","left from: orders","left on: id","left time: the field ts","right from: payments","right on: order","right time: the field ts","allowed lateness: 3 s","late events: dead_letter","map map-1: left.id AS id, right.n AS n","to: pairs"}', '62aaedf472a610e0dcdda341a0b4a292de6b5beb0fbbd2045b4ebd64abb9b5dc', '{"left.id": "string", "left.ts": "double", "right.ts": "double", "left.*.id": "string", "right.*.n": "decimal(38,18)", "right.order": "string"}', NULL, 'pairs', 5, 1699999224008000, 1794830455882, NULL, '1970-01-01 00:00:00+00', NULL, 10000000000, '2026-11-16 12:00:55.855161+00', false, NULL, '1970-01-01 00:00:00+00'),
	(6, 'gated', '{"from: calls","gate 1: token bucket, cost 1","gate 2: concurrency, group workers, cost 1","to: approved"}', '68943a5565e42384ee6f0d3ba4bd54468ee7032e4fceff7909de240ef1a2e670', '{}', NULL, 'approved', 4, NULL, 1794830457954, NULL, '1970-01-01 00:00:00+00', NULL, 2592000, '2026-11-16 12:00:57.934386+00', false, NULL, '2026-11-16 12:01:01.074425+00');
-- Data for Name: query_totals; Type: TABLE DATA; Schema: penstock; Owner: -
INSERT INTO penstock.query_totals VALUES
	(1, 4, 0, 120, 20, 20, 0, 0, '{0,0,2,1,0,0,0,0,0,1,0,0,0,0,0,0}', 3.3463489999999996, '{0,0,0,0,1,1,0,0,0,0,0,2,0,0,0,0}', 19.072588999999997),
	(3, 3, 0, 120, 8, 8, 0, 0, '{0,0,2,0,0,0,0,0,1,0,0,0,0,0,0,0}', 2.0648940000000002, '{0,0,0,0,0,0,0,0,0,0,1,0,2,0,0,0}', 27.480138),
	(4, 3, 0, 120, 12, 12, 0, 0, '{0,0,2,0,0,0,1,0,0,0,0,0,0,0,0,0}', 1.140831, '{0,0,0,0,0,0,0,0,0,0,1,0,2,0,0,0}', 31.189619999999998),
	(5, 5, 0, 178, 88, 0, 0, 0, '{0,0,1,3,0,1,0,0,0,0,0,0,0,0,0,0}', 1.593264, '{0,0,0,0,0,0,0,0,0,0,0,1,3,0,0,0}', 50.997755),
	(6, 2, 0, 6, 6, 0, 0, 0, '{0,0,1,0,0,1,0,0,0,0,0,0,0,0,0,0}', 0.8529260000000001, '{0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0}', 0);
-- Data for Name: queues; Type: TABLE DATA; Schema: penstock; Owner: -
INSERT INTO penstock.queues OVERRIDING SYSTEM VALUE VALUES
	(1, 'orders', 'hash', 2, 0, 1, 300, 3, 1000, 0, NULL, false, 0, 100000, NULL, 10, NULL, '2026-11-16 12:00:42.154698+00', NULL, 'refuse', 86400, NULL, NULL, NULL, 0),
	(2, 'payments', 'hash', 2, 0, 1, 300, 3, 1000, 0, NULL, false, 0, 100000, NULL, 10, NULL, '2026-11-16 12:00:42.16292+00', NULL, 'refuse', 86400, NULL, NULL, NULL, 0),
	(3, 'copies', 'hash', 2, 0, 1, 300, 3, 1000, 0, NULL, false, 0, 100000, NULL, 10, NULL, '2026-11-16 12:00:42.166282+00', NULL, 'refuse', 86400, NULL, NULL, NULL, 0),
	(4, 'calls', 'key', NULL, 0, 1, 300, 3, 1000, 0, NULL, false, 3600, 100000, NULL, 10, NULL, '2026-11-16 12:00:42.169474+00', NULL, 'refuse', 86400, NULL, NULL, NULL, 0),
	(5, 'approved', 'key', NULL, 0, 1, 300, 3, 1000, 0, NULL, false, 3600, 100000, NULL, 10, NULL, '2026-11-16 12:00:42.172335+00', NULL, 'refuse', 86400, NULL, NULL, NULL, 0),
	(6, 'sums', 'hash', 8, 0, 1, 300, 3, 1000, 0, NULL, false, 0, 100000, NULL, 10, NULL, '2026-11-16 12:00:42.219184+00', NULL, 'refuse', 86400, NULL, NULL, NULL, 0),
	(7, 'busy', 'hash', 8, 0, 1, 300, 3, 1000, 0, NULL, false, 0, 100000, NULL, 10, NULL, '2026-11-16 12:00:52.294864+00', NULL, 'refuse', 86400, NULL, NULL, NULL, 0),
	(8, 'visits', 'hash', 8, 0, 1, 300, 3, 1000, 0, NULL, false, 0, 100000, NULL, 10, NULL, '2026-11-16 12:00:54.609189+00', NULL, 'refuse', 86400, NULL, NULL, NULL, 0),
	(9, 'pairs', 'hash', 8, 0, 1, 300, 3, 1000, 0, NULL, false, 0, 100000, NULL, 10, NULL, '2026-11-16 12:00:55.860469+00', NULL, 'refuse', 86400, NULL, NULL, NULL, 0);
-- Data for Name: reports; Type: TABLE DATA; Schema: penstock; Owner: -
INSERT INTO penstock.reports VALUES
	(1, 1794830447462, 1, 0, 0, 0, '\x969296011d1dcf00060a23e9325538cf0006606386f06276cf0006606386f035c496021515cf00060a23e966f5e0cf0006606386f07785cf0006606386f03587908090c40090'),
	(1, 1794830447462, 2, 0, 0, 1, '\x969196010a0acf00060a23e96a3db8cf0006606386f07772cf0006606386f06276908090c40090'),
	(1, 1794830451538, 3, 0, 0, 2, '\x969296012121cf00060a23ea126880cf00066063877e4ff7cf00066063877e246e96021111cf00060a23ea47d830cf00066063877e59afcf00066063877e2478908090c40090'),
	(1, 1794830451538, 4, 0, 0, 3, '\x969196010a0acf00060a23ea46fd70cf00066063877e59a6cf00066063877e4ff7908090c40090'),
	(3, 1794830452324, 1, 0, 0, 4, '\x969296011919cf00060a23e92925a8cf0006606386f06276cf0006606386f035c496021919cf00060a23e9a5d3a0cf00066063877e3a41cf0006606386f03587908090c40090'),
	(3, 1794830452324, 2, 0, 0, 5, '\x969296012525cf00060a23e9ee36e0cf00066063877e48aecf0006606386f0627696020d0dcf00060a23ea47d830cf00066063877e59afcf00066063877e3a41908090c40090'),
	(3, 1794830452324, 3, 0, 0, 6, '\x969196011414cf00060a23ea46fd70cf00066063877e59a6cf00066063877e48ae908090c40090'),
	(4, 1794830454625, 1, 0, 0, 7, '\x969296011919cf00060a23e92925a8cf0006606386f06276cf0006606386f035c496021919cf00060a23e9a5d3a0cf00066063877e3a41cf0006606386f03587908090c40090'),
	(4, 1794830454625, 2, 0, 0, 8, '\x969296012525cf00060a23e9ee36e0cf00066063877e48aecf0006606386f0627696020d0dcf00060a23ea47d830cf00066063877e59afcf00066063877e3a41908090c40090'),
	(4, 1794830454625, 3, 0, 0, 9, '\x969196011414cf00060a23ea46fd70cf00066063877e59a6cf00066063877e48ae908090c40090'),
	(5, 1794830455882, 1, 0, 0, 10, '\x969296010c0ccf00060a23e8bc5630cf0006606386f04ac5cf0006606386f035c496020c0ccf00060a23e8e55a30cf0006606386f0541acf0006606386f03587908090c40090'),
	(5, 1794830455882, 1, 500, 0, 10, '\x969296030d0dcf00060a23e9339588cf0006606386f07b3bcf0006606386f045f496040d0dcf00060a23e9506870cf0006606386f07b42cf0006606386f04fe0908090c40090'),
	(5, 1794830455882, 1, 900, 0, 10, '\x9690908090c50ad8ffffffffe00100001000000000000a000c000600050008000a000000000104000c0000000800080000000400080000000400000008000000780100003c01000008010000cc00000090000000600000003400000004000000b8feffff00000106100000001c00000004000000000000000a00000069735f6d6174636865640000e8feffffe4feffff0000010510000000180000000400000000000000040000006c696e650000000010ffffff0cffffff00000105100000001c0000000400000000000000090000006576656e745f6b65790000003cffffff38ffffff00000102100000002000000004000000000000000c0000006576656e745f6f66667365740000000030ffffff000000014000000070ffffff00000102100000002000000004000000000000000c000000706172746974696f6e5f69640000000068ffffff0000000140000000a8ffffff00000102100000001800000004000000000000000700000074696d655f75730098ffffff0000000140000000d8ffffff0000010510000000180000000400000000000000030000006b6579000400040004000000100014000800060007000c000000100010000000000001021000000020000000040000000000000004000000736964650000000008000c0008000700080000000000000110000000ffffffff2002000014000000000000000c0018000600050008000c000c000000000304001c000000c006000000000000000000000c001e001000040008000c000c000000600100002400000018000000320000000000000000000000000006000800070006000000000000011300000000000000000000000000000000000000000000000000000035000000000000003800000000000000000000000000000038000000000000007d00000000000000b8000000000000007f00000000000000380100000000000000000000000000003801000000000000f80000000000000030020000000000000000000000000000300200000000000038000000000000006802000000000000000000000000000068020000000000006000000000000000c8020000000000001800000000000000e002000000000000700000000000000050030000000000005f00000000000000b0030000000000000000000000000000b003000000000000990000000000000050040000000000005202000000000000a8060000000000000000000000000000a806000000000000180000000000000000000000080000003200000000000000000000000000000032000000000000000000000000000000320000000000000000000000000000003200000000000000000000000000000032000000000000000000000000000000320000000000000006000000000000003200000000000000000000000000000032000000000000000000000000000000640000000000000028b52ffd20642501005800000100010100000001000b00a0040468d900cc811da0dccb88950129045a06787344000000cc0000000000000028b52ffd20cc650300c20c1a24806596317dced4b4385e29d62bc7138e57cc138e570a5037b41fdf6206ad32d8da0a9902eff22a6ff2ae277990e7788ca7788867788427f8c0051e7080b7cefaeaaaa78efae9a6974efae8a2870efae79e77cef9e69a678eb9e5945f8ffcf1c6174ffcf0c2071f000000004d0100000000000028b52ffd604d006d0300e4025b226f30225d3131323334353637383230313233343637393330333533363339343736373839225d5b226f39225d242070536d0342988be1e03038012e128e0866700638dc30c17c514fb837b0871cf760478ea350171f4370f7b021873bec20e736589acd64617e53a02200900100000000000028b52ffd609000350700640ae8878ce8230a0600685fb2f0688a6864c618af99c0879bb041b50059a8386db1d859a22053b66010f0a0bbaf3056bc8037b8183cc1f8b1cab0a9f718d99248b7c0b8c8c110f4e88072c3f0acd26035d599eed016dea89e00e9305ae5e89026eb4033f2181506e9e08893e8603129e990ad13889533d8dc1e18b598e848e2a4688e3ce9706850087d86e860509208e79ea01fc960dea490a4d640379e480cc039a8e8230a06003020e0d7836fb421e3461b3282dc30d2631119377a2c59b2880c378c186943e01937da9071a30d1937da9071a30d1937da20e3461b326eb421c3dc589bbc900100000000000028b52ffd609000350100a24607833111ff455454d4dcd55cd545ddcd4d4d4dd5cc4d4d44455cc4c5cd4d315402000301900100000000000028b52ffd60900075020042460a8b5222211111117f7a6d582fbda7492d799a651982e6588e24388a56ac625841b324c9b18a2178a91d2e500200638c310689c718638c41e231c618638c31c618638c31c618630c128f3104070000000000000028b52ffd2007390000aefbffefdfff03cc0000000000000028b52ffd20ccfd0200324a131950cfcda453489405dd2a92fabf8aededededededededb5cda5bfdcf2ca299f5cf2c8217fdcf1c6198b2b9e38e2871b5e386170c10307fcbbf7eedcb76bcf8efdbaf5ead427e9d1a1c77973e6060081ec01c8066409b2d8e533002c7d0000000000000028b52ffd207d750200a2050f11b0351df8547783998364d4c8de0586290d661e7bcbbd641e873d6cdbd4a41e75a87b0d5d68425b91a0037dc1b9e000a5974723318f412cbee0840307040238c2834b61593e85f5dc529600cc0000000000000028b52ffd20cc450400c20c2128804d9a038c7fc60f829371cc52cc4c4c538c49b90a6081ea76d700d4e05f140a6122a594524a29534f0c7e25bf8c9fc3aff21bd889ec2a76971d65c7dc486e1d37895bc3adb909cc406614b387596576f00a7969bc205e092f82d5c8ca6215b15258159c3c4e1727cb897202186d8c2ea38511f3f9f8607c2c1f844fc0393e7186371f0000000000000000260a00000000000028b52ffd602609051200861c441b8029690378fa0f97f635f586106608de22bbbb77229340372105024a003800350025fb62bc3eab961e5fcb3e5ebd57049110405ca8540a622404108983282cf859976766a6b9200607c430d4cc821c180847c181180808108c8224040a8e030384006220e52005410c108536a72c225666cbdc31ac9bd61de1954ad347555a4635021c00c4f02f1df653542432fba9c6af7972a6f4135de758930f88037956095b660a3db6ee436c66d6dd5db4dbaf77357bbe9aff7bf656998e34c5f9dc6ab5a3abf68218d5c2e67fd9b34dad17c4304dab545c5e337d030b36d729a5337571960e158bd18aab9374892d33638bfa52afbad4e3bad2d1d11575e85c1d5f7f3d569d9986bdd95d4b15ba779932380180aca80141c8245eff3bf062a4883c11200c04228811e32ca652d8e39730984e3299bd1c1110dec7755a954daa096d1791c736f037622a9b672745e09cb9ef64e2e1a05fb0679636831889cecf53aa57b6e6de244e6683e13259662b1c00f23b8f769919ec3770734d02cebe520404c229949086dc52643071233cac813016ca021a72c35b47cad43a37159022b51bd0d79e2385f30e0a1efaa299127ffb2cdb88912a8f0a584570cd7c55eb1bb5f4e989913628342552b8040c4bff5b2f9a38d5f50d178b18de0fe655fe87b2916c3c527d96bb6d816293e6d61be2a89221b3863bcd2aab0a46efc2786d6c115a3cce716f209efcb7fc939b431a145a05578071804814245605087920eee8545fde54f25810a5b59b3c9c7c94f22908139952d57b2f8d15c04be45310efa902000000000000070000000000000028b52ffd200739000095444915202a01ffffffff0000000090'),
	(5, 1794830455882, 2, 0, 0, 11, '\x969296010c0ccf00060a23e918b6a0cf0006606386f06276cf0006606386f04ac596020c0ccf00060a23e9a114c8cf00066063877e3a41cf0006606386f0541a908090c40090'),
	(5, 1794830455882, 2, 500, 0, 11, '\x969296030d0dcf00060a23e9c4c968cf00066063877e456dcf0006606386f07b3b96040d0dcf00060a23e9de9eb0cf00066063877e4caacf00066063877e33e6908090c40090'),
	(5, 1794830455882, 2, 900, 0, 11, '\x9690908090c50ab0ffffffffe00100001000000000000a000c000600050008000a000000000104000c0000000800080000000400080000000400000008000000780100003c01000008010000cc00000090000000600000003400000004000000b8feffff00000106100000001c00000004000000000000000a00000069735f6d6174636865640000e8feffffe4feffff0000010510000000180000000400000000000000040000006c696e650000000010ffffff0cffffff00000105100000001c0000000400000000000000090000006576656e745f6b65790000003cffffff38ffffff00000102100000002000000004000000000000000c0000006576656e745f6f66667365740000000030ffffff000000014000000070ffffff00000102100000002000000004000000000000000c000000706172746974696f6e5f69640000000068ffffff0000000140000000a8ffffff00000102100000001800000004000000000000000700000074696d655f75730098ffffff0000000140000000d8ffffff0000010510000000180000000400000000000000030000006b6579000400040004000000100014000800060007000c000000100010000000000001021000000020000000040000000000000004000000736964650000000008000c0008000700080000000000000110000000ffffffff2002000014000000000000000c0018000600050008000c000c000000000304001c0000009806000000000000000000000c001e001000040008000c000c00000060010000240000001800000032000000000000000000000000000600080007000600000000000001130000000000000000000000000000000000000000000000000000002f000000000000003000000000000000000000000000000030000000000000007c00000000000000b0000000000000008000000000000000300100000000000000000000000000003001000000000000f60000000000000028020000000000000000000000000000280200000000000038000000000000006002000000000000000000000000000060020000000000004d00000000000000b0020000000000001800000000000000c8020000000000006f0000000000000038030000000000006200000000000000a0030000000000000000000000000000a003000000000000960000000000000038040000000000004502000000000000800600000000000000000000000000008006000000000000180000000000000000000000080000003200000000000000000000000000000032000000000000000000000000000000320000000000000000000000000000003200000000000000000000000000000032000000000000000000000000000000320000000000000007000000000000003200000000000000000000000000000032000000000000000000000000000000640000000000000028b52ffd2064f50000480000010001000100010900e0081800012040ca809b0440be2b86c6011600cc0000000000000028b52ffd20cc5d0300c2cc19228075690c7dced4bc85b835250cc398fb5b53c2c404864b87cfe7f3f97c3e9fa321538ff3340ff32c8ff2240ff21c8ff1140ff10c8ff0041fb8c0030ef0d75d6f9df5d5554f1df5d34d2f9df4d1450f1df4cf3def7cf3cc2faf7cf2c81f6f7cf1c40f2f7cf00100000000005e0100000000000028b52ffd605e0075030072440c0ec0e501bf7d45738530497aba9617a083a1096a75c7e1c71286571f9715dd1274f4711ccf8a3e96183c23716882a284662c20e0d743c60d36edca70870d1977f0b221e3061bc4819c0d1967b021e30e5e3664dc60430c5e3664dc6043c60d3664dc41970d192706d390e8900100000000000028b52ffd609000250700040a38cbcbe8230a060058fbd0b075d64004e518ffdf787df2005bfb6039fe8c05e9b5061035f3e8582808e968cc285a01704d1640fc0fa0b618c0b53a98324aa88258a0092068cf4688f776683f5e208e3e602954d0ff4938364ce0f566a0758bf09f6610bd83d0a981f8797ad0079c385baed04f909076ae000fd830e09fc814a19885ce10c297d821cf68c9c40022c0a019c4a852dd605fc8b09edee9230a06003020f09531326eb421e3461b326eb421e38d3664dc6843c68d3664dc68a38c1b6dc8b8d1868c1b6dc8b8b10d1937da406c6419996c788a31e3461b326efc3626482f0000900100000000000028b52ffd609000350100a24607833111ffdd5dd5d5cddd55dd544d4dd5cc5dcd5545cc4444c4c44c4444315402000301900100000000000028b52ffd609000dd0100a2860c0b00855d03a532d6a18a9002ffa0092c8141143dd33125cf5444c9f234cdf196a4bd76ac624d51f19e66498e56ace1b53504315402000301000000070000000000000028b52ffd2007390000ef7bfefcfffe03cc0000000000000028b52ffd20ccf50200124a131a60cdcd80b2da928888888888888800000000000000000000a052af9cf2c9258f1cf2c71d6f30beb8e289237eb8e185133eb8e08103fe79efce7dbbf6ecd875ebd5a9e9d2a3437f9c3767be7c050005320c9811981fe4f5cc2d0100810000000000000028b52ffd20818d020052061010b03707f8a46b6da8d95676d78c87e13c83dcdb6ebac50d6ed2a98f2e7ae8a013fb6c1bb6b0f398d6798cd555871ad447f4a0059dc7942c790c8e38962c38060500b0887bb9297300dd1832943a000000000000cc0000000000000028b52ffd20cc2d0400c24c2027902bcd016bfdbfb3a79dcbaefede051c6c6362b9efd73c9dbf0bc12a5fd391b5a594524a29650a2bcb0ac00fe4d7f1b3f839fc107e01bb909dc74e62c7b02bd8496e1fb78bdbc42de12630139961cc28660ab381d7c82be3f5f05a7811bcae345615ab8615b34a278e53c4e9e094469311c48819a1cfc6a7f92c1ff4c99b1b7c000000410a00000000000028b52ffd6041099d1100565f491a90a9d006587dab55ac54be28ee2e4a8beceede292710fd3f000151003f003a00549319b1223549b11030d2396204040a06f8eb99f47366f7aac525945344271409bfe14c6af2cccc34230642c23860d6881809060a8b82c4380c8005c0408c03818245028242c0388cf46220866260300435a599e918310cc6619c168a83c560684071ed139aaad8dc6766c5e31ade155d11afccd739bb545cd93b5759f1a657267cba17cf0b9d7d7da639620fa19b0166ae9eed64986363bf8bb71bf9b57c116f56bcba7aedb0665748565633a52a126955c5a61a67e7652e57e17b5252799710b16a5b135d896f11390d78529a9cb4bb4c43c3fe8484fdf15838fd0505c7a4939737d4a4a39bcfcd1549e5249d9bcbe6ef47d6b9cff767e5727294c5cc72568e784db380aaa8912cd6296559f63b406384380f1120080811c31092d65a15f638770eb98d810d83dbd4c42ee32a3202376d3bb471d2c2e8826afa9ac46468281a531fcbd7826c0fec5b9b3a1946bf911f58e6589fc15feeeab19767b35d3e09a7b13ba8f1ebcdaafe513674c800df13a4b949cb0675c0bb60cadef06585347e2b05c495bf62ffdee6479c5f5fd5071634865bac08b0094ec90966bb00b4c1bc9818f85a19c66e41ee64ffdf9055039618284ba2696b43522f0e9e302c10e88cc5f626b7073641a9b0cfa0f7509b4781c1a032a1d5c34508c10d54623604c48ab37a0eb44c84a98afe70a05f891a852845502d55e076a09f443b0e83a44f892a131b09711e77844975910606625401000000070000000000000028b52ffd20073900006a981050000100ffffffff0000000090'),
	(5, 1794830455882, 3, 0, 0, 12, '\x969296011e1ecf00060a23e9bd0908cf00066063877e41b8cf0006606386f0627696020e0ecf00060a23ea47d830cf00066063877e59afcf00066063877e3a41908090c40090'),
	(5, 1794830455882, 3, 500, 0, 12, '\x969296030404cf00060a23ea0b5400cf00066063877e55b7cf00066063877e55b796040202cf00060a23ea2ba958cf00066063877e5e85cf00066063877e55c1908090c40090'),
	(5, 1794830455882, 3, 900, 0, 12, '\x9690908090c50ae0ffffffffe00100001000000000000a000c000600050008000a000000000104000c0000000800080000000400080000000400000008000000780100003c01000008010000cc00000090000000600000003400000004000000b8feffff00000106100000001c00000004000000000000000a00000069735f6d6174636865640000e8feffffe4feffff0000010510000000180000000400000000000000040000006c696e650000000010ffffff0cffffff00000105100000001c0000000400000000000000090000006576656e745f6b65790000003cffffff38ffffff00000102100000002000000004000000000000000c0000006576656e745f6f66667365740000000030ffffff000000014000000070ffffff00000102100000002000000004000000000000000c000000706172746974696f6e5f69640000000068ffffff0000000140000000a8ffffff00000102100000001800000004000000000000000700000074696d655f75730098ffffff0000000140000000d8ffffff0000010510000000180000000400000000000000030000006b6579000400040004000000100014000800060007000c000000100010000000000001021000000020000000040000000000000004000000736964650000000008000c0008000700080000000000000110000000ffffffff2002000014000000000000000c0018000600050008000c000c000000000304001c000000c806000000000000000000000c001e001000040008000c000c000000600100002400000018000000320000000000000000000000000006000800070006000000000000011300000000000000000000000000000000000000000000000000000026000000000000002800000000000000000000000000000028000000000000007c00000000000000a8000000000000008800000000000000300100000000000000000000000000003001000000000000f70000000000000028020000000000000000000000000000280200000000000035000000000000006002000000000000000000000000000060020000000000005b00000000000000c0020000000000001800000000000000d8020000000000006f0000000000000048030000000000005500000000000000a0030000000000000000000000000000a003000000000000950000000000000038040000000000007502000000000000b0060000000000000000000000000000b006000000000000180000000000000000000000080000003200000000000000000000000000000032000000000000000000000000000000320000000000000000000000000000003200000000000000000000000000000032000000000000000000000000000000320000000000000007000000000000003200000000000000000000000000000032000000000000000000000000000000640000000000000028b52ffd2064ad000068010001000100000100010000000200bb4c340a880000cc0000000000000028b52ffd20cc5d0300c2cc192370759631041f587b6bd6de9ab5b766edad597b2e26168f8b89c5e322a7fe8ff0b0640a2ff32eaff2262ff21eaff1162ff10eaff0062ff0aeb7071ce0adb3bebaeaa9a37ebae9a5933ebae8a183feb9e79d73beb9e6985b4eb9e4903bceb8e2881b4eb8e0d7070000000000630100000000000028b52ffd606300b50300c2c40c0ec0e501bf7dc52ed925a5b0500f0b20f0211284d5f437d2547ce3594d056f3ca3cadd6754b11baf68aa7e544b4324884a43642e20f0953143c61d90b321e3061b32eee0cb868c1b6cc8b8c18618bc6cc871830d1937d8b42be3061b32ee60d3ae8c1b6cc8383798e4686ae45e6633b71ba412900100000000000028b52ffd6090002d0700440ad81e0eea230a060058a92bd0601fd83a3330d847a82529e9102d1e8025385532e0ec2910c12f782d2998752a38193ca88942d89e52e02c49504a48385f5ab83d6a80467198a77540687b881b7138e16e90e38770667a98e87fd86685581b9cf06884e8da8da0d3a5602693307ab0d0cba550b6b30809bd588bb3f86abb4030ae18a1bfe018f3b069d208e800ea98f6d0e958a1d900540bea68e4fee948f6eee9230a06003020e0d74182dc3062a40d1937da9071a30d1937da9071a30d196eb421e3461b326eb421e3461b326eb421e3461b326eb441c68d867118694386b9b136790100900100000000000028b52ffd6090001d0100a28606834321ff84301326cccc6cb6996ddbb66ddbb66ddbb66d333346315402000301000000900100000000000028b52ffd6090004d0200a2061013f0d4660d6815c07ba705222122cf0c3ca33c057fe65d974a356991ab7a1fad63638a322e2a26221e1a16120e0a06023e9d4de6529944aeeab529fa7436af053154020003010000000000070000000000000028b52ffd2007390000dff6bffbbffd03cc0000000000000028b52ffd20ccf50200b249131a60cdcd80b2da9288888888888888000000000000000000908b53af9cf2c9258f1cf2c71d8d3316573c71c40f37bc70c207173c00f877af3bf7eddab363bf6ebd3a355d8a0e3d77de9cf9f201070404400714200b0878e0dddd0100830000000000000028b52ffd208325020024026f3130316f313038637964626f626164616f38386379646f383939346f39356379640d0032f3d50ca070800573a014879d035206b00ca83940e6002f6580321c9c17000000cc0000000000000028b52ffd20cc250400c20c2026a029cd018f9fb64f60dbaa0e5b36ba266010b123b1febf4f67b3996b05265b6eb9b79452ca142fdacdc30dc34dc28dc1ae6207b153d83976023312330d338f19821bc5cde1f6b80dbc4cbc405e1c2f8c95c9ca5b69ac3833c9eccd9e59c02bf27a2f84176315b182ac1a2be72439bdd37302184d466ff48c9c47bef083177c00000000080c00000000000028b52ffd60080b1d1300c623501a704bd20650471272d01a1206feff8b5cd9dd3b110970ffff0b015c0041004100356cc90612038587ae744d4846407050e88c9d43c4a48b8b2fc75ab6f06af026a0685070482408140045c1034142a281c181a00028a40507054484b9fc5d445f9afdffaf06140c0d054047030a8502a0e868a20828160c0a161205443dcb1cd351a5611dff764847bc2bcfe06bce9cb348c6392f5ae87314b2928762da7450cd7487b50a1408dc8ef2bb16dde16f62da468fb133bab4ced49cadf0ed54ac89cc52be1e8a941509878bad92198f4cb9b1f2ccbaadc6cb90ca2ae6d93cb2a3194d4ea3e3989b0b6fd0552332217e54c75942395519d17eb448fda5155b2d07119f92a8fc4d5e3a7d0cda7c6e14cbe9f1e54a319af516d67f660a09ef7e43f29dcda069d4669c63d8aa5ccd58d33eb39ed2d7b3633d1f5765d6a5d9c7ec6c680480ada8912cada4d7949ddd206384a87311340882801c22cc6236ca277aad04a424c08c8d70eb8aeed212f636685066a88a207157892592da1a34560bf61414ed48891aa5201be5dc8084d8b0e0d62036f13d88ca2054cbc368a883aabe434a33398ce9d0404c0cd831b9f713384a6424dfdbb06d679e94b08afb57e5507671d11b2831834df7f7a315d60c4a878b994a81f8476055709add896e84d0c3fb890882b0f783306e3376183faa2cf02b0119be04810365cd640a192a382e7465d6de0aae8ae2371708c0ffd781822be69e843f2384446d42896a64c86b3a0a068f859f11f6678176a07f8e402998278453a710dc50176158525072f0357a588072030b047ec1a2311604a44f12554545b2a613274a50a8aaaf1f337a36bcf175a70a000000070000000000000028b52ffd2007390000c06d43fdb00a00ffffffff0000000090'),
	(5, 1794830455882, 4, 0, 0, 13, '\x969196011c1ccf00060a23ea46fd70cf00066063877e59a6cf00066063877e41b8908090c40090'),
	(5, 1794830455882, 4, 500, 0, 13, '\x9690908090c40090'),
	(5, 1794830455882, 4, 900, 0, 13, '\x9690908090c50910ffffffffe00100001000000000000a000c000600050008000a000000000104000c0000000800080000000400080000000400000008000000780100003c01000008010000cc00000090000000600000003400000004000000b8feffff00000106100000001c00000004000000000000000a00000069735f6d6174636865640000e8feffffe4feffff0000010510000000180000000400000000000000040000006c696e650000000010ffffff0cffffff00000105100000001c0000000400000000000000090000006576656e745f6b65790000003cffffff38ffffff00000102100000002000000004000000000000000c0000006576656e745f6f66667365740000000030ffffff000000014000000070ffffff00000102100000002000000004000000000000000c000000706172746974696f6e5f69640000000068ffffff0000000140000000a8ffffff00000102100000001800000004000000000000000700000074696d655f75730098ffffff0000000140000000d8ffffff0000010510000000180000000400000000000000030000006b6579000400040004000000100014000800060007000c000000100010000000000001021000000020000000040000000000000004000000736964650000000008000c0008000700080000000000000110000000ffffffff2002000014000000000000000c0018000600050008000c000c000000000304001c000000f804000000000000000000000c001e001000040008000c000c0000006001000024000000180000001c0000000000000000000000000006000800070006000000000000011300000000000000000000000000000000000000000000000000000019000000000000002000000000000000000000000000000020000000000000004d0000000000000070000000000000007b00000000000000f0000000000000000000000000000000f000000000000000aa00000000000000a0010000000000000000000000000000a0010000000000005700000000000000f8010000000000000000000000000000f80100000000000057000000000000005002000000000000150000000000000068020000000000006000000000000000c8020000000000002500000000000000f0020000000000000000000000000000f0020000000000005f0000000000000050030000000000008d01000000000000e0040000000000000000000000000000e004000000000000150000000000000000000000080000001c0000000000000000000000000000001c0000000000000000000000000000001c0000000000000000000000000000001c0000000000000000000000000000001c0000000000000000000000000000001c0000000000000009000000000000001c0000000000000000000000000000001c000000000000000000000000000000380000000000000028b52ffd203845000010000001003b011600000000000000740000000000000028b52ffd2074e5010042070e17c06b0ede5d08218410426badb5d65a6bad352a954a6552bf6ebd3af5e9d2a3437feebc39f3e5ca93233f6ebc38f1e1c283037f776f671f00000000d50000000000000028b52ffd20d555030054035b226f313030225d5b226f313031323334353637383931303132343537383838383839303933393439353638225d5b226f3939225d1900600830181c060d03813f83a1784850e3841a06ae807c20339005e4039981dcc010900f6406b2807c20339005e46b5951020000000000e00000000000000028b52ffd20e0cd04007406e80404ea230a06006867fee9230a060018560a30e706ead8f5ffe968b4806812eae06924683c1a186d1bf81d30b89417b08920708d2f98cd3f68943570fd466030bbe940e1cfe9a0a8c1a853c820b7c97854dea02ad6e036eeb056ea308feb805dffe9230a060019004006b801da0032c00dd00690016e0023c0086803c80037401b4006b801da0032c00dd0032c02100323c0c8696718000000000000e00000000000000028b52ffd20e0350200e40301000100010001000100010001000100010001000100010001000100010001000100010001000100010001000100010001000100010001000000000000001b540200030100e00000000000000028b52ffd20e0350200e4034100420043004400450046004700480049004a004b004c004d004e004f005000510036003700380039003a003b003c003d003e003f0040000000000000001b540200030100040000000000000028b52ffd20042100008d69ff0d000000740000000000000028b52ffd20747d0200e403000000000306000000090c0000000f1215000000181b0000001e0000002100000024000000270000002a0000002d00000030000000333600000039000000060001f981ac2033603cd0df997b03390000000000000028b52ffd2039a5000030626f626164610500a0435003640e008a61e786000000740000000000000028b52ffd20747502004287121ba029ad01fd965755f169d75755bc6fd7a9aaf676f473b2e5de5ba62783d3725a27c449f02ddffa944f8d22a3355246ea03f9303e874f60f3d82c36860d60736c8aadb0dd1b4f9cf0010000110700000000000028b52ffd601106dd0b00c654331980b9d0069ab6effae7ea81c1c0dc99eceeee9d728672135220390026002700943435fb36e3745e50b038f042be6a7f9a0f2341310c37ad3b0cc5c1226180188601900018878130609050242c0286618838310e4380602804d79bd3d4ec472c45733f59983dac15beac68d293fb51cf52b2921b69de35f6bc22a1ef54e74cb73bee1cadaec6a219b362f4dd35ab69be23aaccdd2b1fa799d34a84006210e614eb3ddd36f62e0bf4d7108bce67b6c69884a58f656b5a7625bdaa23a6cc92928853aecf9e2c79b61edd43ec090363a8a138e99cbdb07f0720e38ae80111200443188b402961513ef12c0926012dd401130406096d102c3e3ab8785eeaf549d20b894c1a8ee1ccbaf508c7a1ad96991054503c8c080194a2d7a581c7990a8a8c51b0a525aca8c08da9cc09030a69d5b0d30645d64df374c281a5059c82af6ef0291956041d17504f3ce15e4d8324bf3d3731086794a224ba6f3e52692cf17cb8e108383c363442e0015d4599844a96c06870d21a41500bc855000000040000000000000028b52ffd20042100000201da01000000ffffffff0000000090'),
	(5, 1794830455882, 5, 0, 0, 14, '\x9690908090c40090'),
	(5, 1794830455882, 5, 500, 0, 14, '\x9690908090c40090'),
	(6, 1794830457954, 1, 0, 0, 15, '\x969296270404cf0006606387e04044cf0006606387e04044cf0006606387e038d096280404cf0006606387e0404ccf0006606387e0404ccf0006606387e03925908090c40090'),
	(6, 1794830457954, 3, 0, 0, 16, '\x969296280404cf0006606387e0476ecf0006606387e0476ecf0006606387e0420796270303cf0006606387e04587cf0006606387e04587cf0006606387e041ff908090c40090');
-- Data for Name: requests; Type: TABLE DATA; Schema: penstock; Owner: -
-- Data for Name: rule_states; Type: TABLE DATA; Schema: penstock; Owner: -
-- Data for Name: rules; Type: TABLE DATA; Schema: penstock; Owner: -
-- Data for Name: segment_lanes; Type: TABLE DATA; Schema: penstock; Owner: -
-- Data for Name: segments; Type: TABLE DATA; Schema: penstock; Owner: -
INSERT INTO penstock.segments VALUES
	(1, 1, true, '2026-11-16 12:00:42.155277+00', NULL),
	(2, 1, true, '2026-11-16 12:00:42.163099+00', NULL),
	(3, 1, true, '2026-11-16 12:00:42.166437+00', NULL),
	(4, 1, true, '2026-11-16 12:00:42.169627+00', NULL),
	(5, 1, true, '2026-11-16 12:00:42.172489+00', NULL),
	(6, 1, true, '2026-11-16 12:00:42.219474+00', NULL),
	(7, 1, true, '2026-11-16 12:00:52.297616+00', NULL),
	(8, 1, true, '2026-11-16 12:00:54.609503+00', NULL),
	(9, 1, true, '2026-11-16 12:00:55.860812+00', NULL);
-- Data for Name: shared_queries; Type: TABLE DATA; Schema: penstock; Owner: -
-- Data for Name: shared_state; Type: TABLE DATA; Schema: penstock; Owner: -
-- Data for Name: shed; Type: TABLE DATA; Schema: penstock; Owner: -
-- Data for Name: sink_totals; Type: TABLE DATA; Schema: penstock; Owner: -
INSERT INTO penstock.sink_totals VALUES
	(2, 'exactly_once', 8, 1, 0, 0, 0, 0, false, false, NULL, '2026-11-16 12:00:51.477287+00');
-- Data for Name: sources; Type: TABLE DATA; Schema: penstock; Owner: -
-- Data for Name: state_1; Type: TABLE DATA; Schema: penstock; Owner: -
INSERT INTO penstock.state_1 VALUES
	('', '2023-11-14 22:00:25+00', '2023-11-14 22:00:30+00', 0, 581.760000000000000000, 8, 581.760000000000000000, 8, '{8,72.72,23723.021999999997}', '{o101,o104,o105,o106,o109,o110,o112,o117}', 169.540000000000000000, '2026-11-16 12:00:52.139298+00'),
	('ada', '2023-11-14 22:00:25+00', '2023-11-14 22:00:30+00', 0, 210.750000000000000000, 2, 210.750000000000000000, 2, '{2,105.375,199.40044999999998}', '{o114,o95}', 115.360000000000000000, '2026-11-16 12:00:52.139298+00'),
	('cyd', '2023-11-14 22:00:25+00', '2023-11-14 22:00:30+00', 0, 321.320000000000000000, 3, 321.320000000000000000, 3, '{3,107.10666666666668,8039.264066666667}', '{o97,o113,o116}', 174.110000000000000000, '2026-11-16 12:00:51.947033+00'),
	('bob', '2023-11-14 22:00:25+00', '2023-11-14 22:00:30+00', 0, 828.710000000000000000, 7, 828.710000000000000000, 7, '{7,118.38714285714286,13071.20754285714}', '{o100,o102,o103,o107,o108,o111,o99}', 191.420000000000000000, '2026-11-16 12:00:52.139298+00'),
	('cyd', '2023-11-14 22:00:30+00', '2023-11-14 22:00:35+00', 0, 175.230000000000000000, 1, 175.230000000000000000, 1, '{1,175.23,0}', '{o119}', 175.230000000000000000, '2026-11-16 12:00:51.947033+00'),
	('ada', '2023-11-14 22:00:30+00', '2023-11-14 22:00:35+00', 0, 107.320000000000000000, 2, 107.320000000000000000, 2, '{2,53.660000000000004,3777.5432}', '{o118,o115}', 97.120000000000000000, '2026-11-16 12:00:52.139298+00');
-- Data for Name: state_3; Type: TABLE DATA; Schema: penstock; Owner: -
INSERT INTO penstock.state_3 VALUES
	('CYD', '2023-11-14 22:00:20+00', '2023-11-14 22:00:30+00', 0, 'CYD', 1230.500000000000000000, 9, '2026-11-16 12:00:54.453182+00'),
	('CYD', '2023-11-14 22:00:30+00', '2023-11-14 22:00:40+00', 0, 'CYD', 175.230000000000000000, 1, '2026-11-16 12:00:54.453182+00'),
	('', '2023-11-14 22:00:20+00', '2023-11-14 22:00:30+00', 0, NULL, 1074.600000000000000000, 12, '2026-11-16 12:00:54.579892+00'),
	('ADA', '2023-11-14 22:00:20+00', '2023-11-14 22:00:30+00', 0, 'ADA', 574.970000000000000000, 5, '2026-11-16 12:00:54.579892+00'),
	('ADA', '2023-11-14 22:00:30+00', '2023-11-14 22:00:40+00', 0, 'ADA', 107.320000000000000000, 2, '2026-11-16 12:00:54.579892+00'),
	('BOB', '2023-11-14 22:00:20+00', '2023-11-14 22:00:30+00', 0, 'BOB', 1548.510000000000000000, 15, '2026-11-16 12:00:54.579892+00');
-- Data for Name: state_4; Type: TABLE DATA; Schema: penstock; Owner: -
INSERT INTO penstock.state_4 VALUES
	('cyd', '2023-11-14 22:00:28.322+00', '2023-11-14 22:00:32.974+00', 0, 397.400000000000000000, 3, '2026-11-16 12:00:55.677004+00'),
	('', '2023-11-14 22:00:24.846+00', '2023-11-14 22:00:31.777+00', 0, 714.120000000000000000, 9, '2026-11-16 12:00:55.8224+00'),
	('ada', '2023-11-14 22:00:29.382+00', '2023-11-14 22:00:32.918+00', 0, 202.710000000000000000, 3, '2026-11-16 12:00:55.8224+00'),
	('bob', '2023-11-14 22:00:02.38+00', '2023-11-14 22:00:30.652+00', 0, 3833.700000000000000000, 38, '2026-11-16 12:00:55.8224+00');
-- Data for Name: trace_names; Type: TABLE DATA; Schema: penstock; Owner: -
-- Data for Name: traces; Type: TABLE DATA; Schema: penstock; Owner: -
-- Data for Name: uploads; Type: TABLE DATA; Schema: penstock; Owner: -
-- Data for Name: waiting_5; Type: TABLE DATA; Schema: penstock; Owner: -
INSERT INTO penstock.waiting_5 OVERRIDING SYSTEM VALUE VALUES
	(91, 0, '["o73"]', 1699999220045000, 2, 23, NULL, '{"id":"o73","customer":null,"amount":173.04,"ts":1699999220.045}', true),
	(100, 1, '["o93"]', 1699999224078000, 4, 25, 'o93', '{"order":"o93","n":93,"ts":1699999224.078}', false),
	(101, 1, '["o101"]', 1699999227191000, 4, 26, 'o101', '{"order":"o101","n":101,"ts":1699999227.191}', false),
	(102, 1, '["o108"]', 1699999229127000, 4, 27, 'o108', '{"order":"o108","n":108,"ts":1699999229.127}', false),
	(103, 0, '["o113"]', 1699999228322000, 2, 35, 'cyd', '{"id":"o113","customer":"cyd","amount":48.06,"ts":1699999228.322}', false),
	(104, 0, '["o116"]', 1699999229623000, 2, 36, 'cyd', '{"id":"o116","customer":"cyd","amount":174.11,"ts":1699999229.623}', false),
	(105, 0, '["o119"]', 1699999230974000, 2, 37, 'cyd', '{"id":"o119","customer":"cyd","amount":175.23,"ts":1699999230.974}', false),
	(130, 0, '["o71"]', 1699999219719000, 1, 48, 'bob', '{"id":"o71","customer":"bob","amount":165.43,"ts":1699999219.719}', true),
	(133, 0, '["o75"]', 1699999220356000, 2, 24, 'cyd', '{"id":"o75","customer":"cyd","amount":161.61,"ts":1699999220.356}', false),
	(134, 0, '["o76"]', 1699999219132000, 2, 25, 'cyd', '{"id":"o76","customer":"cyd","amount":133.42,"ts":1699999219.132}', false),
	(135, 0, '["o77"]', 1699999221054000, 1, 51, 'bob', '{"id":"o77","customer":"bob","amount":55.26,"ts":1699999221.054}', false),
	(136, 0, '["o78"]', 1699999220354000, 1, 52, 'bob', '{"id":"o78","customer":"bob","amount":77.22,"ts":1699999220.354}', false),
	(137, 0, '["o79"]', 1699999221266000, 2, 26, 'cyd', '{"id":"o79","customer":"cyd","amount":177.12,"ts":1699999221.266}', true),
	(138, 0, '["o80"]', 1699999221877000, 1, 53, 'bob', '{"id":"o80","customer":"bob","amount":94.6,"ts":1699999221.877}', true),
	(139, 0, '["o81"]', 1699999221255000, 2, 27, NULL, '{"id":"o81","customer":null,"amount":82.14,"ts":1699999221.255}', false),
	(140, 0, '["o82"]', 1699999221771000, 2, 28, 'cyd', '{"id":"o82","customer":"cyd","amount":2.3,"ts":1699999221.771}', true),
	(141, 0, '["o83"]', 1699999220904000, 2, 29, 'cyd', '{"id":"o83","customer":"cyd","amount":161.46,"ts":1699999220.904}', false),
	(142, 0, '["o87"]', 1699999222047000, 2, 30, NULL, '{"id":"o87","customer":null,"amount":105.3,"ts":1699999222.047}', true),
	(143, 1, '["o88"]', 1699999225420000, 3, 26, 'o88', '{"order":"o88","n":88,"ts":1699999225.42}', false),
	(144, 0, '["o89"]', 1699999223278000, 2, 31, 'cyd', '{"id":"o89","customer":"cyd","amount":188.35,"ts":1699999223.278}', true),
	(145, 1, '["o89"]', 1699999226325000, 3, 28, 'o89', '{"order":"o89","n":89,"ts":1699999226.325}', false),
	(146, 0, '["o91"]', 1699999223183000, 2, 32, 'cyd', '{"id":"o91","customer":"cyd","amount":77.71,"ts":1699999223.183}', false),
	(147, 0, '["o92"]', 1699999223751000, 2, 33, 'cyd', '{"id":"o92","customer":"cyd","amount":142.93,"ts":1699999223.751}', false),
	(148, 1, '["o94"]', 1699999227008000, 3, 29, 'o94', '{"order":"o94","n":94,"ts":1699999227.008}', false),
	(149, 1, '["o95"]', 1699999226193000, 3, 27, 'o95', '{"order":"o95","n":95,"ts":1699999226.193}', false),
	(150, 0, '["o97"]', 1699999225149000, 2, 34, 'cyd', '{"id":"o97","customer":"cyd","amount":99.15,"ts":1699999225.149}', false),
	(151, 0, '["o100"]', 1699999226529000, 1, 65, 'bob', '{"id":"o100","customer":"bob","amount":75.37,"ts":1699999226.529}', false),
	(152, 0, '["o101"]', 1699999226161000, 1, 66, NULL, '{"id":"o101","customer":null,"amount":23.38,"ts":1699999226.161}', true),
	(153, 0, '["o102"]', 1699999226943000, 1, 67, 'bob', '{"id":"o102","customer":"bob","amount":116.34,"ts":1699999226.943}', false),
	(154, 0, '["o103"]', 1699999226718000, 1, 68, 'bob', '{"id":"o103","customer":"bob","amount":191.42,"ts":1699999226.718}', false),
	(155, 0, '["o104"]', 1699999226263000, 1, 69, NULL, '{"id":"o104","customer":null,"amount":28.79,"ts":1699999226.263}', false),
	(156, 0, '["o105"]', 1699999226705000, 1, 70, NULL, '{"id":"o105","customer":null,"amount":129.03,"ts":1699999226.705}', false),
	(157, 0, '["o106"]', 1699999227472000, 1, 71, NULL, '{"id":"o106","customer":null,"amount":124.01,"ts":1699999227.472}', false),
	(158, 0, '["o107"]', 1699999228652000, 1, 72, 'bob', '{"id":"o107","customer":"bob","amount":107.06,"ts":1699999228.652}', false),
	(159, 0, '["o108"]', 1699999227985000, 1, 73, 'bob', '{"id":"o108","customer":"bob","amount":56.87,"ts":1699999227.985}', true),
	(160, 0, '["o109"]', 1699999228063000, 1, 74, NULL, '{"id":"o109","customer":null,"amount":32.16,"ts":1699999228.063}', false),
	(161, 0, '["o110"]', 1699999229419000, 1, 75, NULL, '{"id":"o110","customer":null,"amount":32.6,"ts":1699999229.419}', false),
	(162, 0, '["o111"]', 1699999227811000, 1, 76, 'bob', '{"id":"o111","customer":"bob","amount":162.77,"ts":1699999227.811}', false),
	(163, 0, '["o112"]', 1699999228398000, 1, 77, NULL, '{"id":"o112","customer":null,"amount":42.25,"ts":1699999228.398}', false),
	(164, 0, '["o114"]', 1699999229382000, 1, 78, 'ada', '{"id":"o114","customer":"ada","amount":95.39,"ts":1699999229.382}', false),
	(165, 0, '["o115"]', 1699999230447000, 1, 79, 'ada', '{"id":"o115","customer":"ada","amount":97.12,"ts":1699999230.447}', false),
	(166, 0, '["o117"]', 1699999229777000, 1, 80, NULL, '{"id":"o117","customer":null,"amount":169.54,"ts":1699999229.777}', false),
	(167, 0, '["o118"]', 1699999230918000, 1, 81, 'ada', '{"id":"o118","customer":"ada","amount":10.2,"ts":1699999230.918}', false),
	(168, 0, '["o84"]', 1699999221756000, 1, 54, 'ada', '{"id":"o84","customer":"ada","amount":168.84,"ts":1699999221.756}', true),
	(169, 0, '["o85"]', 1699999223112000, 1, 55, 'bob', '{"id":"o85","customer":"bob","amount":23.13,"ts":1699999223.112}', false),
	(170, 0, '["o86"]', 1699999222180000, 1, 56, 'ada', '{"id":"o86","customer":"ada","amount":94.54,"ts":1699999222.18}', true),
	(171, 0, '["o88"]', 1699999222617000, 1, 57, 'bob', '{"id":"o88","customer":"bob","amount":87.18,"ts":1699999222.617}', true),
	(172, 0, '["o90"]', 1699999222708000, 1, 58, 'bob', '{"id":"o90","customer":"bob","amount":142.95,"ts":1699999222.708}', false),
	(173, 0, '["o93"]', 1699999224059000, 1, 59, 'ada', '{"id":"o93","customer":"ada","amount":100.84,"ts":1699999224.059}', true),
	(174, 0, '["o94"]', 1699999223524000, 1, 60, 'bob', '{"id":"o94","customer":"bob","amount":103.5,"ts":1699999223.524}', true),
	(175, 0, '["o95"]', 1699999225100000, 1, 61, 'ada', '{"id":"o95","customer":"ada","amount":115.36,"ts":1699999225.1}', true),
	(176, 0, '["o96"]', 1699999224846000, 1, 62, NULL, '{"id":"o96","customer":null,"amount":132.36,"ts":1699999224.846}', false),
	(177, 0, '["o98"]', 1699999224926000, 1, 63, 'bob', '{"id":"o98","customer":"bob","amount":135.96,"ts":1699999224.926}', false),
	(178, 0, '["o99"]', 1699999226224000, 1, 64, 'bob', '{"id":"o99","customer":"bob","amount":118.88,"ts":1699999226.224}', false);
-- Data for Name: writes; Type: TABLE DATA; Schema: penstock; Owner: -
INSERT INTO penstock.writes VALUES
	(3, 'nightly', 1, '', true, 1, '2026-11-16 12:00:57.891347+00');
-- Data for Name: delivered; Type: TABLE DATA; Schema: public; Owner: -
INSERT INTO public.delivered VALUES
	(NULL, '2023-11-14 22:00:00+00', 5),
	('ada', '2023-11-14 22:00:00+00', 5),
	('bob', '2023-11-14 22:00:00+00', 3),
	(NULL, '2023-11-14 22:00:05+00', 3),
	('ada', '2023-11-14 22:00:05+00', 3),
	('bob', '2023-11-14 22:00:05+00', 5),
	('cyd', '2023-11-14 22:00:00+00', 4),
	('cyd', '2023-11-14 22:00:05+00', 8);
-- Name: audit_id_seq; Type: SEQUENCE SET; Schema: penstock; Owner: -
SELECT pg_catalog.setval('penstock.audit_id_seq', 1, false);
-- Name: dead_letters_id_seq; Type: SEQUENCE SET; Schema: penstock; Owner: -
SELECT pg_catalog.setval('penstock.dead_letters_id_seq', 1, false);
-- Name: groups_id_seq; Type: SEQUENCE SET; Schema: penstock; Owner: -
SELECT pg_catalog.setval('penstock.groups_id_seq', 8, true);
-- Name: partitions_id_seq; Type: SEQUENCE SET; Schema: penstock; Owner: -
SELECT pg_catalog.setval('penstock.partitions_id_seq', 42, true);
-- Name: queries_id_seq; Type: SEQUENCE SET; Schema: penstock; Owner: -
SELECT pg_catalog.setval('penstock.queries_id_seq', 6, true);
-- Name: queues_id_seq; Type: SEQUENCE SET; Schema: penstock; Owner: -
SELECT pg_catalog.setval('penstock.queues_id_seq', 9, true);
-- Name: shared_queries_id_seq; Type: SEQUENCE SET; Schema: penstock; Owner: -
SELECT pg_catalog.setval('penstock.shared_queries_id_seq', 1, false);
-- Name: traces_id_seq; Type: SEQUENCE SET; Schema: penstock; Owner: -
SELECT pg_catalog.setval('penstock.traces_id_seq', 1, false);
-- Name: uploads_id_seq; Type: SEQUENCE SET; Schema: penstock; Owner: -
SELECT pg_catalog.setval('penstock.uploads_id_seq', 1, true);
-- Name: waiting_5_id_seq; Type: SEQUENCE SET; Schema: penstock; Owner: -
SELECT pg_catalog.setval('penstock.waiting_5_id_seq', 178, true);
-- Name: api_keys api_keys_pkey; Type: CONSTRAINT; Schema: penstock; Owner: -
ALTER TABLE ONLY penstock.api_keys
    ADD CONSTRAINT api_keys_pkey PRIMARY KEY (id);
-- Name: audit audit_pkey; Type: CONSTRAINT; Schema: penstock; Owner: -
ALTER TABLE ONLY penstock.audit
    ADD CONSTRAINT audit_pkey PRIMARY KEY (id);
-- Name: chunks_1_1 chunks_1_1_pkey; Type: CONSTRAINT; Schema: penstock; Owner: -
ALTER TABLE ONLY penstock.chunks_1_1
    ADD CONSTRAINT chunks_1_1_pkey PRIMARY KEY (partition_id, end_offset);
-- Name: chunks_2_1 chunks_2_1_pkey; Type: CONSTRAINT; Schema: penstock; Owner: -
ALTER TABLE ONLY penstock.chunks_2_1
    ADD CONSTRAINT chunks_2_1_pkey PRIMARY KEY (partition_id, end_offset);
-- Name: chunks_3_1 chunks_3_1_pkey; Type: CONSTRAINT; Schema: penstock; Owner: -
ALTER TABLE ONLY penstock.chunks_3_1
    ADD CONSTRAINT chunks_3_1_pkey PRIMARY KEY (partition_id, end_offset);
-- Name: chunks_4_1 chunks_4_1_pkey; Type: CONSTRAINT; Schema: penstock; Owner: -
ALTER TABLE ONLY penstock.chunks_4_1
    ADD CONSTRAINT chunks_4_1_pkey PRIMARY KEY (partition_id, end_offset);
-- Name: chunks_5_1 chunks_5_1_pkey; Type: CONSTRAINT; Schema: penstock; Owner: -
ALTER TABLE ONLY penstock.chunks_5_1
    ADD CONSTRAINT chunks_5_1_pkey PRIMARY KEY (partition_id, end_offset);
-- Name: chunks_6_1 chunks_6_1_pkey; Type: CONSTRAINT; Schema: penstock; Owner: -
ALTER TABLE ONLY penstock.chunks_6_1
    ADD CONSTRAINT chunks_6_1_pkey PRIMARY KEY (partition_id, end_offset);
-- Name: chunks_7_1 chunks_7_1_pkey; Type: CONSTRAINT; Schema: penstock; Owner: -
ALTER TABLE ONLY penstock.chunks_7_1
    ADD CONSTRAINT chunks_7_1_pkey PRIMARY KEY (partition_id, end_offset);
-- Name: chunks_8_1 chunks_8_1_pkey; Type: CONSTRAINT; Schema: penstock; Owner: -
ALTER TABLE ONLY penstock.chunks_8_1
    ADD CONSTRAINT chunks_8_1_pkey PRIMARY KEY (partition_id, end_offset);
-- Name: chunks_9_1 chunks_9_1_pkey; Type: CONSTRAINT; Schema: penstock; Owner: -
ALTER TABLE ONLY penstock.chunks_9_1
    ADD CONSTRAINT chunks_9_1_pkey PRIMARY KEY (partition_id, end_offset);
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
-- Name: history_1 history_1_pkey; Type: CONSTRAINT; Schema: penstock; Owner: -
ALTER TABLE ONLY penstock.history_1
    ADD CONSTRAINT history_1_pkey PRIMARY KEY (window_end, key, window_start);
-- Name: history_3 history_3_pkey; Type: CONSTRAINT; Schema: penstock; Owner: -
ALTER TABLE ONLY penstock.history_3
    ADD CONSTRAINT history_3_pkey PRIMARY KEY (window_end, key, window_start);
-- Name: history_4 history_4_pkey; Type: CONSTRAINT; Schema: penstock; Owner: -
ALTER TABLE ONLY penstock.history_4
    ADD CONSTRAINT history_4_pkey PRIMARY KEY (window_end, key, window_start);
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
-- Name: state_1 state_1_pkey; Type: CONSTRAINT; Schema: penstock; Owner: -
ALTER TABLE ONLY penstock.state_1
    ADD CONSTRAINT state_1_pkey PRIMARY KEY (window_end, key, window_start);
-- Name: state_3 state_3_pkey; Type: CONSTRAINT; Schema: penstock; Owner: -
ALTER TABLE ONLY penstock.state_3
    ADD CONSTRAINT state_3_pkey PRIMARY KEY (window_end, key, window_start);
-- Name: state_4 state_4_pkey; Type: CONSTRAINT; Schema: penstock; Owner: -
ALTER TABLE ONLY penstock.state_4
    ADD CONSTRAINT state_4_pkey PRIMARY KEY (window_end, key, window_start);
-- Name: trace_names trace_names_pkey; Type: CONSTRAINT; Schema: penstock; Owner: -
ALTER TABLE ONLY penstock.trace_names
    ADD CONSTRAINT trace_names_pkey PRIMARY KEY (name, trace_id);
-- Name: traces traces_pkey; Type: CONSTRAINT; Schema: penstock; Owner: -
ALTER TABLE ONLY penstock.traces
    ADD CONSTRAINT traces_pkey PRIMARY KEY (id);
-- Name: uploads uploads_pkey; Type: CONSTRAINT; Schema: penstock; Owner: -
ALTER TABLE ONLY penstock.uploads
    ADD CONSTRAINT uploads_pkey PRIMARY KEY (id);
-- Name: waiting_5 waiting_5_pkey; Type: CONSTRAINT; Schema: penstock; Owner: -
ALTER TABLE ONLY penstock.waiting_5
    ADD CONSTRAINT waiting_5_pkey PRIMARY KEY (key, side, time_us, id);
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
-- Name: history_1_closed; Type: INDEX; Schema: penstock; Owner: -
CREATE INDEX history_1_closed ON penstock.history_1 USING brin (closed_at);
-- Name: history_3_closed; Type: INDEX; Schema: penstock; Owner: -
CREATE INDEX history_3_closed ON penstock.history_3 USING brin (closed_at);
-- Name: history_4_closed; Type: INDEX; Schema: penstock; Owner: -
CREATE INDEX history_4_closed ON penstock.history_4 USING brin (closed_at);
-- Name: ids_1_1_hash; Type: INDEX; Schema: penstock; Owner: -
CREATE INDEX ids_1_1_hash ON penstock.ids_1_1 USING btree (hash);
-- Name: ids_2_1_hash; Type: INDEX; Schema: penstock; Owner: -
CREATE INDEX ids_2_1_hash ON penstock.ids_2_1 USING btree (hash);
-- Name: ids_3_1_hash; Type: INDEX; Schema: penstock; Owner: -
CREATE INDEX ids_3_1_hash ON penstock.ids_3_1 USING btree (hash);
-- Name: ids_4_1_hash; Type: INDEX; Schema: penstock; Owner: -
CREATE INDEX ids_4_1_hash ON penstock.ids_4_1 USING btree (hash);
-- Name: ids_5_1_hash; Type: INDEX; Schema: penstock; Owner: -
CREATE INDEX ids_5_1_hash ON penstock.ids_5_1 USING btree (hash);
-- Name: ids_6_1_hash; Type: INDEX; Schema: penstock; Owner: -
CREATE INDEX ids_6_1_hash ON penstock.ids_6_1 USING btree (hash);
-- Name: ids_7_1_hash; Type: INDEX; Schema: penstock; Owner: -
CREATE INDEX ids_7_1_hash ON penstock.ids_7_1 USING btree (hash);
-- Name: ids_8_1_hash; Type: INDEX; Schema: penstock; Owner: -
CREATE INDEX ids_8_1_hash ON penstock.ids_8_1 USING btree (hash);
-- Name: ids_9_1_hash; Type: INDEX; Schema: penstock; Owner: -
CREATE INDEX ids_9_1_hash ON penstock.ids_9_1 USING btree (hash);
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
-- Name: state_4_key; Type: INDEX; Schema: penstock; Owner: -
CREATE INDEX state_4_key ON penstock.state_4 USING btree (key);
-- Name: trace_names_trace; Type: INDEX; Schema: penstock; Owner: -
CREATE INDEX trace_names_trace ON penstock.trace_names USING btree (trace_id);
-- Name: traces_created; Type: INDEX; Schema: penstock; Owner: -
CREATE INDEX traces_created ON penstock.traces USING btree (created_at);
-- Name: traces_event; Type: INDEX; Schema: penstock; Owner: -
CREATE INDEX traces_event ON penstock.traces USING btree (partition_id, event_id, id);
-- Name: waiting_5_times; Type: INDEX; Schema: penstock; Owner: -
CREATE INDEX waiting_5_times ON penstock.waiting_5 USING btree (side, time_us);
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
