-- Joins with a time bound keep their state in runs, as the operators of materialized views do.
ALTER TABLE penstock.view_runs RENAME TO state_runs;
ALTER INDEX penstock.view_runs_pkey RENAME TO state_runs_pkey;
ALTER INDEX penstock.view_runs_pending RENAME TO state_runs_pending;

-- The event times of the rows of a run, where rows are dropped once their time has passed: the lowest time, the median,
-- and the highest one. Each piece of a run has those of the whole run.
ALTER TABLE penstock.state_runs
    ADD COLUMN min_us    bigint,
    ADD COLUMN median_us bigint,
    ADD COLUMN max_us    bigint;
