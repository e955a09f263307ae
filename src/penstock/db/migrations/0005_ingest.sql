-- Backpressure that is on unless a queue says otherwise, groups that do not count for it, pushes that are shed and counted,
-- uploads that are written before they are seen, and the fields that hold a key, an id and a time.

-- Queues that are there keep the limit they have, or none: an upgrade refuses nobody.
ALTER TABLE penstock.queues
    ALTER COLUMN max_depth_events SET DEFAULT 100000,
    ADD COLUMN overflow text NOT NULL DEFAULT 'refuse' CHECK (overflow IN ('refuse', 'shed')),
    ADD COLUMN away_seconds double precision DEFAULT 86400,
    ADD COLUMN key_field text,
    ADD COLUMN id_field text,
    ADD COLUMN time_field text;

ALTER TABLE penstock.groups
    ADD COLUMN counts boolean NOT NULL DEFAULT true,
    ADD COLUMN seen_at timestamptz NOT NULL DEFAULT clock_timestamp();

-- How many events were dropped because a queue was full. Rows are added, and added up by upkeep.
CREATE TABLE penstock.shed (
    queue_id integer NOT NULL REFERENCES penstock.queues ON DELETE CASCADE,
    events   bigint NOT NULL,
    shed_at  timestamptz NOT NULL
);
CREATE INDEX shed_queue ON penstock.shed (queue_id);

-- Uploads under way. Their chunks lie in the queue's own table, under a partition that is none: the upload's id, negative.
CREATE TABLE penstock.uploads (
    id       bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    queue_id integer NOT NULL REFERENCES penstock.queues ON DELETE CASCADE,
    seen_at  timestamptz NOT NULL
);

CREATE OR REPLACE VIEW penstock.lag AS
SELECT q.name AS queue, g.name AS group_name,
       (SELECT count(*) FROM penstock.cursors c WHERE c.group_id = g.id) AS partitions,
       s.partitions_behind, s.lag, s.leases, g.counts, w.seen_at,
       -- One that nobody has asked for in a long time does not count for the queue's depth either.
       coalesce(w.seen_at < clock_timestamp() - make_interval(secs => q.away_seconds + q.delay_seconds), false) AS away
FROM penstock.queues q
JOIN penstock.groups g ON g.queue_id = q.id
LEFT JOIN penstock.queries r ON r.name = g.query_id
CROSS JOIN LATERAL (SELECT greatest(g.seen_at, r.lease_until) AS seen_at) w
CROSS JOIN LATERAL (
    SELECT count(*) FILTER (WHERE s.end_offset > s.next_offset) AS partitions_behind,
           coalesce(sum(greatest(s.end_offset - s.next_offset, 0)), 0)::bigint AS lag,
           count(*) FILTER (WHERE s.leased) AS leases
    FROM penstock.standing_of(g.id, q.id, q.segment) s
) s;

CREATE OR REPLACE VIEW penstock.depth AS
SELECT q.name AS queue, d.partitions, d.events, d.appended, q.max_depth_events,
       (SELECT coalesce(sum(s.events), 0)::bigint FROM penstock.shed s WHERE s.queue_id = q.id) AS shed
FROM penstock.queues q
CROSS JOIN LATERAL (
    SELECT count(*) AS partitions, coalesce(sum(p.end_offset - p.first_offset), 0)::bigint AS events,
           coalesce(sum(p.end_offset), 0)::bigint AS appended
    FROM penstock.partitions_of(q.id, q.segment) p
) d;
