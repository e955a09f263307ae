-- Push from SQL. A call of push() or push_many() is a row of the inbox, in the transaction of the caller. A process of
-- Penstock, the mover, appends the events of committed rows to their queues as chunks and deletes the rows.

-- The order in which the mover takes rows. A number is drawn during a commit and not when the row is inserted, because
-- transactions commit in another order. A row takes as many numbers as it has events.
CREATE SEQUENCE penstock.inbox_sequence;
-- The last number is one that was drawn, from the beginning.
SELECT setval('penstock.inbox_sequence', 1);

CREATE TABLE penstock.inbox (
    id       bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    -- No foreign key: it would lock the row of the queue until the caller commits.
    queue_id integer NOT NULL,
    -- A line of JSON for each event. An array is null if no event has a value.
    data     text NOT NULL,
    keys     text[],
    ids      text[],
    times    timestamptz[],
    headers  jsonb[]
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 10000, autovacuum_vacuum_cost_delay = 0);
-- Rows are short-lived, and compression would take half of the time of a large push.
ALTER TABLE penstock.inbox
    ALTER COLUMN data SET STORAGE EXTERNAL, ALTER COLUMN keys SET STORAGE EXTERNAL, ALTER COLUMN ids SET STORAGE EXTERNAL,
    ALTER COLUMN times SET STORAGE EXTERNAL, ALTER COLUMN headers SET STORAGE EXTERNAL;

-- The rows of the inbox in order.
CREATE TABLE penstock.inbox_order (
    sequence bigint PRIMARY KEY,
    inbox_id bigint NOT NULL,
    queue_id integer NOT NULL,
    events   integer NOT NULL,
    bytes    integer NOT NULL
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 10000, autovacuum_vacuum_cost_delay = 0);

-- One row. No transaction can add a row of the inbox with a number up to floor any more, and all such rows were moved.
-- Reads start there, so they do not walk over deleted rows that a long transaction keeps.
CREATE TABLE penstock.inbox_state (
    floor bigint NOT NULL
) WITH (fillfactor = 10);
INSERT INTO penstock.inbox_state VALUES (0);

-- Queues that refuse pushes from SQL because they are at their maximum depth. The mover measures it.
CREATE TABLE penstock.full_queues (
    queue_id    integer PRIMARY KEY REFERENCES penstock.queues ON DELETE CASCADE,
    reason      text NOT NULL,
    measured_at timestamptz NOT NULL
);

-- Events that wait in the inbox.
CREATE VIEW penstock.inbox_depth AS
SELECT o.queue_id, sum(o.events)::bigint AS events
FROM penstock.inbox_order o WHERE o.sequence > (SELECT s.floor FROM penstock.inbox_state s)
GROUP BY o.queue_id;

-- Lag and depth count the inbox.
CREATE OR REPLACE VIEW penstock.lag AS
SELECT q.name AS queue, g.name AS group_name,
       (SELECT count(*) FROM penstock.cursors c WHERE c.group_id = g.id) AS partitions,
       s.partitions_behind, s.lag + coalesce(i.events, 0) AS lag, s.leases, g.counts, w.seen_at,
       -- A group without pops for long does not count for the depth limit of the queue.
       coalesce(r.lease_until = 'epoch'
                OR w.seen_at < clock_timestamp() - make_interval(secs => q.away_seconds + q.delay_seconds), false) AS away
FROM penstock.queues q
JOIN penstock.groups g ON g.queue_id = q.id
LEFT JOIN penstock.queries r ON r.name = g.query_id
LEFT JOIN penstock.inbox_depth i ON i.queue_id = q.id
CROSS JOIN LATERAL (SELECT greatest(g.seen_at, r.lease_until) AS seen_at) w
CROSS JOIN LATERAL (
    SELECT count(*) FILTER (WHERE s.end_offset > s.next_offset) AS partitions_behind,
           coalesce(sum(greatest(s.end_offset - s.next_offset, 0)), 0)::bigint AS lag,
           count(*) FILTER (WHERE s.leased) AS leases
    FROM penstock.partition_progress(g.id, q.id, q.segment) s
) s;

CREATE OR REPLACE VIEW penstock.depth AS
SELECT q.name AS queue, d.partitions, d.events + coalesce(i.events, 0) AS events, d.appended, q.max_depth_events,
       (SELECT coalesce(sum(s.events), 0)::bigint FROM penstock.shed_events s WHERE s.queue_id = q.id) AS shed,
       coalesce(i.events, 0) AS inbox
FROM penstock.queues q
LEFT JOIN penstock.inbox_depth i ON i.queue_id = q.id
CROSS JOIN LATERAL (
    SELECT count(*) AS partitions, coalesce(sum(p.end_offset - p.first_offset), 0)::bigint AS events,
           coalesce(sum(p.end_offset), 0)::bigint AS appended
    FROM penstock.partitions_of(q.id, q.segment) p
) d;

CREATE FUNCTION penstock.inbox_events(_queue integer) RETURNS bigint
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
    SELECT coalesce(sum(o.events), 0)::bigint
    FROM penstock.inbox_order o
    WHERE o.sequence > (SELECT s.floor FROM penstock.inbox_state s) AND o.queue_id = _queue
$$;

-- Fires just before the commit of a transaction that has pushed, once for each row, and draws the number of the row.
--
-- Before that, it takes a shared lock that nobody else ever waits for: it tells the mover that this transaction will draw
-- numbers above a bound for a queue. PostgreSQL releases the lock when the commit is visible. The mover reads the last
-- number, then the locks, then rows up to the lowest bound of their queue. So all transactions that could still add a row
-- up to there have ended, and a row never appears behind one that was moved. If a commit was visible before another
-- began, its numbers are lower; commits that overlap may have either order.
--
-- A transaction takes the lock once for each queue, and lists the queues in a setting, which a rollback to a savepoint
-- resets with the lock. After SET CONSTRAINTS ... IMMEDIATE it fires with each push, and the mover waits for the commit.
CREATE FUNCTION penstock.order_inbox() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    _announced text := coalesce(current_setting('penstock.announced', true), '');
    _events integer := 1 + length(NEW.data) - length(replace(NEW.data, E'\n', ''));
