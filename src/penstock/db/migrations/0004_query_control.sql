-- What people want of a query: nothing new while it is paused; drivers that were started before it was stopped end.

ALTER TABLE penstock.queries
    ADD COLUMN is_paused boolean NOT NULL DEFAULT false,
    ADD COLUMN stopped_at timestamptz;
