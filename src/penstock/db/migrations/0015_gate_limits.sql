-- Whoever changes limits, with the command or with SQL: what was refilled up to now was refilled as the limits were up to
-- now, lanes that wait are looked at again, and the driver hears of it. No event is let through meanwhile.
CREATE FUNCTION penstock.gate_limits_changed() RETURNS trigger
LANGUAGE plpgsql AS $$
DECLARE
    _limit penstock.gate_limits := coalesce(NEW, OLD);
    _query integer;
BEGIN
    SELECT id INTO _query FROM penstock.queries WHERE name = _limit.query FOR UPDATE;
    UPDATE penstock.gate_states s
    SET level = least(s.amount, s.level + s.rate * greatest(n.us - s.at_us, 0) / 1000000), at_us = greatest(s.at_us, n.us)
    FROM (SELECT penstock.micros(clock_timestamp()) AS us) n
    WHERE s.query_id = _query AND s.level IS NOT NULL
      AND (_limit.key = '' OR s.partition_id IN (
          SELECT l.partition_id FROM penstock.gate_lanes l WHERE l.query_id = _query AND l.key = _limit.key));
    WITH woken AS (
        UPDATE penstock.gate_lanes SET wakes_at = NULL, next_at = NULL
        WHERE query_id = _query AND (_limit.key = '' OR key = _limit.key) RETURNING partition_id
    )
    UPDATE penstock.cursors c SET state = 0 FROM woken w, penstock.groups g
    WHERE g.query_id = _limit.query AND c.group_id = g.id AND c.partition_id = w.partition_id AND c.state = 3;
    PERFORM pg_notify('penstock_gates', _limit.query);
    PERFORM pg_notify('penstock', g.queue_id::text) FROM penstock.groups g WHERE g.query_id = _limit.query;
    RETURN NULL;
END
$$;

CREATE TRIGGER changed AFTER INSERT OR UPDATE OR DELETE ON penstock.gate_limits
FOR EACH ROW EXECUTE FUNCTION penstock.gate_limits_changed();
