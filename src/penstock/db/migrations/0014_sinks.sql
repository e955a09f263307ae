-- What each sink has done, added up over the processes that ran it, and how it is: for metrics and for SQL.
CREATE TABLE penstock.sink_totals (
    group_id     integer PRIMARY KEY REFERENCES penstock.groups ON DELETE CASCADE,
    guarantee    text NOT NULL,
    written      bigint NOT NULL DEFAULT 0,
    batches      bigint NOT NULL DEFAULT 0,
    retries      bigint NOT NULL DEFAULT 0,
    busy         bigint NOT NULL DEFAULT 0,
    dead_letters bigint NOT NULL DEFAULT 0,
    lost         bigint NOT NULL DEFAULT 0,
    is_running   boolean NOT NULL,
    -- Whether it leaves the other side alone for a while, because that has failed too often.
    is_resting   boolean NOT NULL,
    error        text,
    updated_at   timestamptz NOT NULL DEFAULT clock_timestamp()
) WITH (fillfactor = 50);

-- A sink that has not said anything for so long was killed.
CREATE VIEW penstock.sinks AS
SELECT q.name AS queue, g.name AS sink, t.guarantee, t.written, t.batches, t.retries, t.busy, t.dead_letters, t.lost,
       t.is_running AND t.updated_at > clock_timestamp() - interval '30 seconds' AS running,
       t.is_resting AS resting, t.error, s.lag, t.updated_at
FROM penstock.sink_totals t
JOIN penstock.groups g ON g.id = t.group_id
JOIN penstock.queues q ON q.id = g.queue_id
CROSS JOIN LATERAL (
    SELECT coalesce(sum(greatest(s.end_offset - s.next_offset, 0)), 0)::bigint AS lag
    FROM penstock.standing_of(g.id, q.id, q.segment) s
) s;
