-- The roles that may read the lag, such as the read-only login, may read the vitals.
DO $$
DECLARE
    _role regrole;
BEGIN
    FOR _role IN
        SELECT a.grantee FROM pg_class c CROSS JOIN LATERAL aclexplode(c.relacl) a
        WHERE c.oid = 'penstock.lag'::regclass AND a.privilege_type = 'SELECT' AND a.grantee NOT IN (0, c.relowner)
    LOOP
        EXECUTE format('GRANT SELECT ON penstock.vitals TO %s', _role);
    END LOOP;
END
$$;
