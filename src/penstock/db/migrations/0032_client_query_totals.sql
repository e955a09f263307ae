-- Totals of the cycles of a query that clients compute, for metrics. A row per partition: its cycles never run at the same
-- time, so they do not wait for each other. Rows of deleted partitions stay, since totals do not decrease.
CREATE TABLE penstock.client_query_totals (
    query_id     integer NOT NULL REFERENCES penstock.client_queries ON DELETE CASCADE,
    partition_id bigint NOT NULL,
    cycles       bigint NOT NULL,
    events_in    bigint NOT NULL,
    events_out   bigint NOT NULL,
    windows      bigint NOT NULL,
    dead         bigint NOT NULL,
    committed_at timestamptz NOT NULL,
    PRIMARY KEY (query_id, partition_id)
) WITH (fillfactor = 50);
