-- Versions of entries, and so the tokens of locks. They rise over deletions too, which a counter in the row would not.
CREATE SEQUENCE penstock.coordination_versions;

-- Entries by namespace and key; the permits of locks are entries too. An entry past its expiry does not exist for any
-- reader, and upkeep deletes its row later. Deleting an entry makes it expire.
CREATE TABLE penstock.kv (
    namespace  text COLLATE "C" NOT NULL,
    key        text COLLATE "C" NOT NULL,
    value      jsonb NOT NULL,
    version    bigint NOT NULL,
    expires_at timestamptz NOT NULL,
    updated_at timestamptz NOT NULL,
    PRIMARY KEY (namespace, key)
) WITH (fillfactor = 80);
CREATE INDEX kv_expiry ON penstock.kv (expires_at) WHERE expires_at < 'infinity';

CREATE VIEW penstock.kv_entries AS
SELECT k.namespace, k.key, k.value, k.version, nullif(k.expires_at, 'infinity') AS expires_at, k.updated_at
FROM penstock.kv k WHERE k.expires_at > clock_timestamp();

-- Locks the row of a key. Creates an expired row if there is none, so that an absent key can be locked.
CREATE FUNCTION penstock.lock_kv(_namespace text, _key text) RETURNS void LANGUAGE sql AS $$
    -- An existing row is locked and left as it is.
    INSERT INTO penstock.kv AS k VALUES (_namespace, _key, 'null', 0, '-infinity', '-infinity')
    ON CONFLICT (namespace, key) DO UPDATE SET version = k.version WHERE false;
$$;

-- Returns why an entry is not at the expected version, or NULL if it is. 0: it must not exist.
CREATE FUNCTION penstock.kv_mismatch(_is_live boolean, _version bigint, _expect bigint) RETURNS text
LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE
        WHEN _expect IS NULL OR (_expect = 0 AND NOT _is_live) OR (_is_live AND _version = _expect) THEN NULL
        WHEN _expect = 0 THEN 'exists'
        WHEN _is_live THEN 'version'
        ELSE 'absent'
    END
$$;

-- The functions below return the entry after the call, and whether and why not the change was applied. _expect is the
-- version that the entry must have. _seconds is its time to live; NULL: it does not expire. _skew moves the clock in
-- tests. A version is drawn under the lock of its row, so versions of a key rise in the order of the commits.

CREATE FUNCTION penstock.kv_put(
    _namespace text, _key text, _value jsonb, _seconds double precision DEFAULT NULL, _expect bigint DEFAULT NULL,
    _skew interval DEFAULT '0'
) RETURNS TABLE (applied boolean, reason text, value jsonb, version bigint, expires_at timestamptz, updated_at timestamptz)
LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    _now timestamptz;
    _row penstock.kv;
    _reason text;
BEGIN
    PERFORM penstock.lock_kv(_namespace, _key);
    _now := clock_timestamp() + _skew;
    SELECT k.* INTO STRICT _row FROM penstock.kv k WHERE k.namespace = _namespace AND k.key = _key;
    _reason := penstock.kv_mismatch(_row.expires_at > _now, _row.version, _expect);
    IF _reason IS NULL THEN
        UPDATE penstock.kv k
        SET value = _value, version = nextval('penstock.coordination_versions'), updated_at = _now,
            expires_at = coalesce(_now + make_interval(secs => _seconds), 'infinity')
        WHERE k.namespace = _namespace AND k.key = _key
        RETURNING k.* INTO _row;
    END IF;
    RETURN QUERY SELECT _reason IS NULL, _reason, e.* FROM penstock.kv_visible(_row, _now) e;
END
$$;

CREATE FUNCTION penstock.kv_visible(_row penstock.kv, _now timestamptz)
RETURNS TABLE (value jsonb, version bigint, expires_at timestamptz, updated_at timestamptz) LANGUAGE sql STABLE AS $$
    SELECT CASE WHEN l.live THEN _row.value END, CASE WHEN l.live THEN _row.version ELSE 0 END,
           CASE WHEN l.live THEN nullif(_row.expires_at, 'infinity') END, CASE WHEN l.live THEN _row.updated_at END
    FROM (VALUES (coalesce(_row.expires_at > _now, false))) AS l (live)
$$;

CREATE FUNCTION penstock.kv_delete(
    _namespace text, _key text, _expect bigint DEFAULT NULL, _skew interval DEFAULT '0'
) RETURNS TABLE (applied boolean, reason text, value jsonb, version bigint, expires_at timestamptz, updated_at timestamptz)
LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    _now timestamptz;
    _row penstock.kv;
    _reason text;
BEGIN
    SELECT k.* INTO _row FROM penstock.kv k WHERE k.namespace = _namespace AND k.key = _key FOR NO KEY UPDATE;
    _now := clock_timestamp() + _skew;
    _reason := CASE WHEN coalesce(_row.expires_at > _now, false)
                    THEN penstock.kv_mismatch(true, _row.version, _expect) ELSE 'absent' END;
    IF _reason IS NULL THEN
        UPDATE penstock.kv k SET value = 'null', expires_at = '-infinity', updated_at = _now
        WHERE k.namespace = _namespace AND k.key = _key
        RETURNING k.* INTO _row;
    END IF;
    RETURN QUERY SELECT _reason IS NULL, _reason, e.* FROM penstock.kv_visible(_row, _now) e;
