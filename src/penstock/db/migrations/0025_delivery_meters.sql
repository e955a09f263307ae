-- The budgets of deliveries: what a sink behind a gate has sent for each key, so that the gate's limits hold at the
-- receiver. Key '' is for a gate that all keys share. A row is written before the events are sent, so a crash can only
-- make a sink send less. amount and rate are those in force since at_us, in billionths of a token; level is in tokens.
-- in_flight: reserved for events that may not have reached the receiver at at_us.
CREATE TABLE penstock.delivery_meters (
    group_id    integer NOT NULL REFERENCES penstock.groups ON DELETE CASCADE,
    key         text NOT NULL,
    gate        smallint NOT NULL,
    amount      bigint NOT NULL,
    rate        bigint NOT NULL,
    at_us       bigint NOT NULL,
    in_flight   bigint NOT NULL,
    level       numeric,
    grant_times bigint[],
    grant_costs bigint[],
    PRIMARY KEY (group_id, key, gate)
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.1, autovacuum_vacuum_cost_delay = 0);
