-- Whoever changes limits, with the command or with SQL: what was refilled up to now was refilled as the limits were up to
-- now, lanes that wait are looked at again, and the driver hears of it. No event is let through meanwhile. A change for all
-- keys concerns lane 0 too, which stands for what they share.
CREATE FUNCTION penstock.gate_limits_changed() RETURNS trigger
LANGUAGE plpgsql AS $$
BEGIN
    PERFORM FROM penstock.queries WHERE name IN (SELECT query FROM changed) ORDER BY id FOR UPDATE;
    WITH meant AS (
        SELECT l.query_id, l.partition_id FROM changed c
        JOIN penstock.queries q ON q.name = c.query
        JOIN penstock.gate_lanes l ON l.query_id = q.id AND l.key = c.key
        UNION
        SELECT q.id, unnest(ARRAY[0] || array(SELECT l.partition_id FROM penstock.gate_lanes l WHERE l.query_id = q.id))
        FROM penstock.queries q WHERE q.name IN (SELECT query FROM changed WHERE key = '')
    ), settled AS (
        UPDATE penstock.gate_states s
        SET level = least(s.amount, s.level + s.rate * greatest(n.us - s.at_us, 0) / 1000000),
            at_us = greatest(s.at_us, n.us)
        FROM meant m, (SELECT penstock.micros(clock_timestamp()) AS us) n
        WHERE s.query_id = m.query_id AND s.partition_id = m.partition_id AND s.level IS NOT NULL
    ), woken AS (
        UPDATE penstock.gate_lanes l SET wakes_at = NULL, next_at = NULL
        FROM meant m WHERE l.query_id = m.query_id AND l.partition_id = m.partition_id
    )
    UPDATE penstock.cursors c SET state = 0
    FROM meant m JOIN penstock.queries q ON q.id = m.query_id JOIN penstock.groups g ON g.query_id = q.name
    WHERE c.group_id = g.id AND c.partition_id = m.partition_id AND c.state = 3;
    PERFORM pg_notify('penstock_gates', query) FROM changed GROUP BY query;
    PERFORM pg_notify('penstock', queue_id::text) FROM penstock.groups
    WHERE query_id IN (SELECT query FROM changed);
    RETURN NULL;
END
$$;

CREATE TRIGGER inserted AFTER INSERT ON penstock.gate_limits REFERENCING NEW TABLE AS changed
FOR EACH STATEMENT EXECUTE FUNCTION penstock.gate_limits_changed();
CREATE TRIGGER updated AFTER UPDATE ON penstock.gate_limits REFERENCING NEW TABLE AS changed
FOR EACH STATEMENT EXECUTE FUNCTION penstock.gate_limits_changed();
CREATE TRIGGER deleted AFTER DELETE ON penstock.gate_limits REFERENCING OLD TABLE AS changed
FOR EACH STATEMENT EXECUTE FUNCTION penstock.gate_limits_changed();