END
$$;

-- Adds to a number. Refuses a sum outside of the limits and changes nothing then. An absent entry counts as 0 and gets
-- the time to live; an existing one keeps its own, so that a counter of a fixed window ends.
CREATE FUNCTION penstock.kv_increment(
    _namespace text, _key text, _delta numeric DEFAULT 1, _seconds double precision DEFAULT NULL,
    _minimum numeric DEFAULT NULL, _maximum numeric DEFAULT NULL, _skew interval DEFAULT '0'
) RETURNS TABLE (applied boolean, reason text, value jsonb, version bigint, expires_at timestamptz, updated_at timestamptz)
LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    _now timestamptz;
    _row penstock.kv;
    _sum numeric := _delta;
    _reason text;
BEGIN
    PERFORM penstock.lock_kv(_namespace, _key);
    _now := clock_timestamp() + _skew;
    SELECT k.* INTO STRICT _row FROM penstock.kv k WHERE k.namespace = _namespace AND k.key = _key;
    IF _row.expires_at > _now THEN
        IF jsonb_typeof(_row.value) = 'number' THEN
            _sum := _row.value::numeric + _delta;
        ELSE
            _reason := 'type';
        END IF;
    END IF;
    IF _reason IS NULL AND (_sum < _minimum OR _sum > _maximum) THEN
        _reason := 'limit';
    END IF;
    IF _reason IS NULL THEN
        UPDATE penstock.kv k
        SET value = to_jsonb(_sum), version = nextval('penstock.coordination_versions'), updated_at = _now,
            expires_at = CASE WHEN _row.expires_at > _now THEN _row.expires_at
                              ELSE coalesce(_now + make_interval(secs => _seconds), 'infinity') END
        WHERE k.namespace = _namespace AND k.key = _key
        RETURNING k.* INTO _row;
    END IF;
    RETURN QUERY SELECT _reason IS NULL, _reason, e.* FROM penstock.kv_visible(_row, _now) e;
END
$$;

-- Whether an entry has a version; 0: whether there is none. It stays so until the transaction ends.
CREATE FUNCTION penstock.kv_check(_namespace text, _key text, _expect bigint, _skew interval DEFAULT '0')
RETURNS TABLE (applied boolean, reason text, value jsonb, version bigint, expires_at timestamptz, updated_at timestamptz)
LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    _now timestamptz;
    _row penstock.kv;
    _reason text;
BEGIN
    IF _expect = 0 THEN
        PERFORM penstock.lock_kv(_namespace, _key);
    END IF;
    SELECT k.* INTO _row FROM penstock.kv k WHERE k.namespace = _namespace AND k.key = _key FOR SHARE;
    _now := clock_timestamp() + _skew;
    _reason := penstock.kv_mismatch(coalesce(_row.expires_at > _now, false), _row.version, _expect);
    RETURN QUERY SELECT _reason IS NULL, _reason, e.* FROM penstock.kv_visible(_row, _now) e;
END
$$;

-- A lock is the entry name#0; a semaphore has one entry for each permit. The namespace is the one that Queen's clients
-- know. The value is the owner and the time since which it holds the permit; the version is the fencing token.

-- Takes a free permit. An owner that holds one gets the same permit again, with a new expiry.
CREATE FUNCTION penstock.lock_acquire(
    _name text, _owner text, _seconds double precision, _limit integer DEFAULT 1, _skew interval DEFAULT '0'
) RETURNS TABLE (slot integer, token bigint, already boolean, expires_at timestamptz) LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    _now timestamptz;
    _slot integer;
    _put record;
BEGIN
    -- One acquisition of a name at a time. Those that renew and release lock the row of their permit only.
    PERFORM pg_advisory_xact_lock(hashtextextended('penstock lock ' || _name, 0));
    _now := clock_timestamp() + _skew;
    RETURN QUERY
    UPDATE penstock.kv k SET expires_at = greatest(k.expires_at, _now + make_interval(secs => _seconds))
    FROM (
        SELECT p.key, s.slot FROM generate_series(0, _limit - 1) AS s (slot)
        JOIN penstock.kv p ON p.namespace = 'queen-locks' AND p.key = _name || '#' || s.slot
        WHERE p.expires_at > _now AND p.value ->> 'owner' = _owner ORDER BY s.slot LIMIT 1
    ) own
    WHERE k.namespace = 'queen-locks' AND k.key = own.key AND k.expires_at > _now AND k.value ->> 'owner' = _owner
    RETURNING own.slot, k.version, true, k.expires_at;
    IF FOUND THEN
        RETURN;
    END IF;
    FOR _slot IN
        SELECT s.slot FROM generate_series(0, _limit - 1) AS s (slot)
        LEFT JOIN penstock.kv k
            ON k.namespace = 'queen-locks' AND k.key = _name || '#' || s.slot AND k.expires_at > _now
        WHERE k.key IS NULL ORDER BY s.slot LIMIT 1
    LOOP
        -- Waits for transactions that have checked the permit of the holder before.
        SELECT p.* INTO _put FROM penstock.kv_put(
            'queen-locks', _name || '#' || _slot, jsonb_build_object('owner', _owner, 'since', _now), _seconds, 0, _skew) p;
        IF _put.applied THEN
            RETURN QUERY SELECT _slot, _put.version, false, _put.expires_at;
        END IF;
    END LOOP;
