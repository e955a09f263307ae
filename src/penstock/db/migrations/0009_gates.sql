-- Gates: what each lets through, what it remembers of each lane, and limits that are changed while it runs.

-- The gates of a query, as its stream defines them. amount: capacity or limit. rate: tokens a second.
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

-- A lane of a gated query. passed: offsets gone through. allowed: events let through. next_at: before then its first event
-- cannot pass. wakes_at: the same, while its cursor waits (state 3) and nobody looks at it. wants: how many offsets its
-- driver likes to have at hand.
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
    PRIMARY KEY (query_id, partition_id)
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.1, autovacuum_vacuum_cost_delay = 0);
CREATE INDEX gate_lanes_waiting ON penstock.gate_lanes (query_id, wakes_at) WHERE wakes_at IS NOT NULL;

-- What a gate remembers of a lane; lane 0: of all, where they share it. amount, rate and window_us: as they were in force
-- when level was the level. Costs are billionths.
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

-- What was changed while it ran, by query and key; key '' is for all of them. Gate 0 holds what concerns the lane as a
-- whole: paused, held back until a time, and its weight. It belongs to who runs the query, and outlives a reset of it.
CREATE TABLE penstock.gate_limits (
    query      text NOT NULL,
    key        text NOT NULL,
    gate       smallint NOT NULL,
    amount     numeric CHECK (amount > 0),
    rate       numeric CHECK (rate > 0),
    window_us  bigint CHECK (window_us > 0),
    weight     integer CHECK (weight > 0),
    paused     boolean,
    hold_until timestamptz,
    changed_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (query, key, gate)
);

-- Every gate of every lane, as it is now.
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
       CASE WHEN u.kind = 'token_bucket' THEN round(coalesce(least(s.amount, s.level + s.rate
           * greatest(penstock.micros(clock_timestamp()) - s.at_us, 0) / 1000000), u.amount), 9) END AS tokens,
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

-- Appends are given a time where it was decided before that something is let through: made anew when the log is opened.
DO $$
DECLARE
    _name text;
BEGIN
    FOR _name IN
        SELECT p.oid::regprocedure::text FROM pg_proc p
        WHERE p.pronamespace = 'penstock'::regnamespace AND p.proname ~ '^append_\d+_\d+$'
    LOOP
        EXECUTE format('DROP FUNCTION %s', _name);
    END LOOP;
END
$$;
