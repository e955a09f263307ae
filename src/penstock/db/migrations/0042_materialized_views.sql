-- The result of a materialized view: its columns with their types in Spark and PostgreSQL, and its key.
ALTER TABLE penstock.queries ADD COLUMN view jsonb;

-- The roles that may read the other results, such as the read-only login, may read the views.
DO $$
DECLARE
    _role regrole;
BEGIN
    FOR _role IN
        SELECT a.grantee FROM pg_attribute c CROSS JOIN LATERAL aclexplode(c.attacl) a
        WHERE c.attrelid = 'penstock.queries'::regclass AND c.attname = 'result' AND a.privilege_type = 'SELECT'
          AND a.grantee <> 0
    LOOP
        EXECUTE format('GRANT SELECT (view) ON penstock.queries TO %s', _role);
    END LOOP;
END
$$;

-- State of the operators of materialized views: runs, as in a log-structured merge tree. A run is a sorted Arrow table
-- that never changes. A large run has several rows, its pieces, in the order of `sequence`.
--
-- One table instead of a staging table and a copy: tasks insert runs that no one sees yet (is_current = false), with the
-- token of their Spark job. The commit of the cycle makes those of its token current, which leaves the data where it
-- is (an UPDATE does not touch TOAST), so a commit takes the same time for a run of 1 kB and one of 64 MB. A task's own
-- commit is asynchronous; its WAL comes before that of the cycle's commit, so it is flushed with it.
CREATE TABLE penstock.view_runs (
    query_id   integer NOT NULL REFERENCES penstock.queries ON DELETE CASCADE,
    operator   integer NOT NULL,
    shard      integer NOT NULL,
    -- Runs are read in this order: a newer run overrides the rows of older ones.
    sequence   bigint GENERATED ALWAYS AS IDENTITY,
    -- An operator keeps several tables, its parts.
    part       integer NOT NULL,
    run_id     text COLLATE "C" NOT NULL,
    -- The Spark job that wrote the run, and the task attempt. Of several attempts, the last one counts.
    token      text COLLATE "C" NOT NULL,
    attempt    bigint NOT NULL,
    is_current boolean NOT NULL DEFAULT false,
    -- The ids of the runs that this one replaces. Empty once it is current.
    replaces   text[] NOT NULL,
    -- The number of rows in this piece.
    rows       bigint NOT NULL,
    -- An Arrow IPC stream, compressed.
    data       bytea NOT NULL,
    PRIMARY KEY (query_id, operator, shard, sequence)
) WITH (
    fillfactor = 70,
    autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000, autovacuum_vacuum_cost_delay = 0,
    toast.autovacuum_vacuum_scale_factor = 0.2, toast.autovacuum_vacuum_threshold = 5000,
    toast.autovacuum_vacuum_cost_delay = 0
);
ALTER TABLE penstock.view_runs ALTER COLUMN data SET STORAGE EXTERNAL;
-- Finds the runs of a job, and those that failed jobs left behind.
CREATE INDEX view_runs_pending ON penstock.view_runs (query_id) WHERE NOT is_current;