BEGIN
    IF strpos(_announced, ',' || NEW.queue_id || ',') = 0 THEN
        -- A mark in the highest byte, 20 bits of the queue's id, 36 bits of the bound.
        PERFORM pg_advisory_xact_lock_shared(
            (80::bigint << 56) | ((NEW.queue_id & 1048575)::bigint << 36) | (s.last_value & 68719476735))
        FROM penstock.inbox_sequence s;
        PERFORM set_config('penstock.announced', _announced || ',' || NEW.queue_id || ',', true);
    END IF;
    INSERT INTO penstock.inbox_order (sequence, inbox_id, queue_id, events, bytes)
    VALUES (CASE WHEN _events = 1 THEN nextval('penstock.inbox_sequence')
                 ELSE (SELECT max(nextval('penstock.inbox_sequence')) FROM generate_series(1, _events)) END,
            NEW.id, NEW.queue_id, _events, octet_length(NEW.data));
    -- The mover holds this lock alone while it sleeps. NOTIFY takes a lock on the whole cluster, so it is sent to wake the
    -- mover only. A push that gets the lock keeps it until its commit is visible; the mover looks once more after it
    -- has got the lock. A transaction that has sent NOTIFY cannot be prepared: where that is possible, the mover never
    -- sleeps for long.
    IF NOT pg_try_advisory_xact_lock_shared(1885695604, 1) AND current_setting('max_prepared_transactions') = '0' THEN
        PERFORM pg_notify('penstock', 'inbox');
    END IF;
    RETURN NULL;
END
$$;

CREATE CONSTRAINT TRIGGER order_inbox AFTER INSERT ON penstock.inbox
DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION penstock.order_inbox();
-- Also in sessions that replicate or restore, which would leave their rows without an order.
ALTER TABLE penstock.inbox ENABLE ALWAYS TRIGGER order_inbox;

-- Raises an error for the first event that a queue does not accept. push_many() calls it if there may be one.
CREATE FUNCTION penstock.refuse_events(
    _max_bytes integer, _data jsonb[], _keys text[], _ids text[], _times timestamptz[], _headers jsonb[]
) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    _problem text;
BEGIN
    SELECT format('event %s: %s', e.number - 1, p.problem) INTO _problem
    FROM unnest(_data, coalesce(_keys, '{}'), coalesce(_ids, '{}'), coalesce(_times, '{}'), coalesce(_headers, '{}'))
        WITH ORDINALITY AS e (data, key, event_id, event_time, headers, number)
    CROSS JOIN LATERAL (
        SELECT CASE
            WHEN e.data IS NULL THEN 'data: is NULL; JSON''s null is ''null''::jsonb'
            WHEN octet_length(e.data::text) > _max_bytes THEN format(
                'data: is %s bytes of JSON and the limit is %s; store it elsewhere and push a reference, or raise '
                'max_event_bytes of the queue', octet_length(e.data::text), _max_bytes)
            WHEN e.key = '' THEN 'key: must not be empty; leave it out for an event without a key'
            WHEN octet_length(e.key) > 1024 THEN format(
                'key: may have up to 1024 bytes; this one has %s', octet_length(e.key))
            WHEN e.event_id = '' THEN 'event_id: must not be empty; leave it out for an event without an id'
            WHEN octet_length(e.event_id) > 256 THEN 'event_id: may have 256 bytes'
            WHEN e.event_time < '0001-01-01 00:00:00+00' OR e.event_time >= '10000-01-01 00:00:00+00' THEN
                'event_time: is not in the years 1 to 9999 of UTC'
            WHEN jsonb_typeof(e.headers) <> 'object' OR jsonb_path_exists(e.headers, '$.* ? (@.type() != "string")') THEN
                'headers: must be an object of text, such as {"source": "shop"}'
            WHEN octet_length(e.headers::text) > 65536 THEN 'headers: take more than 64 KiB'
        END AS problem
    ) p
    WHERE p.problem IS NOT NULL ORDER BY e.number LIMIT 1;
    IF FOUND THEN
        RAISE EXCEPTION '%', _problem USING ERRCODE = 'invalid_parameter_value';
    END IF;
END
$$;

-- Admits a push to a queue, or raises an error. The id is null if the queue is full and drops events.
CREATE FUNCTION penstock.admit_push(_queue text, _events integer, OUT id integer, OUT max_event_bytes integer)
LANGUAGE plpgsql AS $$
DECLARE
    _row record;
BEGIN
    SELECT q.id, q.encrypted, coalesce(q.max_event_bytes, 1048576) AS max_event_bytes, q.overflow, q.max_depth_events,
           (SELECT f.reason FROM penstock.full_queues f WHERE f.queue_id = q.id) AS reason,
           (SELECT s.last_value FROM penstock.inbox_sequence s) - (SELECT s.floor FROM penstock.inbox_state s) AS waiting
    INTO _row FROM penstock.queues q WHERE q.name = _queue;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'there is no queue %', quote_nullable(_queue) USING ERRCODE = 'undefined_object',
            HINT = 'Create it with `penstock queue create`.';
    ELSIF _row.encrypted THEN
        RAISE EXCEPTION 'queue % is encrypted, and PostgreSQL has no key: it cannot take pushes from SQL', quote_literal(_queue)
            USING ERRCODE = 'feature_not_supported', HINT = 'Push to it through a server or a client of Penstock.';
    END IF;
    -- The difference counts the events of all queues, and some that were moved or rolled back.
    IF _row.reason IS NULL AND _row.waiting + _events > _row.max_depth_events THEN
        _row.waiting := penstock.inbox_events(_row.id);
        -- A push that never fits is accepted if nothing waits.
        IF _row.waiting > 0 AND _row.waiting + _events > _row.max_depth_events THEN
            _row.reason := format(
                'queue %L is full: %s events wait in the inbox and %s are allowed; start a server, a query or another '
                'process of Penstock, which moves them, or raise max_depth_events',
                _queue, _row.waiting, _row.max_depth_events);
        END IF;
    END IF;
    max_event_bytes := _row.max_event_bytes;
    IF _row.reason IS NULL THEN
        id := _row.id;
    ELSIF _row.overflow = 'shed' THEN
        INSERT INTO penstock.shed_events (queue_id, events, shed_at) VALUES (_row.id, _events, clock_timestamp());
    ELSE
        RAISE EXCEPTION '%', _row.reason USING ERRCODE = 'PS002';
    END IF;
END
$$;

-- Pushes an event to a queue, in the transaction of the caller. Returns 1, or 0 if the queue is full and drops events
-- (overflow = 'shed').
CREATE FUNCTION penstock.push(
    queue text, data jsonb, key text DEFAULT NULL, event_id text DEFAULT NULL, event_time timestamptz DEFAULT NULL,
    headers jsonb DEFAULT NULL
) RETURNS integer LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    _admitted record := penstock.admit_push(queue, 1);
    _text text := data::text;
    _keys text[] := CASE WHEN key IS NOT NULL THEN ARRAY[key] END;
    _ids text[] := CASE WHEN event_id IS NOT NULL THEN ARRAY[event_id] END;
    _times timestamptz[] := CASE WHEN event_time IS NOT NULL THEN ARRAY[event_time] END;
    _headers jsonb[] := CASE WHEN headers IS NOT NULL THEN ARRAY[headers] END;
