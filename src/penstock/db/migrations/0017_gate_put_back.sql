-- What is at hand of lanes that wait for long may be put back. A hold that was removed left the bucket of a lane that had
-- passed nothing full, and who emptied the table of limits removed holds unseen. A driver hears of which key limits changed.
-- In the order in which others lock them: who looks takes the view first, who changes limits their table.

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

DROP TRIGGER truncated ON penstock.gate_limits;

ALTER TABLE penstock.gate_lanes ADD COLUMN put_back bigint NOT NULL DEFAULT 0;

-- The functions below remember buckets that a hold has emptied: so must whoever changes limits be able to, which was not
-- needed before.
DO $$
DECLARE
    _role regrole;
BEGIN
    FOR _role IN
        SELECT DISTINCT a.grantee FROM pg_class c, aclexplode(c.relacl) a
        WHERE c.oid = 'penstock.gate_states'::regclass AND a.privilege_type = 'UPDATE' AND a.grantee NOT IN (0, c.relowner)
    LOOP
        EXECUTE format('GRANT INSERT ON penstock.gate_states TO %s', _role);
    END LOOP;
END
$$;

-- Limits have just changed, for these keys of these queries; key '' stands for all, and for what they share, which is lane
-- 0. What was refilled up to now was refilled as the limits were up to now, and as these holds had it, which the change may
-- have removed; from now on the new ones are in force. A bucket that was never used is full, until a hold empties it: then
-- it is remembered as others are. Lanes that wait are looked at again. No event is let through meanwhile.
-- Few lanes are found by their indexes; of many, nothing is looked for one by one, whatever is known of the tables.
CREATE OR REPLACE FUNCTION penstock.settle_gates(names text[], keys text[], holds timestamptz[]) RETURNS void
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

-- Whoever changes limits, with the command or with SQL, need know nothing else: the driver hears of it, too.
CREATE OR REPLACE FUNCTION penstock.gate_limits_changed() RETURNS trigger
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

-- One after the other: who changes limits has locked the rows before the queries, and two would wait for each other. Who
-- empties the table at once deletes what is in it: only so it is known what that was.
CREATE OR REPLACE FUNCTION penstock.gate_limits_change() RETURNS trigger
LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_advisory_xact_lock(7812746384131);
    IF TG_OP = 'TRUNCATE' THEN
        DELETE FROM penstock.gate_limits;
    END IF;
    RETURN NULL;
END
$$;
