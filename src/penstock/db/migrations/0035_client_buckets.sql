-- The token buckets of clients as the server keeps them, to check releases by the clock of the database. Null in other rows.
-- bucket_min_rate is the largest refill per second that was seen, for as long as bucket_rate is not known.
ALTER TABLE penstock.client_query_state
    ADD COLUMN bucket_capacity double precision,
    ADD COLUMN bucket_rate     double precision,
    ADD COLUMN bucket_min_rate double precision,
    ADD COLUMN bucket_tokens   double precision;
