-- The events of a client's query in periods of ten seconds: in the period of its last cycle, and in the one before.
ALTER TABLE penstock.client_query_totals
    ADD COLUMN period          bigint NOT NULL DEFAULT 0,
    ADD COLUMN period_events   bigint NOT NULL DEFAULT 0,
    ADD COLUMN previous_events bigint NOT NULL DEFAULT 0;

-- The number of the current period.
CREATE FUNCTION penstock.rate_period() RETURNS bigint
LANGUAGE sql VOLATILE PARALLEL SAFE
RETURN floor(extract(epoch FROM clock_timestamp()) / 10)::bigint;