END
$$;

-- Extends a permit and returns its new token. An owner may repeat it with the old token, if the answer was lost.
CREATE FUNCTION penstock.lock_renew(
    _name text, _token bigint, _seconds double precision, _owner text DEFAULT NULL, _slot integer DEFAULT 0,
    _skew interval DEFAULT '0'
) RETURNS TABLE (token bigint, expires_at timestamptz) LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    _row penstock.kv;
BEGIN
    SELECT k.* INTO _row FROM penstock.kv k
    WHERE k.namespace = 'queen-locks' AND k.key = _name || '#' || _slot FOR NO KEY UPDATE;
    IF _row.expires_at > clock_timestamp() + _skew AND (_row.version = _token OR _row.value ->> 'owner' = _owner) THEN
        RETURN QUERY
        SELECT p.version, p.expires_at
        FROM penstock.kv_put('queen-locks', _row.key, _row.value, _seconds, _row.version, _skew) p WHERE p.applied;
    END IF;
END
$$;

-- Raises an error unless the token is that of the current holder. Until the transaction ends, nobody else becomes the
-- holder: the fence of a transaction of your own.
CREATE FUNCTION penstock.require_lock(
    _name text, _token bigint, _slot integer DEFAULT 0, _skew interval DEFAULT '0'
) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    IF NOT (SELECT c.applied FROM penstock.kv_check('queen-locks', _name || '#' || _slot, _token, _skew) c) THEN
        RAISE EXCEPTION 'the lock % is not held under token %', quote_literal(_name), _token
            USING ERRCODE = 'object_not_in_prerequisite_state',
                  HINT = 'It has expired, was released, or another holder has it. Acquire it again.';
    END IF;
END
$$;

-- Events that are pushed at a time. The push and the deletion of the row are one transaction.
CREATE TABLE penstock.timers (
    queue_id     integer NOT NULL REFERENCES penstock.queues ON DELETE CASCADE,
    key          text COLLATE "C" NOT NULL,
    version      bigint NOT NULL DEFAULT nextval('penstock.coordination_versions'),
    due_at       timestamptz NOT NULL,
    event_id     text NOT NULL,
    event_key    text,
    data         json NOT NULL,
    headers      jsonb,
    scheduled_at timestamptz NOT NULL,
    PRIMARY KEY (queue_id, key)
);
CREATE INDEX timers_due ON penstock.timers (due_at, queue_id, key);

-- Schedules an event, or replaces the one that is scheduled under this key. A past time is due now.
CREATE FUNCTION penstock.schedule_timer(
    _queue text, _key text, _data json, _delay interval, _event_key text DEFAULT NULL,
    _event_id text DEFAULT gen_random_uuid()::text, _headers jsonb DEFAULT NULL, _skew interval DEFAULT '0'
) RETURNS TABLE (due_at timestamptz, event_id text, replaced boolean) LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    _queue_id integer := (SELECT q.id FROM penstock.queues q WHERE q.name = _queue);
    _now timestamptz := clock_timestamp() + _skew;
BEGIN
    IF _queue_id IS NULL THEN
        RAISE EXCEPTION 'there is no queue %', quote_literal(_queue) USING ERRCODE = 'undefined_object';
    END IF;
    -- Processes that fire timers look for the next one.
    PERFORM pg_notify('penstock', 'timers');
    RETURN QUERY
    INSERT INTO penstock.timers AS t (queue_id, key, due_at, event_id, event_key, data, headers, scheduled_at)
    VALUES (_queue_id, _key, _now + _delay, _event_id, _event_key, _data, _headers, _now)
    ON CONFLICT (queue_id, key) DO UPDATE
        SET version = nextval('penstock.coordination_versions'), due_at = excluded.due_at, event_id = excluded.event_id,
            event_key = excluded.event_key, data = excluded.data, headers = excluded.headers,
            scheduled_at = excluded.scheduled_at
    -- A row that this statement has inserted was never locked.
    RETURNING t.due_at, t.event_id, t.xmax <> 0;
END
$$;

-- Cancels a scheduled event and returns its id; no row if there is none, because it was pushed already or never scheduled.
CREATE FUNCTION penstock.cancel_timer(_queue text, _key text) RETURNS TABLE (event_id text) LANGUAGE sql AS $$
    DELETE FROM penstock.timers t USING penstock.queues q
    WHERE q.name = _queue AND t.queue_id = q.id AND t.key = _key
    RETURNING t.event_id
$$;
