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
    _sequence bigint;
BEGIN
    IF strpos(_announced, ',' || NEW.queue_id || ',') = 0 THEN
        -- A mark in the highest byte, 20 bits of the queue's id, 36 bits of the bound.
        PERFORM pg_advisory_xact_lock_shared(
            (80::bigint << 56) | ((NEW.queue_id & 1048575)::bigint << 36) | (s.last_value & 68719476735))
        FROM penstock.inbox_sequence s;
        PERFORM set_config('penstock.announced', _announced || ',' || NEW.queue_id || ',', true);
    END IF;
    IF _events = 1 THEN
        _sequence := nextval('penstock.inbox_sequence');
    ELSE
        SELECT max(nextval('penstock.inbox_sequence')) INTO _sequence FROM generate_series(1, _events);
    END IF;
    INSERT INTO penstock.inbox_order (sequence, inbox_id, queue_id, events, bytes)
    VALUES (_sequence, NEW.id, NEW.queue_id, _events, octet_length(NEW.data));
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

-- Pushes events to a queue, in the transaction of the caller. Returns their number, or 0 if the queue is full and drops
-- events (overflow = 'shed'). The arrays beside the data are of the same length or left out.
CREATE FUNCTION penstock.push_many(
    queue text, data jsonb[], keys text[] DEFAULT NULL, event_ids text[] DEFAULT NULL,
    event_times timestamptz[] DEFAULT NULL, headers jsonb[] DEFAULT NULL
) RETURNS integer LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    _queue record;
    _events integer := cardinality(data);
    _text text;
BEGIN
    SELECT q.id, q.encrypted, coalesce(q.max_event_bytes, 1048576) AS max_event_bytes, q.overflow, q.max_depth_events,
           f.reason,
           (SELECT s.last_value FROM penstock.inbox_sequence s) - (SELECT s.floor FROM penstock.inbox_state s) AS waiting
    INTO _queue
    FROM penstock.queues q LEFT JOIN penstock.full_queues f ON f.queue_id = q.id
    WHERE q.name = push_many.queue;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'there is no queue %', quote_nullable(queue) USING ERRCODE = 'undefined_object',
            HINT = 'Create it with `penstock queue create`.';
    ELSIF _queue.encrypted THEN
        RAISE EXCEPTION 'queue % is encrypted, and PostgreSQL has no key: it cannot take pushes from SQL', quote_literal(queue)
            USING ERRCODE = 'feature_not_supported', HINT = 'Push to it through a server or a client of Penstock.';
    ELSIF _events IS NULL THEN
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
    IF octet_length(_text) > _queue.max_event_bytes OR array_position(data, NULL) IS NOT NULL
        OR event_times IS NOT NULL OR headers IS NOT NULL OR array_position(keys, '') IS NOT NULL
        OR array_position(event_ids, '') IS NOT NULL
        OR EXISTS (SELECT FROM unnest(keys) AS k WHERE octet_length(k) > 1024)
        OR EXISTS (SELECT FROM unnest(event_ids) AS i WHERE octet_length(i) > 256)
    THEN
        PERFORM penstock.refuse_events(_queue.max_event_bytes, data, keys, event_ids, event_times, headers);
        IF octet_length(_text) > 67108864 THEN
            RAISE EXCEPTION 'one call may push up to 64 MiB; this one has % bytes', octet_length(_text)
                USING ERRCODE = 'program_limit_exceeded';
        END IF;
    END IF;
    -- The difference counts the events of all queues, and some that were moved or rolled back.
    IF _queue.reason IS NULL AND _queue.waiting + _events > _queue.max_depth_events THEN
        _queue.waiting := penstock.inbox_events(_queue.id);
        -- A push that never fits is accepted if nothing waits.
        IF _queue.waiting > 0 AND _queue.waiting + _events > _queue.max_depth_events THEN
            _queue.reason := format(
                'queue %L is full: %s events wait in the inbox and %s are allowed; start a server, a query or another '
                'process of Penstock, which moves them, or raise max_depth_events',
                queue, _queue.waiting, _queue.max_depth_events);
        END IF;
    END IF;
    IF _queue.reason IS NOT NULL THEN
        IF _queue.overflow = 'shed' THEN
            INSERT INTO penstock.shed_events (queue_id, events, shed_at) VALUES (_queue.id, _events, clock_timestamp());
            RETURN 0;
        END IF;
        RAISE EXCEPTION '%', _queue.reason USING ERRCODE = 'PS002';
    END IF;
    INSERT INTO penstock.inbox (queue_id, data, keys, ids, times, headers)
    VALUES (_queue.id, _text, keys, event_ids, event_times, headers);
    RETURN _events;
END
$$;

CREATE FUNCTION penstock.push(
    queue text, data jsonb, key text DEFAULT NULL, event_id text DEFAULT NULL, event_time timestamptz DEFAULT NULL,
    headers jsonb DEFAULT NULL
) RETURNS integer LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    RETURN penstock.push_many(
        queue, ARRAY[data], CASE WHEN key IS NOT NULL THEN ARRAY[key] END,
        CASE WHEN event_id IS NOT NULL THEN ARRAY[event_id] END,
        CASE WHEN event_time IS NOT NULL THEN ARRAY[event_time] END,
        CASE WHEN headers IS NOT NULL THEN ARRAY[headers] END);
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
