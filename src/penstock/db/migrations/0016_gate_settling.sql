-- A second change of a gate's limits settled its buckets at the rate before the first, and a change after a hold filled
-- what the hold had emptied.
DROP TRIGGER inserted ON penstock.gate_limits;
DROP TRIGGER updated ON penstock.gate_limits;
DROP TRIGGER deleted ON penstock.gate_limits;
DROP FUNCTION penstock.gate_limits_changed();

-- What a driver could not count with.
ALTER TABLE penstock.gate_limits DROP CONSTRAINT gate_limits_amount_check, DROP CONSTRAINT gate_limits_rate_check;
ALTER TABLE penstock.gate_limits
    ADD CONSTRAINT gate_limits_amount_check CHECK (amount BETWEEN 0.000000001 AND 1000000000),
    ADD CONSTRAINT gate_limits_rate_check CHECK (rate BETWEEN 0.000000001 AND 1000000000),
    ADD CONSTRAINT gate_limits_hold_until_check
        CHECK (hold_until BETWEEN '1970-01-01 00:00+00' AND '9000-01-01 00:00+00');

ALTER TABLE penstock.queries ADD COLUMN gate_time timestamptz NOT NULL DEFAULT 'epoch';
CREATE INDEX gate_lanes_key ON penstock.gate_lanes (query_id, key);

-- A bucket has the limits that are in force; so far it had those of its last release, whatever was changed then.
UPDATE penstock.gate_states s
SET amount = coalesce(own.amount, every.amount, u.amount), rate = coalesce(own.rate, every.rate, u.rate)
FROM penstock.gate_states t
JOIN penstock.queries q ON q.id = t.query_id
JOIN penstock.gate_rules u ON u.query_id = t.query_id AND u.gate = t.gate AND u.kind = 'token_bucket'
LEFT JOIN penstock.gate_lanes l ON l.query_id = t.query_id AND l.partition_id = t.partition_id
LEFT JOIN penstock.gate_limits own ON own.query = q.name AND own.key = l.key AND own.gate = t.gate
LEFT JOIN penstock.gate_limits every ON every.query = q.name AND every.key = '' AND every.gate = t.gate
WHERE s.query_id = t.query_id AND s.partition_id = t.partition_id AND s.gate = t.gate AND s.level IS NOT NULL;

-- What a bucket holds: up to its capacity it was refilled since at_us, when it held level; a hold empties it and has it
-- refilled only when that ends.
CREATE FUNCTION penstock.tokens(amount numeric, rate numeric, level numeric, at_us bigint, hold_us bigint, now_us bigint)
RETURNS numeric LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN least(amount, CASE WHEN hold_us > least(at_us, now_us) THEN 0 ELSE level END
             + rate * 0.000001 * greatest(now_us - greatest(at_us, hold_us), 0));

-- Limits have just changed, for these keys of these queries; key '' stands for all, and for what they share, which is lane
-- 0. What was refilled up to now was refilled as the limits were up to now, and as these holds had it, which the change may
-- have removed; from now on the new ones are in force. Lanes that wait are looked at again. No event is let through meanwhile.
-- Few lanes are found by their indexes; of many, nothing is looked for one by one, whatever is known of the tables.
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
        ) m
        GROUP BY m.query_id, m.name, m.now_us, m.partition_id, m.key
    ), in_force AS (
        SELECT m.query_id, m.partition_id, s.gate, coalesce(own.amount, every.amount, u.amount, s.amount) AS amount,
               coalesce(own.rate, every.rate, u.rate, s.rate) AS rate, m.now_us,
               penstock.micros(greatest(lane.hold_until, all_lanes.hold_until, m.hold_until)) AS hold_us
        FROM meant m
        JOIN penstock.gate_states s ON s.query_id = m.query_id AND s.partition_id = m.partition_id
        LEFT JOIN penstock.gate_rules u ON u.query_id = m.query_id AND u.gate = s.gate
        LEFT JOIN penstock.gate_limits own ON own.query = m.name AND own.key = m.key AND own.gate = s.gate
        LEFT JOIN penstock.gate_limits every ON every.query = m.name AND every.key = '' AND every.gate = s.gate
        LEFT JOIN penstock.gate_limits lane ON lane.query = m.name AND lane.key = m.key AND lane.gate = 0
        LEFT JOIN penstock.gate_limits all_lanes ON all_lanes.query = m.name AND all_lanes.key = '' AND all_lanes.gate = 0
        WHERE s.level IS NOT NULL
    ), settled AS (
        UPDATE penstock.gate_states s
        SET level = least(f.amount, penstock.tokens(s.amount, s.rate, s.level, s.at_us, f.hold_us, f.now_us)),
            at_us = greatest(s.at_us, f.now_us), amount = f.amount, rate = f.rate
        FROM in_force f
        WHERE s.query_id = f.query_id AND s.partition_id = f.partition_id AND s.gate = f.gate
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

-- Whoever changes limits, with the command or with SQL, need know nothing else: the driver hears of it, too.
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
        WHEN 'TRUNCATE' THEN
            SELECT array_agg(name), array_agg(''::text) INTO names, keys FROM penstock.queries;
        ELSE
            SELECT array_agg(query), array_agg(key), array_agg(hold_until) INTO names, keys, holds
            FROM (TABLE changed UNION ALL TABLE former) c;
    END CASE;
    PERFORM penstock.settle_gates(names, keys, holds);
    PERFORM pg_notify('penstock_gates', name) FROM unnest(names) AS name GROUP BY name;
    PERFORM pg_notify('penstock', queue_id::text) FROM penstock.groups WHERE query_id = ANY(names);
    RETURN NULL;
END
$$;

-- One after the other: who changes limits has locked the rows before the queries, and two would wait for each other.
CREATE FUNCTION penstock.gate_limits_change() RETURNS trigger
LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_advisory_xact_lock(7812746384131);
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
CREATE TRIGGER truncated AFTER TRUNCATE ON penstock.gate_limits
FOR EACH STATEMENT EXECUTE FUNCTION penstock.gate_limits_changed();

-- Every gate of every lane, as it is now.
CREATE OR REPLACE VIEW penstock.gates AS
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
               WHERE n.at_us >= penstock.micros(clock_timestamp()) - s.window_us), 0) / 1000000000
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