BEGIN
    IF _text IS NULL OR octet_length(_text) > _admitted.max_event_bytes OR octet_length(key) NOT BETWEEN 1 AND 1024
        OR octet_length(event_id) NOT BETWEEN 1 AND 256 OR event_time IS NOT NULL OR headers IS NOT NULL
    THEN
        PERFORM penstock.refuse_events(_admitted.max_event_bytes, ARRAY[data], _keys, _ids, _times, _headers);
    END IF;
    IF _admitted.id IS NULL THEN
        RETURN 0;
    END IF;
    INSERT INTO penstock.inbox (queue_id, data, keys, ids, times, headers)
    VALUES (_admitted.id, _text, _keys, _ids, _times, _headers);
    RETURN 1;
END
$$;

-- Pushes events to a queue, in order. Returns their number, or 0. The arrays beside the data are of the same length or left
-- out.
CREATE FUNCTION penstock.push_many(
    queue text, data jsonb[], keys text[] DEFAULT NULL, event_ids text[] DEFAULT NULL,
    event_times timestamptz[] DEFAULT NULL, headers jsonb[] DEFAULT NULL
) RETURNS integer LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    _events integer := cardinality(data);
    _admitted record := penstock.admit_push(queue, coalesce(_events, 0));
    _text text;
BEGIN
    IF _events IS NULL THEN
        RAISE EXCEPTION 'data is NULL; give an array of jsonb' USING ERRCODE = 'null_value_not_allowed';
    ELSIF _events > 10000 THEN
        RAISE EXCEPTION 'one call may push up to 10000 events; this one has %', _events USING ERRCODE = 'program_limit_exceeded';
    ELSIF _events <> ANY (ARRAY[coalesce(cardinality(keys), _events), coalesce(cardinality(event_ids), _events),
                                coalesce(cardinality(event_times), _events), coalesce(cardinality(headers), _events)]) THEN
        RAISE EXCEPTION 'the arrays must be of one length: there are % events, % keys, % ids, % times and % headers', _events,
            cardinality(keys), cardinality(event_ids), cardinality(event_times), cardinality(headers)
            USING ERRCODE = 'array_subscript_error';
    ELSIF _events = 0 THEN
        RETURN 0;
    END IF;
    _text := array_to_string(data, E'\n');
    -- An event is examined by itself only if one of them may be wrong.
    IF octet_length(_text) > _admitted.max_event_bytes OR array_position(data, NULL) IS NOT NULL
        OR event_times IS NOT NULL OR headers IS NOT NULL
        OR EXISTS (SELECT FROM unnest(keys) AS k WHERE octet_length(k) NOT BETWEEN 1 AND 1024)
        OR EXISTS (SELECT FROM unnest(event_ids) AS i WHERE octet_length(i) NOT BETWEEN 1 AND 256)
    THEN
        PERFORM penstock.refuse_events(_admitted.max_event_bytes, data, keys, event_ids, event_times, headers);
        IF octet_length(_text) > 67108864 THEN
            RAISE EXCEPTION 'one call may push up to 64 MiB; this one has % bytes', octet_length(_text)
                USING ERRCODE = 'program_limit_exceeded';
        END IF;
    END IF;
    IF _admitted.id IS NULL THEN
        RETURN 0;
    END IF;
    INSERT INTO penstock.inbox (queue_id, data, keys, ids, times, headers)
    VALUES (_admitted.id, _text, keys, event_ids, event_times, headers);
    RETURN _events;
END
$$;

-- Pushes a change of a row: {"op": "insert", "before": null, "after": {...}}. The key of the event is the value of the key
-- column, or a JSON array of the values of several. A change of the key is a deletion and an insertion.
CREATE FUNCTION penstock.push_change(_queue text, _op text, _before jsonb, _after jsonb, _columns text[]) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    _rows jsonb[] := ARRAY[_before, _after];
    _keys text[];
BEGIN
    IF NOT coalesce(_before, _after) ?& _columns THEN
        RAISE EXCEPTION 'a key column of the outbox for queue % does not exist any more: %', quote_literal(_queue), _columns
            USING ERRCODE = 'undefined_column', HINT = 'Run penstock.drop_outbox() and penstock.outbox() again.';
    END IF;
    _keys := ARRAY(
        SELECT CASE
            WHEN r.data IS NULL THEN NULL
            WHEN cardinality(_columns) = 1 AND r.data ->> _columns[1] <> '' THEN r.data ->> _columns[1]
            ELSE (SELECT jsonb_agg(r.data -> c.name ORDER BY c.number)::text
                  FROM unnest(_columns) WITH ORDINALITY AS c (name, number))
        END
        FROM unnest(_rows) WITH ORDINALITY AS r (data, number) ORDER BY r.number);
    IF _keys[1] <> _keys[2] THEN
        PERFORM penstock.push_many(_queue, ARRAY[
            jsonb_build_object('op', 'delete', 'before', _before, 'after', NULL),
            jsonb_build_object('op', 'insert', 'before', NULL, 'after', _after)], _keys);
    ELSE
        PERFORM penstock.push(
            _queue, jsonb_build_object('op', lower(_op), 'before', _before, 'after', _after), coalesce(_keys[2], _keys[1]));
    END IF;
END
$$;

CREATE FUNCTION penstock.outbox_name(_queue text, _prefix text DEFAULT 'penstock_outbox_') RETURNS name
LANGUAGE sql IMMUTABLE AS $$
    -- A name has up to 63 bytes.
    SELECT (_prefix || CASE WHEN octet_length(_prefix || _queue) <= 63 THEN _queue ELSE md5(_queue) END)::name
$$;

-- Pushes every change of a table to a queue, by triggers. The owner of the table runs it. The triggers call a function that
-- belongs to the owner and has the owner's rights, so roles that write to the table need no right to push.
CREATE FUNCTION penstock.outbox(queue text, source regclass, key_columns text[] DEFAULT NULL) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    _table record;
    _columns text[] := key_columns;
    _missing text;
    _name name := penstock.outbox_name(queue);
    _function text;
