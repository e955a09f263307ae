-- The number of changes of a materialized view's result in a cycle; null for other queries.
ALTER TABLE penstock.cycles ADD COLUMN changes bigint;

-- The roles that may read the other counts of a cycle, such as the read-only login, may read it.
DO $$
DECLARE
    _role regrole;
BEGIN
    FOR _role IN
        SELECT a.grantee FROM pg_attribute c CROSS JOIN LATERAL aclexplode(c.attacl) a
        WHERE c.attrelid = 'penstock.cycles'::regclass AND c.attname = 'windows' AND a.privilege_type = 'SELECT'
          AND a.grantee <> 0
    LOOP
        EXECUTE format('GRANT SELECT (changes) ON penstock.cycles TO %s', _role);
    END LOOP;
END
$$;
