-- name: owner_and_database
-- The owner of the results and the name of the database.
SELECT pg_get_userbyid(n.nspowner), current_database()::text FROM pg_namespace n WHERE n.nspname = 'penstock_live'

-- name: role_exists
SELECT EXISTS (SELECT FROM pg_roles WHERE rolname = %(reader)s)

-- name: is_superuser
SELECT rolsuper FROM pg_roles WHERE rolname = current_user

-- name: can_create
SELECT (r.rolsuper OR r.rolcreaterole) AND NOT EXISTS (SELECT FROM pg_roles o WHERE o.rolname = %(reader)s)
FROM pg_roles r WHERE r.rolname = current_user

-- name: lock
SELECT pg_advisory_xact_lock(7812746384130)

-- name: database
SELECT current_database()::text

-- name: excess_rights
-- The rights of this session beyond reading.
WITH me AS (
    SELECT * FROM pg_roles WHERE rolname = session_user
), ours AS (
    SELECT c.oid, c.relkind FROM pg_class c
    WHERE c.relnamespace IN ('penstock'::regnamespace, 'penstock_live'::regnamespace, 'penstock_history'::regnamespace)
      AND c.relkind IN ('r', 'p', 'v', 'm', 'f')
)
SELECT session_user::text, current_database()::text, array_remove(ARRAY[
    CASE WHEN m.rolsuper OR m.rolcreaterole OR m.rolcreatedb OR m.rolreplication OR m.rolbypassrls
        THEN 'has rights on the whole server' END,
    CASE WHEN EXISTS (SELECT FROM pg_auth_members a WHERE a.member = m.oid) THEN 'is a member of another role' END,
    CASE WHEN has_database_privilege(current_database(), 'CREATE')
          OR has_schema_privilege('penstock', 'CREATE') OR has_schema_privilege('penstock_live', 'CREATE')
          OR has_schema_privilege('penstock_history', 'CREATE')
        THEN 'may create tables' END,
    CASE WHEN EXISTS (SELECT FROM ours o WHERE has_table_privilege(o.oid, 'INSERT, UPDATE, DELETE, TRUNCATE')
                      OR has_any_column_privilege(o.oid, 'INSERT, UPDATE'))
        THEN 'may write to Penstock''s tables' END,
    CASE WHEN has_any_column_privilege('penstock.api_keys', 'SELECT') THEN 'may read the API keys' END
], NULL)
FROM me m