BEGIN
    SELECT c.relkind, c.relowner, c.relowner::regrole::text AS owner, n.nspname AS schema INTO STRICT _table
    FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE c.oid = source;
    IF _table.relkind NOT IN ('r', 'p') THEN
        RAISE EXCEPTION '% is not a table', source USING ERRCODE = 'wrong_object_type';
    ELSIF NOT pg_has_role(_table.relowner, 'USAGE') THEN
        RAISE EXCEPTION 'only the owner of table % can add an outbox: %', source, _table.owner
            USING ERRCODE = 'insufficient_privilege';
    ELSIF NOT has_function_privilege(
        _table.relowner, 'penstock.push(text, jsonb, text, text, timestamptz, jsonb)', 'EXECUTE')
    THEN
        RAISE EXCEPTION 'role % may not push', _table.owner USING ERRCODE = 'insufficient_privilege',
            HINT = 'Grant it the role penstock_pusher, or EXECUTE on the functions of the outbox.';
    ELSIF NOT penstock.has_queue(queue) THEN
        RAISE EXCEPTION 'there is no queue %', quote_nullable(queue) USING ERRCODE = 'undefined_object',
            HINT = 'Create it with `penstock queue create`.';
    END IF;
    IF _columns IS NULL THEN
        SELECT array_agg(a.attname ORDER BY k.number) INTO _columns
        FROM pg_index i
        CROSS JOIN LATERAL unnest(i.indkey::smallint[]) WITH ORDINALITY AS k (attnum, number)
        JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = k.attnum
        WHERE i.indrelid = source AND i.indisprimary;
    END IF;
    IF coalesce(cardinality(_columns), 0) = 0 THEN
        RAISE EXCEPTION 'table % has no primary key: name the columns whose values are the key of an event', source
            USING ERRCODE = 'undefined_column', HINT = 'penstock.outbox(queue, table, key_columns => ARRAY[''a'', ''b''])';
    END IF;
    SELECT c INTO _missing FROM unnest(_columns) AS c WHERE NOT EXISTS (
        SELECT FROM pg_attribute a
        WHERE a.attrelid = source AND a.attname = c AND a.attnum > 0 AND NOT a.attisdropped);
    IF FOUND THEN
        RAISE EXCEPTION 'table % has no column %', source, quote_ident(_missing) USING ERRCODE = 'undefined_column';
    END IF;
    _function := format('%I.%I', _table.schema, 'penstock_outbox_' || md5(source::oid || ' ' || queue));
    EXECUTE format('
        CREATE FUNCTION %s() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
        AS %L', _function, format('
BEGIN
    IF TG_OP = ''TRUNCATE'' THEN
        PERFORM penstock.push(%1$L, ''{"op": "truncate", "before": null, "after": null}'');
    ELSIF TG_OP <> ''UPDATE'' THEN
        PERFORM penstock.push_change(%1$L, TG_OP, to_jsonb(OLD), to_jsonb(NEW), %2$L);
    ELSIF NOT OLD *= NEW THEN
        PERFORM penstock.push_change(%1$L, TG_OP, to_jsonb(OLD), to_jsonb(NEW), %2$L);
    END IF;
    RETURN NULL;
END
', queue, _columns));
    EXECUTE format('REVOKE EXECUTE ON FUNCTION %s() FROM PUBLIC', _function);
    EXECUTE format('
        CREATE TRIGGER %I AFTER INSERT OR UPDATE OR DELETE ON %s FOR EACH ROW EXECUTE FUNCTION %s()',
        _name, source, _function);
    EXECUTE format('
        CREATE TRIGGER %I AFTER TRUNCATE ON %s FOR EACH STATEMENT EXECUTE FUNCTION %s()',
        penstock.outbox_name(queue, 'penstock_truncate_'), source, _function);
    EXECUTE format('ALTER FUNCTION %s() OWNER TO %s', _function, _table.owner);
END
$$;

-- Removes an outbox. Returns false if the table has none for the queue, which need not exist any more.
CREATE FUNCTION penstock.drop_outbox(queue text, source regclass) RETURNS boolean
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    _name name := penstock.outbox_name(queue);
    _function regprocedure;
BEGIN
    SELECT t.tgfoid::regprocedure INTO _function FROM pg_trigger t WHERE t.tgrelid = source AND t.tgname = _name;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    EXECUTE format('DROP TRIGGER %I ON %s', _name, source);
    EXECUTE format('DROP TRIGGER %I ON %s', penstock.outbox_name(queue, 'penstock_truncate_'), source);
    EXECUTE format('DROP FUNCTION %s', _function);
    RETURN true;
END
$$;

CREATE FUNCTION penstock.has_queue(_queue text) RETURNS boolean
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
    SELECT EXISTS (SELECT FROM penstock.queues q WHERE q.name = _queue)
$$;

-- The right to push is EXECUTE on these functions.
REVOKE EXECUTE ON FUNCTION penstock.push, penstock.push_many, penstock.push_change, penstock.outbox, penstock.drop_outbox,
    penstock.has_queue, penstock.order_inbox
FROM PUBLIC;

-- The roles of processes that exist already read the number that was drawn last.
DO $$
DECLARE
    _role regrole;
BEGIN
    FOR _role IN
        SELECT a.grantee FROM pg_class c CROSS JOIN LATERAL aclexplode(c.relacl) a
        WHERE c.oid = 'penstock.coordination_versions'::regclass AND a.privilege_type = 'USAGE'
          AND a.grantee NOT IN (0, c.relowner)
    LOOP
        EXECUTE format('GRANT SELECT ON SEQUENCE penstock.inbox_sequence TO %s', _role);
    END LOOP;
END
$$;

-- Pop from SQL. PostgreSQL cannot decompress zstd in SQL, so the chunks of a queue with this option have a codec of their
-- own (2): a checksum of four bytes, a line of JSON with the number of events, keys, ids and times, one with the headers, and
-- the data, a line for each event.
ALTER TABLE penstock.queues ADD COLUMN readable_from_sql boolean NOT NULL DEFAULT false;

CREATE OR REPLACE FUNCTION penstock.make_segment(_queue integer, _segment integer) RETURNS void
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
    -- Chunks are compressed already, except those that SQL can read.
    EXECUTE format('ALTER TABLE penstock.chunks_%s_%s ALTER COLUMN body SET STORAGE %s', _queue, _segment, (
        SELECT CASE WHEN q.readable_from_sql THEN 'EXTENDED' ELSE 'EXTERNAL' END FROM penstock.queues q WHERE q.id = _queue));
    -- The hash covers the key and the id, so a lookup needs no partition.
    EXECUTE format('CREATE TABLE penstock.ids_%s_%s (hash uuid NOT NULL, event_offset bigint NOT NULL)', _queue, _segment);
    EXECUTE format('CREATE INDEX ids_%1$s_%2$s_hash ON penstock.ids_%1$s_%2$s (hash)', _queue, _segment);
    PERFORM penstock.make_append(_queue, _segment);
END
$$;

-- The events of a readable chunk. The index of an event counts from 0. The columns are json, because jsonb cannot hold the
-- character U+0000, which events can.
CREATE FUNCTION penstock.read_chunk(_body bytea) RETURNS TABLE (
    index integer, data json, key text, event_id text, event_time timestamptz, headers json
) LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    _text text := convert_from(substr(_body, 6), 'UTF8');
    _meta json := split_part(_text, E'\n', 1);
    -- Separate, because -> reads all of the text, and a header may have the character U+0000.
    _header_line json := split_part(_text, E'\n', 2);
    _keys text[];
    _ids text[];
    _times text[];
    _headers json[];
BEGIN
    -- A column without values is null.
    IF json_typeof(_meta -> 1) = 'array' THEN
        _keys := ARRAY(SELECT json_array_elements_text(_meta -> 1));
    END IF;
    IF json_typeof(_meta -> 2) = 'array' THEN
        _ids := ARRAY(SELECT json_array_elements_text(_meta -> 2));
    END IF;
    IF json_typeof(_meta -> 3) = 'array' THEN
        _times := ARRAY(SELECT json_array_elements_text(_meta -> 3));
    END IF;
    IF json_typeof(_header_line) = 'array' THEN
        _headers := ARRAY(SELECT nullif(h::text, 'null')::json FROM json_array_elements(_header_line) AS h);
    END IF;
    RETURN QUERY
    SELECT (l.number - 3)::integer, l.line::json, _keys[l.number - 2], _ids[l.number - 2],
           penstock.moment(_times[l.number - 2]::bigint), _headers[l.number - 2]
    FROM string_to_table(_text, E'\n') WITH ORDINALITY AS l (line, number) WHERE l.number > 2;
END
$$;

-- The chunk that holds an offset, or the first one after it.
CREATE FUNCTION penstock.chunk_at(_partition bigint, _offset bigint) RETURNS TABLE (
    first_offset bigint, end_offset bigint, appended_at timestamptz, target_group integer, body bytea
) LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    _place record;
BEGIN
    -- One statement: the segment may be rolled between two.
    SELECT t.queue_id, coalesce(l.segment, q.segment) AS segment INTO _place
    FROM penstock.partitions t JOIN penstock.queues q ON q.id = t.queue_id
    LEFT JOIN LATERAL (
        SELECT l.segment FROM penstock.segment_partitions l
        WHERE l.partition_id = t.id AND l.end_offset > _offset ORDER BY l.end_offset LIMIT 1
    ) l ON true
    WHERE t.id = _partition;
    RETURN QUERY EXECUTE format('
        SELECT c.end_offset - c.event_count, c.end_offset, c.appended_at, c.target_group, c.body
        FROM penstock.chunks_%s_%s c WHERE c.partition_id = $1 AND c.end_offset > $2 ORDER BY c.end_offset LIMIT 1',
        _place.queue_id, _place.segment) USING _partition, _offset;
END
$$;

-- The failed attempts of events by offset.
CREATE FUNCTION penstock.failures_of(_failures bigint[]) RETURNS TABLE (at bigint, count integer)
LANGUAGE sql IMMUTABLE AS $$
    SELECT _failures[i][1], _failures[i][2]::integer FROM generate_subscripts(_failures, 1) AS i
$$;

-- Writes the next version of a position that the transaction has locked. Failures and dead letters before the next offset
-- are forgotten.
CREATE FUNCTION penstock.write_position(_old penstock.positions, _new penstock.positions) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    _failures bigint[];
    _attempts integer;
BEGIN
    SELECT coalesce(array_agg(ARRAY[f.at, f.count] ORDER BY f.at), '{}'), coalesce(max(f.count), 0)
    INTO _failures, _attempts
    FROM penstock.failures_of(_new.failures) f WHERE f.at >= _new.next_offset;
    INSERT INTO penstock.positions (group_id, partition_id, version, next_offset, lease_id, lease_end, available_at, attempts,
        failures, skipped, expiries, suspect_end, redelivered_end, moved_at)
    SELECT _old.group_id, _old.partition_id, _old.version + 1, _new.next_offset, _new.lease_id, _new.lease_end,
           _new.available_at, _attempts, _failures,
           ARRAY(SELECT s FROM unnest(_new.skipped) AS s WHERE s >= _new.next_offset ORDER BY s),
           _new.expiries, _new.suspect_end, _new.redelivered_end, clock_timestamp();
    DELETE FROM penstock.positions p
    WHERE p.group_id = _old.group_id AND p.partition_id = _old.partition_id AND p.version = _old.version;
END
$$;

-- Stores an event as a dead letter. A redriven event that fails again updates its dead letter.
CREATE FUNCTION penstock.add_dead_letter(
    _queue integer, _group text, _partition bigint, _offset bigint, _stage text, _error text, _attempts integer
) RETURNS void LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    _event record;
    _earlier bigint;
BEGIN
    SELECT e.*, c.appended_at, c.target_group, t.is_key_partition, t.name INTO _event
    FROM penstock.chunk_at(_partition, _offset) c
    JOIN penstock.partitions t ON t.id = _partition
    CROSS JOIN LATERAL penstock.read_chunk(c.body) e
    WHERE c.first_offset + e.index = _offset;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'the event at offset % of partition % no longer exists', _offset, _partition
            USING ERRCODE = 'no_data_found';
    END IF;
    -- As text, because a header may have the character U+0000.
    _earlier := substring(_event.headers::text FROM '"penstock-dead-letter":"([0-9]{1,18})"')::bigint;
    IF _event.target_group IS NOT NULL AND _earlier IS NOT NULL THEN
        UPDATE penstock.dead_letters d SET
            history = d.history || jsonb_build_array(jsonb_build_object(
                'failed_at', d.failed_at, 'error', d.error, 'attempts', d.attempts, 'stage', d.stage,
                'redriven_at', d.redriven_at)),
            redriven_at = NULL, partition_id = _partition, event_offset = _offset, stage = _stage, error = _error,
            traceback = NULL, attempts = _attempts, failed_at = clock_timestamp()
        WHERE d.id = _earlier AND d.queue_id = _queue AND d.redriven_at IS NOT NULL;
        IF FOUND THEN
            RETURN;
        END IF;
    END IF;
    INSERT INTO penstock.dead_letters (queue_id, partition_id, event_offset, group_name, key, event_id, event_time,
        appended_at, headers, data, stage, error, attempts, failed_at, first_failed_at)
    SELECT _queue, _partition, _offset, _group,
           CASE WHEN _event.is_key_partition AND _event.name <> 'Default' THEN _event.name ELSE _event.key END,
           _event.event_id, _event.event_time, _event.appended_at, _event.headers::text, _event.data::text, _stage, _error,
           _attempts, c.now, c.now
    FROM (SELECT clock_timestamp() AS now) c;
END
$$;

-- Leases events of one partition: up to a number, of one chunk. The rules are those of read/sql/lease.sql and read/pop.py.
CREATE FUNCTION penstock.pop_partition(
    _queue penstock.queues, _group penstock.groups, _partition bigint, _events integer, _lease uuid,
    _seconds double precision
) RETURNS TABLE (
    receipt text, data json, key text, event_id text, event_time timestamptz, headers json, attempts integer,
    lease_until timestamptz
) LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_column
DECLARE
    _now timestamptz := clock_timestamp();
    _place record;
    _chunk record;
    _old penstock.positions;
    _new penstock.positions;
    _start bigint;
    _offsets bigint[];
BEGIN
    PERFORM FROM penstock.cursors c
    WHERE c.group_id = _group.id AND c.partition_id = _partition AND c.state = 0 FOR NO KEY UPDATE SKIP LOCKED;
    IF NOT FOUND THEN
        RETURN;
    END IF;
    SELECT p.* INTO _old FROM penstock.positions p
    WHERE p.group_id = _group.id AND p.partition_id = _partition
    ORDER BY p.version DESC LIMIT 1 FOR NO KEY UPDATE SKIP LOCKED;
    -- A position that moves meanwhile cannot be locked.
    IF NOT FOUND OR _old.available_at > _now THEN
        RETURN;
    END IF;
    SELECT t.name, t.is_key_partition,
           coalesce((SELECT l.first_offset FROM penstock.segment_partitions l
                     WHERE l.partition_id = t.id AND l.end_offset > _old.next_offset ORDER BY l.end_offset LIMIT 1),
                    t.sealed_end) AS first_offset
    INTO _place FROM penstock.partitions t WHERE t.id = _partition;
    -- Retention may have dropped the events at the position.
    _start := greatest(_old.next_offset, _place.first_offset);
    IF _old.attempts > 0 AND _old.failures = '{}' THEN -- as versions before 0.2 stored them
        _old.failures := ARRAY[ARRAY[_old.next_offset, _old.attempts]];
    END IF;
    _new := _old;
    _new.expiries := _old.expiries + (_old.lease_id IS NOT NULL)::integer;
    _new.suspect_end := CASE WHEN _queue.expiry_limit IS NULL THEN 0
                             WHEN _old.lease_id IS NULL THEN _old.suspect_end
                             ELSE greatest(_old.suspect_end, _old.lease_end) END;
    _new.redelivered_end := greatest(_old.redelivered_end, _old.lease_end);
    LOOP
        SELECT c.* INTO _chunk FROM penstock.chunk_at(_partition, _start) c;
        IF NOT FOUND OR _chunk.appended_at > _now - make_interval(secs => _queue.delay_seconds) THEN
            EXIT;
        ELSIF _chunk.target_group <> _group.id THEN
            _start := _chunk.end_offset;
            CONTINUE;
        ELSIF get_byte(_chunk.body, 0) <> 2 THEN
            RAISE EXCEPTION 'the events at offset % of partition % in queue % were stored before the queue was readable from '
                'SQL', _start, quote_literal(_place.name), quote_literal(_queue.name)
                USING ERRCODE = 'feature_not_supported', HINT = 'Read them with a client of Penstock, in the same group.';
        END IF;
        _offsets := ARRAY(
            SELECT o FROM generate_series(
                greatest(_start, _chunk.first_offset),
                CASE WHEN _new.suspect_end > _start THEN _start ELSE _chunk.end_offset - 1 END) AS o
            WHERE o <> ALL (_old.skipped) ORDER BY o LIMIT _events);
        IF _offsets = '{}' THEN
            _start := CASE WHEN _new.suspect_end > _start THEN _start + 1 ELSE _chunk.end_offset END;
        ELSIF _new.expiries >= _queue.expiry_limit AND _old.lease_id IS NOT NULL
            AND _old.lease_end - _old.next_offset = 1 AND _offsets[1] = _old.next_offset
        THEN
            PERFORM penstock.add_dead_letter(
                _queue.id, _group.name, _partition, _start, 'lease', format(
                    'its lease ended %s times without an answer, at last on it alone: consumers that receive it die or hang '
                    '(expiry_limit)', _new.expiries),
                _new.expiries + coalesce((SELECT f.count FROM penstock.failures_of(_old.failures) f WHERE f.at = _start), 0));
            _start := _start + 1;
            _new.expiries := 0;
            _old.lease_id := NULL;
        ELSE
            _new.next_offset := _offsets[1];
            _new.lease_id := _lease;
            _new.lease_end := _offsets[cardinality(_offsets)] + 1;
            _new.available_at := _now + make_interval(secs => coalesce(_seconds, _queue.lease_seconds));
            PERFORM penstock.write_position(_old, _new);
            RETURN QUERY
            SELECT format('%s-%s-%s', _partition, o.at, _lease), e.data,
                   CASE WHEN _place.is_key_partition AND _place.name <> 'Default' THEN _place.name ELSE e.key END,
                   e.event_id, coalesce(e.event_time, _chunk.appended_at), e.headers,
                   coalesce((SELECT f.count FROM penstock.failures_of(_old.failures) f WHERE f.at = o.at), 0),
                   _new.available_at
            FROM unnest(_offsets) AS o (at)
            JOIN penstock.read_chunk(_chunk.body) e ON _chunk.first_offset + e.index = o.at
            ORDER BY o.at;
            RETURN;
        END IF;
    END LOOP;
    IF _start > _old.next_offset THEN
        -- Events that are not for this group, or were dropped.
        _new.next_offset := _start;
        _new.lease_id := NULL;
        _new.available_at := 'epoch';
        _new.expiries := 0;
        PERFORM penstock.write_position(_old, _new);
    END IF;
END
$$;

-- Leases up to a number of events for a group and returns them. Each has a receipt, for ack() and nack(). All of them are
-- under one lease. If the transaction rolls back, they were never leased.
CREATE FUNCTION penstock.pop(
    queue text, consumer_group text, events integer DEFAULT 1, lease_seconds double precision DEFAULT NULL
) RETURNS TABLE (
    receipt text, data json, key text, event_id text, event_time timestamptz, headers json, attempts integer,
    lease_until timestamptz
) LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off
AS $$
#variable_conflict use_column
DECLARE
    _queue penstock.queues;
    _group penstock.groups;
    _lease uuid;
    _partition bigint;
    _left integer := events;
    _count integer;
BEGIN
    IF events IS NULL OR events NOT BETWEEN 1 AND 10000 THEN
        RAISE EXCEPTION 'the number of events must be 1 to 10000, not %', events USING ERRCODE = 'invalid_parameter_value';
    ELSIF NOT coalesce(lease_seconds, 1) BETWEEN 0.001 AND 604800 THEN
        RAISE EXCEPTION 'the time of a lease must be up to 604800 seconds, not %', lease_seconds
            USING ERRCODE = 'invalid_parameter_value';
    END IF;
    SELECT q.* INTO _queue FROM penstock.queues q WHERE q.name = pop.queue;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'there is no queue %', quote_nullable(queue) USING ERRCODE = 'undefined_object';
    ELSIF NOT _queue.readable_from_sql THEN
        RAISE EXCEPTION 'queue % is not readable from SQL', quote_literal(queue) USING ERRCODE = 'feature_not_supported',
            HINT = 'Run `penstock queue configure` with `--readable-from-sql yes`, which holds for later events.';
    END IF;
    SELECT g.* INTO _group FROM penstock.groups g WHERE g.queue_id = _queue.id AND g.name = consumer_group;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'queue % has no group %', quote_literal(queue), quote_nullable(consumer_group)
            USING ERRCODE = 'undefined_object', HINT = 'Create it with penstock.subscribe(queue, consumer_group).';
    ELSIF _group.query_id IS NOT NULL THEN
        RAISE EXCEPTION 'group % belongs to a query, which would miss the events that you take', quote_literal(consumer_group)
            USING ERRCODE = 'object_in_use', HINT = 'Use another group.';
    END IF;
    UPDATE penstock.groups g SET seen_at = clock_timestamp() WHERE g.id = (
        SELECT o.id FROM penstock.groups o WHERE o.id = _group.id AND o.seen_at < clock_timestamp() - interval '1 minute'
        FOR NO KEY UPDATE SKIP LOCKED);
    -- The first bytes of a lease's id are its group.
    _lease := lpad(to_hex(_group.id), 8, '0') || substr(replace(gen_random_uuid()::text, '-', ''), 9);
    LOOP
        FOR _partition IN
            SELECT s.partition_id FROM penstock.partition_progress(_group.id, _queue.id, _queue.segment) s
            JOIN penstock.cursors c ON c.group_id = _group.id AND c.partition_id = s.partition_id AND c.state = 0
            WHERE s.end_offset > s.next_offset AND NOT s.leased
              AND (_queue.quiet_seconds = 0 OR penstock.is_quiet(s.partition_id, s.end_offset, _queue.quiet_seconds))
            ORDER BY random()
        LOOP
            RETURN QUERY SELECT * FROM penstock.pop_partition(_queue, _group, _partition, _left, _lease, lease_seconds);
            GET DIAGNOSTICS _count = ROW_COUNT;
            _left := _left - _count;
            EXIT WHEN _left = 0;
        END LOOP;
        EXIT WHEN _left < events OR _group.epoch >= _queue.epoch OR NOT penstock.next_epoch(_group, _queue);
        _group.epoch := _group.epoch + 1;
    END LOOP;
END
$$;

-- Whether nothing was appended to a partition for a time.
CREATE FUNCTION penstock.is_quiet(_partition bigint, _end bigint, _seconds double precision) RETURNS boolean
LANGUAGE sql STABLE AS $$
    SELECT coalesce((SELECT c.appended_at FROM penstock.chunk_at(_partition, _end - 1) c),
                    (SELECT t.sealed_at FROM penstock.partitions t WHERE t.id = _partition))
           <= clock_timestamp() - make_interval(secs => _seconds)
$$;

-- Moves a group to the next epoch of partitions, if it has read its own to the end. Returns whether it did.
CREATE FUNCTION penstock.next_epoch(_group penstock.groups, _queue penstock.queues) RETURNS boolean
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    PERFORM FROM penstock.groups g WHERE g.id = _group.id AND g.epoch = _group.epoch FOR UPDATE SKIP LOCKED;
    IF NOT FOUND OR EXISTS (
        SELECT FROM penstock.partition_progress(_group.id, _queue.id, _queue.segment) s
        JOIN penstock.partitions t ON t.id = s.partition_id
        WHERE t.epoch <= _group.epoch AND s.end_offset > s.next_offset
    ) THEN
        RETURN false;
    END IF;
    UPDATE penstock.groups g SET epoch = g.epoch + 1 WHERE g.id = _group.id;
    UPDATE penstock.cursors c SET state = 0 FROM penstock.partitions t
    WHERE c.group_id = _group.id AND t.id = c.partition_id AND t.epoch <= _group.epoch + 1 AND c.state <> 0;
    RETURN true;
END
$$;

-- Completes or fails events by their receipts, by the rules of read/ack_rules.py. Raises an error if one of the receipts
-- is not valid any more, so that the transaction does not commit what another consumer does again.
CREATE FUNCTION penstock.settle(_queue_name text, _group_name text, _receipts text[], _error text, _is_failed boolean)
RETURNS integer LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    _queue penstock.queues;
    _group penstock.groups;
    _wrong text;
    _part record;
    _now timestamptz;
    _old penstock.positions;
    _new penstock.positions;
    _is_leased boolean;
    _is_held boolean;
    _attempts integer;
    _offset bigint;
    _settled integer := 0;
BEGIN
    SELECT r INTO _wrong FROM unnest(_receipts) AS r
    WHERE r IS NULL OR r !~ '^[0-9]{1,18}-[0-9]{1,18}-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$';
    IF FOUND THEN
        RAISE EXCEPTION '% is not a receipt of pop()', quote_nullable(_wrong) USING ERRCODE = 'invalid_parameter_value';
    END IF;
    -- Before any lock on a cursor, as in a seek: a dead letter refers to the queue.
    SELECT q.* INTO _queue FROM penstock.queues q WHERE q.name = _queue_name FOR KEY SHARE;
    SELECT g.* INTO _group FROM penstock.groups g WHERE g.queue_id = _queue.id AND g.name = _group_name;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'there is no group % of queue %', quote_nullable(_group_name), quote_nullable(_queue_name)
            USING ERRCODE = 'undefined_object';
    END IF;
    FOR _part IN
        SELECT p.parts[1]::bigint AS id, p.parts[3]::uuid AS lease_id,
               array_agg(DISTINCT p.parts[2]::bigint ORDER BY p.parts[2]::bigint) AS offsets
        FROM (SELECT regexp_match(r, '^([0-9]+)-([0-9]+)-(.+)$') AS parts FROM unnest(_receipts) AS r) p
        GROUP BY 1, 2 ORDER BY 1, 2
    LOOP
        PERFORM FROM penstock.cursors c
        WHERE c.group_id = _group.id AND c.partition_id = _part.id FOR NO KEY UPDATE;
        IF NOT FOUND THEN
            RAISE EXCEPTION 'group % of queue % has no partition %', quote_literal(_group_name), quote_literal(_queue_name), _part.id
                USING ERRCODE = 'PS003';
        END IF;
        LOOP
            SELECT p.* INTO _old FROM penstock.positions p
            WHERE p.group_id = _group.id AND p.partition_id = _part.id ORDER BY p.version DESC LIMIT 1 FOR NO KEY UPDATE;
            -- A position that moved while the statement waited is not found; the next statement sees the new one.
            EXIT WHEN FOUND;
        END LOOP;
        _now := clock_timestamp();
        IF _old.attempts > 0 AND _old.failures = '{}' THEN
            _old.failures := ARRAY[ARRAY[_old.next_offset, _old.attempts]];
        END IF;
        _new := _old;
        _is_leased := _old.lease_id = _part.lease_id AND _old.available_at > _now;
        _is_held := false;
        FOREACH _offset IN ARRAY _part.offsets LOOP
            IF _offset < _old.next_offset OR _offset = ANY (_old.skipped) THEN
                -- Completed before: an ack is a repetition.
                IF _is_failed THEN
                    RAISE EXCEPTION 'the event was completed already, and cannot fail: offset % of partition %', _offset, _part.id
                        USING ERRCODE = 'PS003';
                END IF;
            ELSIF _is_leased IS NOT TRUE OR _offset >= _old.lease_end THEN
                RAISE EXCEPTION 'the lease on offset % of partition % has ended, and the event is delivered again', _offset, _part.id
                    USING ERRCODE = 'PS003', HINT = 'Give pop() a longer lease_seconds.';
            ELSIF _is_held THEN
                -- Comes again after the one that failed.
                NULL;
            ELSIF NOT _is_failed THEN
                _new.next_offset := greatest(_new.next_offset, _offset + 1);
                _settled := _settled + 1;
            ELSE
                SELECT coalesce((SELECT f.count FROM penstock.failures_of(_old.failures) f WHERE f.at = _offset), 0) INTO _attempts;
                IF _attempts >= _queue.retry_limit THEN
                    PERFORM penstock.add_dead_letter(
                        _queue.id, _group.name, _part.id, _offset, 'consumer', _error, _attempts + 1);
                    _new.skipped := _new.skipped || _offset;
                ELSE
                    _is_held := true;
                    SELECT array_agg(ARRAY[f.at, f.count]) INTO _new.failures
                    FROM (SELECT f.at, f.count FROM penstock.failures_of(_old.failures) f WHERE f.at <> _offset
                          UNION ALL SELECT _offset, _attempts + 1) AS f (at, count);
                END IF;
                _settled := _settled + 1;
            END IF;
            WHILE _new.next_offset = ANY (_new.skipped) LOOP
                _new.next_offset := _new.next_offset + 1;
            END LOOP;
        END LOOP;
        IF NOT coalesce(_is_leased, false) THEN
            CONTINUE; -- only repetitions
        END IF;
        IF _is_held OR _new.next_offset >= _old.lease_end THEN
            _new.lease_id := NULL;
            _new.available_at := CASE WHEN _is_held AND _queue.retry_delay_ms > 0
                                      THEN _now + _queue.retry_delay_ms * interval '1 millisecond' ELSE 'epoch' END;
        END IF;
        IF _new.next_offset <> _old.next_offset THEN
            _new.expiries := 0;
        END IF;
        IF _new IS DISTINCT FROM _old THEN
            PERFORM penstock.write_position(_old, _new);
        END IF;
    END LOOP;
    RETURN _settled;
END
$$;

-- Completes events, and all earlier ones of their lease and partition. Returns how many receipts were not acknowledged before.
CREATE FUNCTION penstock.ack(queue text, consumer_group text, VARIADIC receipts text[]) RETURNS integer
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off
AS $$
BEGIN
    RETURN penstock.settle(queue, consumer_group, receipts, '', false);
END
$$;

-- Reports that an event failed. It and the later ones of its partition are delivered again after the retry delay of the
-- queue, or it becomes a dead letter, if it has no retries left.
CREATE FUNCTION penstock.nack(queue text, consumer_group text, receipt text, error text DEFAULT 'no reason given')
RETURNS integer LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off
AS $$
BEGIN
    RETURN penstock.settle(queue, consumer_group, ARRAY[receipt], coalesce(error, 'no reason given'), true);
END
$$;

-- Creates a group that reads a queue from the beginning, unless it exists. Returns whether it was created.
CREATE FUNCTION penstock.subscribe(queue text, consumer_group text) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    _queue penstock.queues;
    _group integer;
    _epoch integer;
BEGIN
    IF consumer_group IS NULL OR consumer_group !~ '^[^[:cntrl:]]{1,200}$' OR consumer_group <> btrim(consumer_group) THEN
        RAISE EXCEPTION 'the name of a group must have 1 to 200 printable characters, without spaces at its ends: % is not',
            quote_nullable(consumer_group) USING ERRCODE = 'invalid_name';
    END IF;
    -- While the queue is locked no partition is created, so the group gets a cursor for each of them.
    SELECT q.* INTO _queue FROM penstock.queues q WHERE q.name = subscribe.queue FOR UPDATE;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'there is no queue %', quote_nullable(queue) USING ERRCODE = 'undefined_object';
    END IF;
    SELECT coalesce(min(t.epoch), _queue.epoch) INTO _epoch
    FROM penstock.partitions_of(_queue.id, _queue.segment) p JOIN penstock.partitions t ON t.id = p.partition_id
    WHERE p.end_offset > p.first_offset;
    INSERT INTO penstock.groups (queue_id, name, epoch, subscribed_from, seen_at)
    VALUES (_queue.id, consumer_group, _epoch, 'beginning', clock_timestamp()) ON CONFLICT DO NOTHING RETURNING id INTO _group;
    IF _group IS NULL THEN
        RETURN false;
    END IF;
    INSERT INTO penstock.cursors (group_id, partition_id, state)
    SELECT _group, t.id, CASE WHEN t.epoch > _epoch THEN 2 ELSE 0 END FROM penstock.partitions t WHERE t.queue_id = _queue.id;
    INSERT INTO penstock.positions (group_id, partition_id, version, next_offset, lease_end, available_at, moved_at)
    SELECT _group, p.partition_id, 0, p.first_offset, p.first_offset, 'epoch', clock_timestamp()
    FROM penstock.partitions_of(_queue.id, _queue.segment) p;
    RETURN true;
END
$$;

-- The right to consume is EXECUTE on pop(), ack(), nack() and subscribe().
REVOKE EXECUTE ON FUNCTION penstock.pop, penstock.ack, penstock.nack, penstock.subscribe FROM PUBLIC;
